"""How a compiled loop reads the offsets and timestamps of all records of a batch."""

from __future__ import annotations

import numpy as np
from numba import types

from kidxlib.jit.compiler import njit
from kidxlib.records.header_kernel import BYTES, LONGS, OPTIONS, wrapping_sum
from kidxlib.records.record_kernel import read_record


@njit(
    types.int64(BYTES, types.int64, types.int64, types.int64, types.boolean, types.int64, LONGS, LONGS),
    **OPTIONS,
)
def read_records(content, count, base_offset, base_timestamp, append_time, max_timestamp, offsets, timestamps):
    """Offsets and timestamps of the records of a v2 batch (`DefaultRecordBatch.RecordIterator`).

    Args:
        content: the records, decompressed.
        append_time: they all have the batch's largest timestamp, which a broker gave them.
        offsets, timestamps: where they are put.

    Returns:
        How many stand before a malformed one: `count` where none is.
    """
    at, end = np.int64(0), np.int64(len(content))
    for number in range(count):
        at, timestamp_delta, offset_delta, _, _, _, _, _ = read_record(content, at, end)
        if at < 0 or (number == count - 1 and at != end):
            return number
        offsets[number] = wrapping_sum(base_offset, offset_delta)
        timestamps[number] = max_timestamp if append_time else wrapping_sum(base_timestamp, timestamp_delta)
    return count
