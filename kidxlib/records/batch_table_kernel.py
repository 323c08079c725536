"""Compiled loops that make a row of each batch header, from a log in memory or while they read a file. Of large batches
they read only the header.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
from llvmlite import binding
from numba import from_dtype, types

from kidxlib.format.bytes_kernel import BYTES, int16, int32, int64
from kidxlib.format.checksum_kernel import checksum, stored_checksum
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_V2_BYTES_MIN,
    MAGIC_AT,
    MAGIC_V2,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    V1_ATTRIBUTES_AT,
    V2_ATTRIBUTES_AT,
    V2_BASE_SEQUENCE_AT,
    V2_BASE_TIMESTAMP_AT,
    V2_PRODUCER_EPOCH_AT,
    V2_PRODUCER_ID_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.records.read_kernel import (
    ENDS,
    LEAVES_WINDOW,
    UNDETERMINED,
    read_batch_size,
    read_last_offset,
    read_max_timestamp,
)

#: A batch, with the fields of `records.batch_headers.BatchHeader`.
BATCH: Final = np.dtype(
    [
        ("position", "i8"),
        ("size", "i8"),
        ("offset_field", "i8"),
        ("last_offset", "i8"),
        ("max_timestamp", "i8"),
        ("base_timestamp", "i8"),
        ("producer_id", "i8"),
        ("crc", "u4"),
        ("partition_leader_epoch", "i4"),
        ("base_sequence", "i4"),
        ("records_count", "i4"),  # 1 for an uncompressed message, `UNKNOWN_COUNT` for a wrapper
        ("producer_epoch", "i2"),
        ("attributes", "i2"),
        ("magic", "i1"),
        ("crc_is_right", "i1"),  # 1 also if it was not checked
    ]
)
UNKNOWN_COUNT: Final = -1

#: The state of a walk over headers: its position, the last offset of the batch before, the number of rows, why it has
#: stopped, and the largest timestamp of the batch before. It does not begin with the fields of another walk: numba
#: would take it for that one, and warn.
TABLE_WALK: Final = np.dtype(
    [
        ("position", "i8"),
        ("bytes_read", "i8"),
        ("last_offset", "i8"),
        ("rows", "i8"),
        ("why", "i8"),
        ("max_timestamp", "i8"),
    ]
)
#: In `why`: a batch is not in the window; a header is malformed; no whole batch follows; there is no room for another
#: row; later batches are not wanted.
_OUTSIDE: Final = LEAVES_WINDOW
MALFORMED: Final = UNDETERMINED
ENDED: Final = ENDS
NO_ROOM: Final = 1
PAST: Final = 2

_WRAPPER_COUNT: Final = UNKNOWN_COUNT
_MOST: Final = 2**63 - 1


@njit(
    types.void(
        BYTES,
        types.int64,
        types.int64,
        types.boolean,
        types.boolean,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.Array(from_dtype(TABLE_WALK), 1, "C"),
        types.Array(from_dtype(BATCH), 1, "C"),
    ),
    **OPTIONS,
)
def fill_batch_table(
    window, window_position, log_bytes, whole, checks, first_offset, last_offset, first_ms, last_ms, walks, rows
):
    """Make rows of the batches in a window from the walk's position on, in one compiled loop.

    Batches are skipped if they have nothing wanted by the offsets in their headers, and in magic 2 by timestamps. A
    batch with a wrong checksum is not skipped, as its header may be wrong.

    Args:
        window: bytes of the log from `window_position` on.
        whole: whole batches have to be in the window, not only their headers.
        checks: compute checksums, which needs whole batches.
        first_offset, last_offset, first_ms, last_ms: see `WantedRecords`.
        walks: one walk, which is advanced.
        rows: filled from the walk's `rows` on.
    """
    walk = walks[0]
    address = np.int64(window.ctypes.data)
    while True:
        size = read_batch_size(window, window_position, log_bytes, walk)
        if size < 0:
            walk.why = size
            return
        at = walk.position - window_position
        if whole and at + size > len(window):
            walk.why = _OUTSIDE
            return
        magic = np.int64(np.int8(window[at + MAGIC_AT]))
        offset_field = int64(window, at)
        last, epoch, is_wrapper = read_last_offset(window, at)
        if last_offset < _MOST and offset_field > last_offset and last > last_offset and not is_wrapper:
            walk.why = PAST
            return
        crc = stored_checksum(window, at, magic)
        crc_is_right = not checks or checksum(address, at, size, magic) == crc
        max_timestamp = read_max_timestamp(window, at)
        if magic >= MAGIC_V2:
            attributes = np.int64(int16(window, at + V2_ATTRIBUTES_AT))
            has_append_time = (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
            is_passed = last < first_offset or max_timestamp < first_ms or (has_append_time and max_timestamp > last_ms)
        else:
            attributes = np.int64(np.int8(window[at + V1_ATTRIBUTES_AT]))
            is_passed = last < first_offset
        if is_passed and crc_is_right:
            walk.position += size
            walk.last_offset, walk.max_timestamp = last, max_timestamp
            continue
        if walk.rows == len(rows):
            walk.why = NO_ROOM
            return
        row = rows[walk.rows]
        row.position, row.size, row.magic, row.attributes = walk.position, size, magic, attributes
        row.offset_field, row.last_offset, row.max_timestamp = offset_field, last, max_timestamp
        row.partition_leader_epoch = epoch
        row.crc, row.crc_is_right = crc, crc_is_right
        if magic >= MAGIC_V2:
            row.base_timestamp = int64(window, at + V2_BASE_TIMESTAMP_AT)
            row.producer_id = int64(window, at + V2_PRODUCER_ID_AT)
            row.producer_epoch = int16(window, at + V2_PRODUCER_EPOCH_AT)
            row.base_sequence = int32(window, at + V2_BASE_SEQUENCE_AT)
            row.records_count = int32(window, at + V2_RECORDS_COUNT_AT)
        else:
            row.base_timestamp = NO_TIMESTAMP
            row.producer_id, row.producer_epoch, row.base_sequence = -1, -1, NO_SEQUENCE
            row.records_count = 1 if attributes & ATTRIBUTE_CODEC == 0 else _WRAPPER_COUNT
        walk.rows += 1
        walk.position += size
        walk.last_offset, walk.max_timestamp = last, max_timestamp
        if last_offset < _MOST and last >= last_offset:
            walk.why = PAST  # this batch and all later ones begin above it
            return


# A compiled function from numba's cache calls this symbol by name, so it must be known before any is loaded.
binding.add_symbol("kidx_pread", ctypes.cast(ctypes.CDLL(None).pread, ctypes.c_void_p).value)
_pread = types.ExternalFunction("kidx_pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))

#: Reading a header takes about as long as copying this number of bytes. Smaller batches are read many at a time.
_LARGE_BYTES: Final = 8 * 1024
_HEADER_BYTES: Final = BATCH_V2_BYTES_MIN


@njit(
    types.void(
        types.int32,
        types.Array(types.uint8, 1, "C"),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.Array(from_dtype(TABLE_WALK), 1, "C"),
        types.Array(from_dtype(BATCH), 1, "C"),
    ),
    **OPTIONS,
)
def fill_batch_table_of_file(descriptor, room, log_bytes, first_offset, last_offset, first_ms, last_ms, walks, rows):
    """Read a file, and make rows of its batches from the walk's position on, from headers only (`fill_batch_table`).

    The loop ends with `_OUTSIDE` if a header cannot be read.

    Args:
        descriptor: of the file.
        room: the buffer for reading, at least a header's size.
        log_bytes: the size to read up to; the file may have more.
    """
    walk = walks[0]
    start, filled = walk.position, np.int64(0)
    while True:
        headers_bytes = walk.bytes_read
        fill_batch_table(
            room[:filled], start, log_bytes, False, False, first_offset, last_offset, first_ms, last_ms, walks, rows
        )
        if walk.why != _OUTSIDE:
            return
        headers = (walk.bytes_read - headers_bytes) // _HEADER_BYTES
        is_dense = walk.position - start < headers * _LARGE_BYTES
        start, left = walk.position, log_bytes - walk.position
        wanted = min(left, np.int64(len(room)) if is_dense else np.int64(_HEADER_BYTES))
        filled = np.int64(_pread(np.int32(descriptor), np.uintp(room.ctypes.data), np.uintp(wanted), start))
        if filled < min(left, _HEADER_BYTES):
            return
