"""A point in time means the same on every machine, or is refused in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import UsageError
from kidxlib.text.times import parse_duration, parse_time, to_ms


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20T10:00Z", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20T10:00:00.123+01:00", datetime(2026, 11, 20, 9, 0, 0, 123_000, tzinfo=UTC)),
        ("2026-11-20 00:30+05:30", datetime(2026, 11, 19, 19, tzinfo=UTC)),
        ("20261120T100000Z", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("0", datetime(1970, 1, 1, tzinfo=UTC)),
        ("-1", datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("1760000000123", datetime(2025, 10, 9, 8, 53, 20, 123_000, tzinfo=UTC)),
        ("253402300799999", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert parse_time(text) == moment
    assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T10:00",
        "2026-11-20",
        "10:00Z",
        "yesterday",
        "",
        "1.5",
        "1e3",
        "2026-13-01T00:00Z",
        "253402300800000",
        "-99999999999999999999",
        "9" * 5000,
        "0001-01-01T00:00+01:00",
    ],
)
def test_what_is_no_time(text: str) -> None:
    """Without a zone, not a time, or out of range: one error that quotes it, never a stack trace."""
    with pytest.raises(UsageError) as refused:
        parse_time(text)
    assert text[:100] in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_are_kept(milliseconds: int) -> None:
    """Both forms of one millisecond are one moment, over the whole range."""
    moment = parse_time(str(milliseconds))
    assert parse_time(moment.isoformat()) == moment
    assert round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) == milliseconds


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0s", timedelta(0)),
        ("250ms", timedelta(milliseconds=250)),
        ("60s", timedelta(minutes=1)),
        ("90m", timedelta(hours=1, minutes=30)),
        ("24h", timedelta(days=1)),
        ("7d", timedelta(weeks=1)),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "60", "s", "-1s", "1.5h", "1 h", "1w", "999999999999999d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_and_back(milliseconds: int) -> None:
    assert to_ms(parse_time(str(milliseconds))) == milliseconds
