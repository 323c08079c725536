"""What stands in a file, quoted in a message."""

from __future__ import annotations

import pytest

from kidxlib.text.words import quoted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a 0 x", "'a 0 x'"),
        (b"\1x", r"b'\x01x'"),
        ("\0" * 20_000, "20,000 NUL bytes"),
        (b"\0", "1 NUL byte"),
        ("", "''"),
        ("\0a" * 500, repr("\0a" * 30) + "… (1,000 characters)"),
        (b"\xff" * 61, repr(b"\xff" * 60) + "… (61 bytes)"),
        ([0] * 100, "[" + "0, " * 19 + "0,… (300 characters)"),
    ],
)
def test_a_value_is_one_line_of_a_bounded_length(value: object, expected: str) -> None:
    assert quoted(value) == expected
