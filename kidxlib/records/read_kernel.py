"""Compiled functions that read the header of a batch, and records of magic 2 (`DefaultRecord.readFrom`): all of a
record, or the offsets and timestamps of a whole batch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.format.bytes_kernel import (
    BYTES,
    LONGS,
    UNDERFLOW,
    int32,
    int64,
    read_varint,
    skip_headers,
    varlong,
    wrapping_sum,
)
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    BATCH_BYTES_MIN,
    BATCH_V2_BYTES_MIN,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    SIZE_AT,
    V1_ATTRIBUTES_AT,
    V1_TIMESTAMP_AT,
    V2_EPOCH_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_MAX_TIMESTAMP_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit

ENDS: Final = -1
LEAVES_WINDOW: Final = -2
UNDETERMINED: Final = -3


@njit
def read_batch_size(window, window_position, log_bytes, walk):
    """The size of the batch at a walk's position (`batch_headers.batches`), or why it is not known."""
    position = walk.position
    if position >= log_bytes - HEADER_SIZE_UP_TO_MAGIC:
        return np.int64(ENDS)
    header_bytes = min(BATCH_V2_BYTES_MIN, log_bytes - position)
    at = position - window_position
    if position < 0:
        return np.int64(UNDETERMINED)
    if at < 0 or at + header_bytes > len(window):
        return np.int64(LEAVES_WINDOW)
    walk.bytes_read += header_bytes
    size = np.int64(int32(window, at + SIZE_AT)) + LOG_OVERHEAD
    if size < BATCH_BYTES_MIN:
        return np.int64(UNDETERMINED)
    if size > log_bytes - position:
        return np.int64(ENDS)
    magic = np.int8(window[at + MAGIC_AT])
    if magic < 0 or (magic >= MAGIC_V2 and size < BATCH_V2_BYTES_MIN):
        return np.int64(UNDETERMINED)
    return size


@njit(forceinline=True)
def read_last_offset(window, at):
    """The last offset and the leader epoch of a batch, and whether it is a wrapper of magic 0 or 1."""
    offset = int64(window, at)
    if np.int8(window[at + MAGIC_AT]) >= MAGIC_V2:
        delta = np.int64(int32(window, at + V2_LAST_OFFSET_DELTA_AT))
        return wrapping_sum(offset, delta), np.int64(int32(window, at + V2_EPOCH_AT)), False
    return offset, np.int64(NO_LEADER_EPOCH), window[at + V1_ATTRIBUTES_AT] & ATTRIBUTE_CODEC != 0


@njit(forceinline=True)
def read_max_timestamp(window, at):
    """The largest timestamp in a batch's header; −1 for magic 0."""
    magic = np.int8(window[at + MAGIC_AT])
    if magic >= MAGIC_V2:
        return int64(window, at + V2_MAX_TIMESTAMP_AT)
    return int64(window, at + V1_TIMESTAMP_AT) if magic == 1 else np.int64(NO_TIMESTAMP)


@njit(forceinline=True)
def _short_varint(data, at, end):
    """`varint`, faster for one or two bytes."""
    if at + 1 < end:
        first = np.int64(data[np.uintp(at)])
        if first < 128:
            return (first >> 1) ^ -(first & 1), at + 1
        second = np.int64(data[np.uintp(at + 1)])
        if second < 128:
            value = (first & 127) | (second << 7)
            return (value >> 1) ^ -(value & 1), at + 2
    return read_varint(data, at, end)


@njit(forceinline=True)
def read_record(content, at, end):
    """Decode the record at a position in memory, for compiled loops. It starts with its size.

    Args:
        content: records in sequence, decompressed; they end before `end`.

    Returns:
        The position after the record, below 0 if it is malformed; its timestamp and offset, relative to the batch's;
        position and size of the key, and of the value, with sizes below 0 for null; the position of its headers, which
        begin with their number.
    """
    malformed = np.int64(UNDERFLOW)
    none = np.int64(0)
    size, at = _short_varint(content, at, end)
    if at < 0 or size <= 0 or size > end - at:
        return malformed, none, none, none, none, none, none, none
    end = at + size
    # The first byte is attributes, none of which is in use.
    timestamp_delta, at = varlong(content, at + 1, end)
    if at < 0:
        return malformed, none, none, none, none, none, none, none
    offset_delta, at = _short_varint(content, at, end)
    if at < 0:
        return malformed, none, none, none, none, none, none, none
    key_bytes, key_at = _short_varint(content, at, end)
    if key_at < 0 or key_bytes > end - key_at:
        return malformed, none, none, none, none, none, none, none
    at = key_at + max(key_bytes, 0)
    value_bytes, value_at = _short_varint(content, at, end)
    if value_at < 0 or value_bytes > end - value_at:
        return malformed, none, none, none, none, none, none, none
    at = value_at + max(value_bytes, 0)
    if at + 1 == end and content[np.uintp(at)] == 0:  # no headers, as most have
        return end, timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes, at
    if skip_headers(content, at, end) != end:
        return malformed, none, none, none, none, none, none, none
    return end, timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes, at


@njit(
    types.int64(BYTES, types.int64, types.int64, types.int64, types.boolean, types.int64, LONGS, LONGS),
    **OPTIONS,
)
def read_offsets_and_timestamps(
    content, count, base_offset, base_timestamp, append_time, max_timestamp, offsets, timestamps
):
    """Read the offsets and timestamps of all records of a v2 batch, compiled (`DefaultRecordBatch.RecordIterator`).

    Args:
        content: the decompressed records.
        append_time: all records have the batch's largest timestamp, from the broker.
        offsets, timestamps: filled in.

    Returns:
        How many records are before the first malformed one; `count` if there is none.
    """
    at, end = np.int64(0), np.int64(len(content))
    for number in range(count):
        at, timestamp_delta, offset_delta, _, _, _, _, _ = read_record(content, at, end)
        if at < 0 or (number == count - 1 and at != end):
            return number
        offsets[number] = wrapping_sum(base_offset, offset_delta)
        timestamps[number] = max_timestamp if append_time else wrapping_sum(base_timestamp, timestamp_delta)
    return count
