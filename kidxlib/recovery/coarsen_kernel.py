"""The compiled loop that makes sparser indexes from denser ones."""

from __future__ import annotations

import numpy as np
from numba import from_dtype, types

from kidxlib.format.bytes_kernel import BYTES, int32, int64
from kidxlib.format.layouts import (
    BATCH_BYTES_MIN,
    BATCH_V2_BYTES_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_TIMESTAMP,
    SIZE_AT,
    V1_TIMESTAMP_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_MAX_TIMESTAMP_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.recovery.scan.scan_state import OFFSET_ENTRY, TIME_ENTRY


@njit(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
        BYTES,
        types.int64,
        types.int64,
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
    ),
    **OPTIONS,
)
def coarsen(data, base_offset, interval_bytes, dense_offsets, dense_times, offset_entries, time_entries):
    """Make the indexes of a larger interval, as `scan` does, through those of a smaller one, in one compiled loop.

    Args:
        data: the whole log up to the end of its last valid batch, read-only uint8. Offsets increase from batch to
            batch.
        base_offset: the segment's base offset.
        interval_bytes: the larger interval.
        dense_offsets, dense_times: the indexes made with the smaller one.
        offset_entries, time_entries: the index entries found, with as much room as Kafka's files have, or as the log
            can give.

    Returns:
        How many entries both have; −1 for both where there is no room for another, or an index is not of this log.
    """
    failed = np.int64(-1), np.int64(-1)
    size = np.int64(len(data))
    offsets, times = np.int64(0), np.int64(0)
    indexed = np.int64(0)  # file position of the batch indexed last
    max_timestamp, offset_of_max = np.int64(NO_TIMESTAMP), np.int64(-1)
    dense, dense_time = 0, 0
    position = np.int64(0)  # all batches before it are in the largest timestamp
    while True:
        # The last dense entry within the interval: its batch and all before it are in the dense time index.
        while dense < len(dense_offsets) and dense_offsets[dense].position <= indexed + interval_bytes:
            dense += 1
        if dense > 0 and dense_offsets[dense - 1].position >= position:
            start = np.int64(dense_offsets[dense - 1].position)
            if start + BATCH_BYTES_MIN > size:
                return failed
            position = start + LOG_OVERHEAD + np.int64(int32(data, start + SIZE_AT))
            if position <= start:
                return failed
            within = dense_offsets[dense - 1].relative_offset
            while dense_time < len(dense_times) and dense_times[dense_time].relative_offset <= within:
                dense_time += 1
            if dense_time > 0:
                max_timestamp = dense_times[dense_time - 1].timestamp
                offset_of_max = base_offset + dense_times[dense_time - 1].relative_offset
        # From header to header, to the first batch past the interval.
        found = False
        while position < size and not found:
            if position + BATCH_BYTES_MIN > size:
                return failed
            batch_bytes = LOG_OVERHEAD + np.int64(int32(data, position + SIZE_AT))
            magic = np.int64(np.int8(data[position + MAGIC_AT]))
            if batch_bytes < BATCH_BYTES_MIN or position + batch_bytes > size:
                return failed
            last_offset = int64(data, position)
            timestamp = np.int64(NO_TIMESTAMP)
            if magic >= MAGIC_V2:
                if batch_bytes < BATCH_V2_BYTES_MIN:
                    return failed
                last_offset += np.int64(int32(data, position + V2_LAST_OFFSET_DELTA_AT))
                timestamp = int64(data, position + V2_MAX_TIMESTAMP_AT)
            elif magic != 0:
                timestamp = int64(data, position + V1_TIMESTAMP_AT)
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max = timestamp, last_offset
            if position - indexed > interval_bytes:
                found = True
                indexed = position
                if offsets == len(offset_entries) or times >= len(time_entries) - 1:
                    return failed
                offset_entries[offsets].relative_offset = np.int32(last_offset - base_offset)
                offset_entries[offsets].position = np.int32(position)
                offsets += 1
            position += batch_bytes
        if max_timestamp > (time_entries[times - 1].timestamp if times else NO_TIMESTAMP):
            if times == len(time_entries):
                return failed
            time_entries[times].timestamp = max_timestamp
            time_entries[times].relative_offset = np.int32(offset_of_max - base_offset)
            times += 1
        if not found:
            return offsets, times
