"""How a compiled loop reads the offsets and timestamps of all records of a batch."""

from __future__ import annotations

import numpy as np
from numba import types

from kidxlib.format.varint import skip_bytes, skip_headers, varint, varlong
from kidxlib.jit.compiler import njit
from kidxlib.records.header_kernel import BYTES, LONGS, OPTIONS, wrapping_sum


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
        size, start = varint(content, at, end)
        if start < 0 or size < 0 or size > end - start:
            return number
        at = start + size
        if number == count - 1 and at != end:
            return number
        if size == 0:
            return number
        timestamp_delta, field = varlong(
            content, start + 1, at
        )  # the first byte is attributes, none of which is in use
        if field < 0:
            return number
        offset_delta, field = varint(content, field, at)
        for _ in range(2):  # key and value
            if field >= 0:
                _, _, field = skip_bytes(content, field, at)
        if field < 0 or skip_headers(content, field, at) != at:
            return number
        offsets[number] = wrapping_sum(base_offset, offset_delta)
        timestamps[number] = max_timestamp if append_time else wrapping_sum(base_timestamp, timestamp_delta)
    return count
