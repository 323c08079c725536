"""Numbers go round as in Java's int and long, and texts are read and split as Java does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from ctypes import c_int16, c_int32, c_int64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.java import (
    as_int,
    as_long,
    as_short,
    decremented_sequence,
    double_text,
    hash_of,
    incremented_sequence,
    parse_int,
    parse_long,
    split_by_pattern,
)

INT_MAX = 2**31 - 1
SEQUENCES = st.integers(0, INT_MAX) | st.sampled_from([0, 1, INT_MAX - 1, INT_MAX])


@given(
    st.integers(-(2**70), 2**70)
    | st.sampled_from([sign * 2**bits for sign in (1, -1) for bits in (15, 16, 31, 32, 63, 64)])
)
def test_sums_are_those_of_a_machine(value: int) -> None:
    assert (as_short(value), as_int(value), as_long(value)) == tuple(
        c(value).value for c in (c_int16, c_int32, c_int64)
    )


@given(SEQUENCES, SEQUENCES)
def test_sequences_go_round_behind_the_largest_int(sequence: int, step: int) -> None:
    """They are numbers modulo 2**31, and a step back undoes a step."""
    after = incremented_sequence(sequence, step)
    assert after == (sequence + step) % 2**31
    assert decremented_sequence(after, step) == sequence


@pytest.mark.parametrize(("parse", "bits"), [(parse_int, 32), (parse_long, 64)])
def test_texts_at_the_ends_of_a_type(parse: Callable[[str], int | None], bits: int) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value in (least, -1, 0, most):
        assert parse(str(value)) == value
    assert parse(str(least - 1)) is None
    assert parse(str(most + 1)) is None


@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1\n", "1_0", "0x1", "1.0", "--1", "9" * 5_000])
def test_what_java_takes_for_no_number(text: str) -> None:
    assert parse_int(text) is None


def test_a_plus_and_zeros_before_a_number() -> None:
    assert parse_int("+007") == 7


@pytest.mark.parametrize(
    ("line", "parts"), [("a b", ["a", "b"]), (" a", ["", "a"]), ("a  ", ["a"]), ("", [""]), (" ", []), ("  ", [])]
)
def test_parts_without_empty_ones_at_the_end(line: str, parts: list[str]) -> None:
    assert split_by_pattern(re.compile(" "), line) == parts


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_read_back_from_its_text(value: float) -> None:
    assert float(double_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0.001, "0.001"), (-0.0009, "-9.0E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (1.5e-300, "1.5E-300")],
        *[(0.0, "0.0"), (-0.0, "-0.0"), (100.0, "100.0"), (123.25, "123.25"), (12345678.9, "1.23456789E7")],
        *[(float("nan"), "NaN"), (float("-inf"), "-Infinity")],
    ],
)
def test_doubles_as_java_shows_them(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(("text", "hashed"), [("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31))])
def test_hashes_of_texts(text: str, hashed: int) -> None:
    assert hash_of(text) == hashed
