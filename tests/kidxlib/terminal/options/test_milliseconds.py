"""Options that are milliseconds: a plain number as in Kafka, or a duration with its unit."""

from __future__ import annotations

import click
import pytest

from kidxlib.terminal.options.milliseconds import Milliseconds

_KIND = Milliseconds(-1, 2**63 - 1)


@pytest.mark.parametrize(
    ("given", "milliseconds"), [("604800000", 604_800_000), ("7d", 604_800_000), ("0s", 0), ("5ms", 5), ("-1", -1)]
)
def test_a_unit_may_be_given(given: str, milliseconds: int) -> None:
    assert _KIND.convert(given, None, None) == milliseconds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "7w",
            "'7w' is not a duration; expected a whole number with ms, s, m, h or d, such as 60s; or a",
        ),
        ("-2", "-2: expected a whole number from -1 to 9223372036854775807"),
        ("1.5", "1.5: expected a whole number from -1 to 9223372036854775807"),
    ],
)
def test_what_is_none_says_what_is_expected(given: str, expected: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        _KIND.convert(given, None, None)
    assert raised.value.message.startswith(expected)
