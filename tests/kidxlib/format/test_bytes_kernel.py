"""Varints are read as Kafka's `ByteUtils` writes them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib.format.bytes_kernel import (
    TOO_LONG,
    UNDERFLOW,
    int16,
    int32,
    int64,
    read_varint,
    skip_bytes,
    skip_headers,
    varlong,
)
from kidxlib.jit.compiler import njit

INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@njit
def numbers(data):  # type: ignore[no-untyped-def]
    """What is inlined is only to be called by compiled code."""
    return int16(data, 1), int32(data, 1), int64(data, 1)


def encoded(value: int) -> bytes:
    """`ByteUtils.writeVarlong`; of an int it is what `writeVarint` writes."""
    left, out = (value << 1) if value >= 0 else (-value << 1) - 1, bytearray()
    while left >= 128:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


@given(INTS)
def test_every_int_is_read_back(value: int) -> None:
    data = b"?" + encoded(value) + b"?"
    assert read_varint(array(data), 1, len(data)) == (value, len(data) - 1)


@given(LONGS)
def test_every_long_is_read_back(value: int) -> None:
    data = b"?" + encoded(value) + b"?"
    assert varlong(array(data), 1, len(data)) == (value, len(data) - 1)


@given(LONGS, st.data())
def test_a_number_that_is_cut_off_is_told(value: int, data: st.DataObject) -> None:
    whole = encoded(value)
    end = data.draw(st.integers(0, len(whole) - 1))
    assert varlong(array(whole), 0, end) == (0, UNDERFLOW)
    assert read_varint(array(whole), 0, min(end, 4)) == (0, UNDERFLOW)


def test_a_number_of_too_many_bytes_is_told() -> None:
    assert read_varint(array(b"\x80" * 5 + b"\0"), 0, 6) == (0, TOO_LONG)
    assert varlong(array(b"\x80" * 10 + b"\0"), 0, 11) == (0, TOO_LONG)


@given(INTS, st.integers(1, 7))
def test_bits_to_spare_are_passed_over(value: int, spare: int) -> None:
    """A fifth byte has room for three bits more than an int."""
    low, number = encoded(value), (value << 1 if value >= 0 else (-value << 1) - 1)
    padded = bytes([byte | 128 for byte in low.ljust(5, b"\0")[:4]]) + bytes([number >> 28 | spare << 4])
    assert read_varint(array(padded), 0, 5) == (value, 5)


@given(st.binary(min_size=9, max_size=9))
def test_big_endian_numbers(data: bytes) -> None:
    assert numbers(array(data)) == tuple(struct.unpack_from(form, data, 1)[0] for form in (">h", ">i", ">q"))


@given(st.lists(st.tuples(st.binary(max_size=99), st.none() | st.binary(max_size=99)), max_size=4), st.data())
def test_headers_end_where_they_end_or_not_at_all(
    headers: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    content = encoded(len(headers))
    for key, value in headers:
        content += encoded(len(key)) + key + (encoded(-1) if value is None else encoded(len(value)) + value)
    assert skip_headers(array(content + b"?"), 0, len(content) + 1) == len(content)
    cut = data.draw(st.integers(0, len(content) - 1))
    assert skip_headers(array(content), 0, cut) == UNDERFLOW


@pytest.mark.parametrize(("size", "found"), [(2, (2, 1, 3)), (0, (0, 1, 1)), (-1, (-1, 1, 1)), (3, (3, 1, UNDERFLOW))])
def test_bytes_with_their_length(size: int, found: tuple[int, int, int]) -> None:
    assert skip_bytes(array(encoded(size) + b"ab"), 0, 3) == found
