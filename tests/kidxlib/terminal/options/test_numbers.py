"""Numbers, bytes and durations as people write them, and what is said of a value that is none."""

from __future__ import annotations

import click
import pytest

from kidxlib.terminal.options.numbers import ByteSize, IntegerRange, Milliseconds

_KIND = Milliseconds(-1, 2**63 - 1)


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


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1500", 1500),
        ("2kB", 2000),
        ("2 KiB", 2048),
        ("500MB", 500_000_000),
        ("3gib", 3 * 2**30),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert ByteSize().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5GB", "5 bytes", "GB", "9000000PB", "٣"])
def test_others(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a number of bytes below 2⁶³, such as"):
        ByteSize().convert(text, None, None)


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
