"""Numbers as Java's arithmetic gives them, which ends at 32 or 64 bits and goes round."""

from __future__ import annotations

import re
from typing import Final

_INT_MAX: Final = 2**31 - 1


def as_long(value: int) -> int:
    """`value` as Java's 64-bit arithmetic gives it."""
    return (value + 2**63) % 2**64 - 2**63


def as_int(value: int) -> int:
    """`value` as Java's 32-bit arithmetic gives it."""
    return (value + 2**31) % 2**32 - 2**31


def incremented_sequence(sequence: int, increment: int) -> int:
    """`DefaultRecordBatch.incrementSequence`: after the largest int comes 0."""
    if sequence > as_int(_INT_MAX - increment):
        return as_int(increment - (_INT_MAX - sequence) - 1)
    return as_int(sequence + increment)


def decremented_sequence(sequence: int, decrement: int) -> int:
    """`DefaultRecordBatch.decrementSequence`: before 0 comes the largest int."""
    if sequence < decrement:
        return as_int(_INT_MAX - (decrement - sequence) + 1)
    return as_int(sequence - decrement)


_INTEGER = re.compile(r"[+-]?\d+")


def parse_integer(text: str, bits: int) -> int | None:
    """What Java's `parseInt` and `parseLong` make of a text; None where they throw a `NumberFormatException`."""
    if _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
