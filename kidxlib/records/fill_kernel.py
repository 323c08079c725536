"""The compiled loops that fill the buffers of Arrow's columns from the places of records."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import LONGS, copy_bytes, int16_at, varint_at
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.records.place_kernel import PLACE

_STRIDED: Final = types.Array(types.int64, 1, "A", readonly=True)
_INTS: Final = types.Array(types.int32, 1, "C")
_BYTES: Final = types.Array(types.uint8, 1, "C")
_PLACES: Final = types.Array(from_dtype(PLACE), 1, "A", readonly=True)

_ABORT: Final = layouts.CONTROL_TYPE_ABORT
_COMMIT: Final = layouts.CONTROL_TYPE_COMMIT
_CONTROL_KEY_BYTES: Final = layouts.CONTROL_KEY_BYTES
_MARKER_VALUE_BYTES: Final = layouts.MARKER_VALUE_BYTES


@njit(types.UniTuple(types.int64, 2)(_STRIDED, _INTS, _BYTES), **OPTIONS)  # type: ignore[no-untyped-call]
def fill_ends(sizes, ends, filled):
    """Fill the offsets of a binary column, and its validity bits.

    Args:
        sizes: below 0 for null.
        ends: the column's offsets, one more than `sizes`.
        filled: zeros, a bit for each size.

    Returns:
        The sum of the sizes, and the number of nulls.
    """
    end, nulls = np.int64(0), np.int64(0)
    ends[0] = 0
    for number in range(len(sizes)):
        size = sizes[number]
        if size < 0:
            nulls += 1
        else:
            end += size
            filled[number >> 3] |= np.uint8(1 << (number & 7))
        ends[number + 1] = np.int32(end)
    return end, nulls


@njit(types.void(_STRIDED, _STRIDED, _BYTES), **OPTIONS)
def fill_data(addresses, sizes, data):
    """Fill the data of a binary column with the bytes at addresses."""
    to = np.int64(data.ctypes.data)
    for number in range(len(sizes)):
        size = sizes[number]
        if size > 0:
            copy_bytes(to, addresses[number], size)  # type: ignore[call-arg]
            to += size


@njit(types.int64(_PLACES, _INTS, _BYTES), **OPTIONS)
def fill_header_ends(places, ends, filled):
    """Fill the offsets of a column of headers, and its validity bits. Return the number of headers.

    Args:
        ends: the column's offsets, one more than `places`.
        filled: zeros, a bit for each place.
    """
    end = np.int64(0)
    ends[0] = 0
    for number in range(len(places)):
        address = places[number].headers_at
        if address != 0:
            headers, _ = varint_at(address)
            if headers > 0:
                end += headers
                filled[number >> 3] |= np.uint8(1 << (number & 7))
        ends[number + 1] = np.int32(end)
    return end


@njit(types.void(_PLACES, LONGS, LONGS, LONGS, LONGS), **OPTIONS)
def fill_headers(places, key_at, key_bytes, value_at, value_bytes):
    """Fill in the addresses and sizes of the keys and values of all headers, from which `fill_data` copies."""
    header = 0
    for number in range(len(places)):
        address = places[number].headers_at
        if address == 0:
            continue
        headers, address = varint_at(address)
        for _ in range(headers):
            key_bytes[header], key_at[header] = varint_at(address)
            address = key_at[header] + key_bytes[header]
            value_bytes[header], value_at[header] = varint_at(address)
            address = value_at[header] + max(value_bytes[header], 0)
            header += 1


@njit(types.int64(_PLACES, types.Array(types.boolean, 1, "A", readonly=True), _INTS), **OPTIONS)
def fill_control_types(places, is_control, control_types):
    """Fill in the types of transaction markers, and −1 for data.

    Args:
        is_control: for each place, whether it is a control record.

    Returns:
        The number of places, or the number of the first place with another or a malformed control record.
    """
    for number in range(len(places)):
        place = places[number]
        if not is_control[number]:
            control_types[number] = -1
            continue
        if place.key_bytes < _CONTROL_KEY_BYTES or int16_at(place.key_at) < 0:
            return number
        control_type = np.int32(int16_at(place.key_at + 2))
        if control_type != _ABORT and control_type != _COMMIT:
            return number
        if place.value_bytes < _MARKER_VALUE_BYTES or int16_at(place.value_at) < 0:
            return number
        control_types[number] = control_type
    return len(places)
