"""The compiled loops that lay records down in batches of magic 2, as a producer does."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format.bytes_kernel import copy_bytes, varint_at
from kidxlib.format.layouts import BATCH_V2_BYTES_MIN
from kidxlib.jit.compiler import njit

_HEADER_BYTES: Final = BATCH_V2_BYTES_MIN
#: `MemoryRecordsBuilder.COMPRESSION_RATE_ESTIMATION_FACTOR`.
ESTIMATION_FACTOR: Final = np.float32(1.05)
#: `DefaultRecord.MAX_RECORD_OVERHEAD`: of what a record has before its key, the most.
RECORD_OVERHEAD_MAX: Final = 21


@njit
def _varint_bytes(value):
    """How many bytes a zig-zag varint takes (`ByteUtils.sizeOfVarlong`)."""
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(np.int64(value) >> np.int64(63))
    size = np.int64(1)
    while left >= np.uint64(128):
        left >>= np.uint64(7)
        size += 1
    return size


@njit
def _put_varint(out, at, value):
    """Write a zig-zag varint, and return the position after it."""
    left = (np.uint64(value) << np.uint64(1)) ^ np.uint64(np.int64(value) >> np.int64(63))
    while left >= np.uint64(128):
        out[at] = np.uint8((left & np.uint64(127)) | np.uint64(128))
        left >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@njit
def _record_headers_bytes(address):
    """Bytes of a record's headers and their number."""
    start = address
    headers, address = varint_at(address)
    for _ in range(headers):
        size, address = varint_at(address)
        size, address = varint_at(address + size)
        address += max(size, 0)
    return address - start


@njit(cache=True, nogil=True)
def measure_bodies(places, ends):
    """Measure, for the report's savings, each record from its key on, with the sizes before its parts.

    Args:
        places: of `PLACE`.
        ends: of one more: where each ends if they stand one after the other.
    """
    ends[0] = 0
    for number in range(len(places)):
        place = places[number]
        key, value = max(place.key_bytes, np.int64(-1)), max(place.value_bytes, np.int64(-1))
        size = _varint_bytes(key) + max(key, 0) + _varint_bytes(value) + max(value, 0)
        size += np.int64(1) if place.headers_at == 0 else _record_headers_bytes(place.headers_at)
        ends[number + 1] = ends[number] + size


@njit(cache=True, nogil=True)
def copy_bodies(places, ends, out):
    """Copy each record, for the report's savings, from its key on to where it begins by `measure_bodies`."""
    to = np.int64(out.ctypes.data)
    for number in range(len(places)):
        place = places[number]
        key, value = max(place.key_bytes, np.int64(-1)), max(place.value_bytes, np.int64(-1))
        at = _put_varint(out, ends[number], key)
        if key > 0:
            copy_bytes(to + at, place.key_at, key)  # type: ignore[call-arg]
        at = _put_varint(out, at + max(key, 0), value)
        if value > 0:
            copy_bytes(to + at, place.value_at, value)  # type: ignore[call-arg]
        at += max(value, 0)
        if place.headers_at == 0:
            out[at] = 0
        else:
            copy_bytes(to + at, place.headers_at, ends[number + 1] - at)  # type: ignore[call-arg]


@njit
def _estimated_batch_bytes(body_bytes, ratio, compresses):
    """Bytes of the batch so far, as `MemoryRecordsBuilder.estimatedBytesWritten` takes them."""
    if not compresses:
        return _HEADER_BYTES + body_bytes
    return _HEADER_BYTES + np.int64(np.float32(np.float32(np.float32(body_bytes) * ratio) * ESTIMATION_FACTOR))


@njit(cache=True, nogil=True)
def fill_batch(bodies, ends, timestamps, begins, first, batch_size, ratio, compresses, out):
    """Lay records down as a simulated producer does, from one on until there is no room for the next
    (`MemoryRecordsBuilder.hasRoomFor`).

    Args:
        bodies: records from their keys on, one after the other.
        ends: of one more: where each of them begins, and the last one ends.
        timestamps: of records.
        begins: which of them may not follow another in its batch.
        first: number of the first record.
        batch_size: the producer's `batch.size`. A record that is larger gets a batch of its own.
        ratio: compressed bytes of a byte, as the producer estimates them; a float32.
        compresses: whether there is a codec.
        out: what the batch holds after its header, before it is compressed.

    Returns:
        The number of the record after the last one, and the bytes that were laid down.
    """
    limit = max(batch_size, _HEADER_BYTES + RECORD_OVERHEAD_MAX + ends[first + 1] - ends[first])
    source, target = np.int64(bodies.ctypes.data), np.int64(out.ctypes.data)
    at, number = np.int64(0), first
    while number < len(timestamps):
        estimated = _estimated_batch_bytes(at, ratio, compresses)
        if number > first and (begins[number] or limit <= estimated):
            break
        timestamp_delta = np.int64(np.uint64(timestamps[number]) - np.uint64(timestamps[first]))
        offset_delta, body_bytes = np.int64(number - first), ends[number + 1] - ends[number]
        size = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta) + body_bytes
        if number > first and limit < estimated + _varint_bytes(size) + size:
            break
        at = _put_varint(out, at, size)
        out[at] = 0  # attributes
        at = _put_varint(out, _put_varint(out, at + 1, timestamp_delta), offset_delta)
        copy_bytes(target + at, source + ends[number], body_bytes)  # type: ignore[call-arg]
        at += body_bytes
        number += 1
    return number, at
