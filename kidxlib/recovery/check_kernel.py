"""The compiled loops that find batches and check their checksums, without recovering a log."""

from __future__ import annotations

import numpy as np
from numba import types

from kidxlib.format.bytes_kernel import int32, int64
from kidxlib.format.checksum_kernel import checksum, stored_checksum
from kidxlib.format.layouts import (
    BATCH_BYTES_MIN,
    BATCH_V2_BYTES_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    SIZE_AT,
    V2_ATTRIBUTES_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.jit.compiler import njit
from kidxlib.recovery.log_facts.crc32c_kernel import with_batch


@njit
def _check(data, start, stop):
    address = np.int64(data.ctypes.data)
    position, crc = start, np.uint32(0)
    while position < stop and position + BATCH_BYTES_MIN <= len(data):
        batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
        magic = np.int64(np.int8(data[position + MAGIC_AT]))
        smallest = BATCH_V2_BYTES_MIN if magic >= MAGIC_V2 else BATCH_BYTES_MIN
        if batch_bytes < smallest or position + batch_bytes > len(data):
            break
        stored = stored_checksum(data, position, magic)
        if checksum(address, position, batch_bytes, magic) != stored:
            break
        if magic >= MAGIC_V2:
            crc = with_batch(crc, data, address, position, batch_bytes, stored)
        position += batch_bytes
    return position, np.int64(crc)


@njit(
    types.int64(types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def check_batches(data, start, stop):
    """Check the checksums of the batches from `start` on. Return the position of the first batch that starts at or
    after `stop`, or of the first torn or wrong one before.

    Args:
        data: the whole log, read-only uint8.
    """
    return _check(data, start, stop)[0]


@njit(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
        types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def check_section(data, start, stop):
    """Do what `check_batches` does, and also return the CRC-32C of the section, if all batches are of magic 2."""
    return _check(data, start, stop)


@njit(
    types.int64(types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def find_batch(data, start, stop):
    """Find the first position from `start` to before `stop` at which a batch of magic 2 seems to start, by its header
    and checksum. Return −1 if there is none.

    Args:
        data: the whole log, read-only uint8.
    """
    address = np.int64(data.ctypes.data)
    for position in range(start, min(stop, len(data) - BATCH_V2_BYTES_MIN + 1)):
        if data[position + MAGIC_AT] != MAGIC_V2:
            continue
        # Cheap conditions first: bytes amid records may look like a size of a gigabyte.
        batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
        is_header = (
            int64(data, position) >= 0
            and BATCH_V2_BYTES_MIN <= batch_bytes <= len(data) - position
            and data[position + V2_ATTRIBUTES_AT] == 0
            and int32(data, position + V2_LAST_OFFSET_DELTA_AT) >= 0
            and int32(data, position + V2_RECORDS_COUNT_AT) >= 0
        )
        if is_header and checksum(address, position, batch_bytes, np.int64(MAGIC_V2)) == stored_checksum(
            data, position, np.int64(MAGIC_V2)
        ):
            return position
    return np.int64(-1)


@njit(
    types.int64(
        types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64, types.int64, types.int64, types.int64
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def find_whole_batch(data, start, stop, left, least_offset, most_offset):
    """Find the first position from `start` to before `stop` with a batch of magic 0, 1 or 2 that has one of these
    offsets. The batch is whole and its checksum right, or it ends after these bytes but before the log's end. Return −1
    if there is none.

    Args:
        data: bytes of a log, read-only uint8.
        left: how many bytes the log has from the first byte of `data` on.
    """
    address = np.int64(data.ctypes.data)
    for position in range(start, min(stop, len(data) - BATCH_BYTES_MIN + 1)):
        magic = np.int64(np.int8(data[position + MAGIC_AT]))
        if magic < 0 or magic > MAGIC_V2:
            continue
        offset = int64(data, position)
        batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
        smallest = BATCH_V2_BYTES_MIN if magic >= MAGIC_V2 else BATCH_BYTES_MIN
        if not (least_offset <= offset <= most_offset and smallest <= batch_bytes <= left - position):
            continue
        if batch_bytes > len(data) - position:
            return np.int64(position)
        if checksum(address, position, batch_bytes, magic) == stored_checksum(data, position, magic):
            return np.int64(position)
    return np.int64(-1)
