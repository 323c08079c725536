"""Options that are whole numbers: what is said of a value that is none."""

from __future__ import annotations

import click
import pytest

from kidxlib.terminal.options.integer_range import IntegerRange


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (IntegerRange(0, 9), "ten", "ten: expected a whole number from 0 to 9"),
        (IntegerRange(0, 9), "10", "10: expected a whole number from 0 to 9"),
        (IntegerRange(0, 9), "٣", "٣: expected a whole number from 0 to 9"),
        (IntegerRange(1), "0", "0: expected a whole number, 1 or more"),
        (IntegerRange(), "4k", "4k: expected a whole number"),
    ],
)
def test_a_number_that_is_none_says_what_is_expected(kind: IntegerRange, given: str, expected: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        kind.convert(given, None, None)
    assert raised.value.message == expected
    assert IntegerRange(0, 10).convert("10", None, None) == 10


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (IntegerRange(1, 2**31 - 1), "Size.  [1 to 2147483647]"),
        (IntegerRange(1), "Size.  [1 or more]"),
        (IntegerRange(-1, 2**63 - 1), "Size.  [-1 or more]"),
        (IntegerRange(-(2**63), 2**63 - 1), "Size."),
        (IntegerRange(), "Size."),
    ],
)
def test_help_says_the_range_in_words(kind: IntegerRange, shown: str) -> None:
    option = click.Option(["--size"], metavar="BYTES", type=kind, help="Size.")
    assert option.get_help_record(click.Context(click.Command("x"))) == ("--size BYTES", shown)
