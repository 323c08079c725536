"""What a partition in the catalog answers, by the status that its segments have there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from kidxlib.index.time import TimestampOffset
from kidxlib.lookup.answers import OFFSET, TIMESTAMP
from kidxlib.lookup.checked_segment import CheckedSegment
from kidxlib.lookup.seeker import Seeker, seek_all
from kidxlib.recovery.outcome import USABLE, Status
from tests.support.logs import golden
from tests.support.seeks import cataloged, cataloged_row, golden_directory

#: What a row has of a log that was not read to its end.
_NOT_READ: Final = {
    name: None
    for name in ("valid_bytes", "max_timestamp_ms", "offset_of_max_timestamp", "offset_index_bytes", "time_index_bytes")
}
#: What a row has of a log that could not even be looked at.
_NOT_SEEN: Final = {**_NOT_READ, "log_bytes": None, "log_mtime_ns": None}
_PROBLEM: Final = {"reason": "some-reason", "reason_position": 7}


@pytest.fixture
def row(tmp_path: Path) -> dict[str, Any]:
    """The row of a whole segment, as a build records it."""
    first = min((each for each in golden.committed() if each.log.parent.name == "txn-mixed-0"), key=lambda it: it.log)
    golden_directory([first], tmp_path / "t-0")
    row = cataloged_row(tmp_path / "t-0" / first.log.name)
    assert row["status"] is Status.OK
    return row


def _seeker(row: dict[str, Any]) -> Seeker:
    seeker = cataloged(row).seeker()
    assert isinstance(seeker, Seeker)
    return seeker


def _ask(seeker: Seeker, query: str, target: int) -> tuple[bool, str]:
    """Whether it is answered, and its note."""
    [answer] = seek_all(seeker, query, np.array([target], np.int64)).to_pylist()
    return answer["answered"], answer["note"] or ""


@pytest.mark.parametrize("status", USABLE)
def test_what_a_recovery_leaves_is_searched(row: dict[str, Any], status: Status) -> None:
    seeker = _seeker(row | {"status": status} | (_PROBLEM if status is Status.TRUNCATED else {}))
    assert _ask(seeker, OFFSET, row["base_offset"]) == (True, "")
    assert _ask(seeker, TIMESTAMP, row["max_timestamp_ms"]) == (True, "")
    [segment] = seeker.log.segments
    assert isinstance(segment, CheckedSegment)
    assert (segment.truncation is None) == (status is Status.OK)
    assert segment.max_timestamp_so_far == TimestampOffset(row["max_timestamp_ms"], row["offset_of_max_timestamp"])


@pytest.mark.parametrize("facts", [{}, _NOT_READ, _NOT_SEEN], ids=["read", "not-read", "not-seen"])
@pytest.mark.parametrize("status", [status for status in Status if status not in USABLE])
def test_nothing_else_is(row: dict[str, Any], status: Status, facts: dict[str, Any]) -> None:
    """Whatever its row has: of a quarantined segment that is all up to the batch at which Kafka fails."""
    seeker = _seeker(row | {"status": status} | _PROBLEM | facts)
    for query, target in ((OFFSET, row["base_offset"]), (TIMESTAMP, row["max_timestamp_ms"])):
        answered, note = _ask(seeker, query, target)
        assert not answered
        assert f"{row['log_path']} was {status} (some-reason at byte 7) when the catalog was built" in note


def test_a_segment_without_timestamps_is_as_old_as_its_file(row: dict[str, Any]) -> None:
    seeker = _seeker(row | {"max_timestamp_ms": -1, "offset_of_max_timestamp": None})
    [segment] = seeker.log.segments
    assert segment.max_timestamp_so_far == TimestampOffset(-1, row["base_offset"])
    assert segment.largest_timestamp == row["log_mtime_ns"] // 1_000_000
