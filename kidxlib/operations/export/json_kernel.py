"""The compiled loops that write bytes as JSON: as text where they are UTF-8, else in base64."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.format.bytes_kernel import BYTES, uint8
from kidxlib.jit.compiler import OPTIONS, njit

_INTS: Final = types.Array(types.int32, 1, "C", readonly=True)
_FLAGS: Final = types.Array(types.boolean, 1, "C")
_SIZES: Final = types.Array(types.int64, 1, "C")
_OUT: Final = types.Array(types.uint8, 1, "C")

_HEX: Final = tuple(b"0123456789abcdef")
_BASE64: Final = tuple(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_QUOTE, _BACKSLASH, _PAD = b'"\\='
#: The character after a backslash, for the characters below 32 that have a short form; 0 for the others.
_SHORT: Final = tuple({8: b"b", 9: b"t", 10: b"n", 12: b"f", 13: b"r"}.get(byte, b"\0")[0] for byte in range(32))


@njit(forceinline=True)
def _escaped_bytes(byte):
    if byte >= 32:
        return np.int64(2) if byte in (_QUOTE, _BACKSLASH) else np.int64(1)
    return np.int64(2) if _SHORT[byte] else np.int64(6)


@njit
def _continues(data, at, end, count, least, most):
    """Whether `count` bytes follow that UTF-8 allows after the first of a character; `least` and `most` limit the first
    of them.
    """
    if end - at <= count:
        return False
    first = uint8(data, at + 1)
    if first < least or first > most:
        return False
    number = 2
    while number <= count and uint8(data, at + number) & 0xC0 == 0x80:
        number += 1
    return number > count


@njit
def _character_bytes(data, at, end):
    """The bytes of the character at a position in UTF-8; 0 where there is none."""
    byte = uint8(data, at)
    if byte < 0x80:
        return 1
    if 0xC2 <= byte <= 0xDF:
        return 2 if _continues(data, at, end, 1, 0x80, 0xBF) else 0
    if 0xE0 <= byte <= 0xEF:  # not longer than needed, and no surrogate
        least, most = 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        return 3 if _continues(data, at, end, 2, least, most) else 0
    if 0xF0 <= byte <= 0xF4:
        least, most = 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        return 4 if _continues(data, at, end, 3, least, most) else 0
    return 0


@njit(types.void(BYTES, _INTS, _FLAGS, _SIZES), **OPTIONS)
def measure_texts(data, ends, is_text, sizes):
    """Measure values as JSON: which are texts in UTF-8, and how many bytes each takes as a text, or else in base64.
    `ends` has the start of the first value, then the ends of all.
    """
    for number in range(len(sizes)):
        start, end = np.int64(ends[number]), np.int64(ends[number + 1])
        at, size = start, np.int64(2)
        while at < end:
            count = _character_bytes(data, at, end)
            if count == 0:
                break
            size += _escaped_bytes(uint8(data, at)) if count == 1 else np.int64(count)
            at += count
        is_text[number] = at == end
        sizes[number] = size if at == end else 2 + (end - start + 2) // 3 * 4


@njit(types.void(BYTES, _INTS, _FLAGS, _OUT), **OPTIONS)
def write_texts(data, ends, is_text, out):
    """Write as JSON the values that `measure_texts` has measured, one after the other."""
    to = np.int64(0)
    for number in range(len(is_text)):
        start, end = np.int64(ends[number]), np.int64(ends[number + 1])
        out[to] = _QUOTE
        to += 1
        if is_text[number]:
            for at in range(start, end):
                byte = uint8(data, at)
                if byte >= 32 and byte not in (_QUOTE, _BACKSLASH):
                    out[to] = byte
                    to += 1
                    continue
                out[to] = _BACKSLASH
                if byte >= 32:
                    out[to + 1] = byte
                    to += 2
                elif _SHORT[byte]:
                    out[to + 1] = _SHORT[byte]
                    to += 2
                else:
                    out[to + 1], out[to + 2], out[to + 3] = 117, 48, 48  # u00
                    out[to + 4], out[to + 5] = _HEX[byte >> 4], _HEX[byte & 15]
                    to += 6
        else:
            for at in range(start, end, 3):
                left = min(end - at, np.int64(3))
                bits = np.int64(0)
                for byte_number in range(3):
                    bits = bits << 8 | (np.int64(uint8(data, at + byte_number)) if byte_number < left else 0)
                for digit in range(4):
                    out[to + digit] = _BASE64[bits >> 18 - 6 * digit & 63] if digit <= left else _PAD
                to += 4
        out[to] = _QUOTE
        to += 1
