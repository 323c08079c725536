"""The compiled loops that fold the timestamps of all records, from headers or from uncompressed records."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.format.bytes_kernel import BYTES, LONGS, int32, int64
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_V2_BYTES_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_TIMESTAMP,
    SIZE_AT,
    V1_ATTRIBUTES_AT,
    V1_TIMESTAMP_AT,
    V2_ATTRIBUTES_AT,
    V2_BASE_TIMESTAMP_AT,
    V2_MAX_TIMESTAMP_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.records.read_kernel import read_offsets_and_timestamps
from kidxlib.recovery.scan.header_facts_kernel import HEADER_FACTS, HOUR, HOUR_MS, STRETCH, enter_hour

#: Why `fold_record_facts` returns: all batches are folded; it needs more bytes from the position on; or it cannot read
#: a batch's records.
DONE: Final = 0
NEEDS_BYTES: Final = 1
_NEEDS_RECORDS: Final = 2

_FACTS: Final = types.Array(from_dtype(HEADER_FACTS), 1, "C")
_STRETCHES: Final = types.Array(from_dtype(STRETCH), 1, "C")
_HOURS: Final = types.Array(from_dtype(HOUR), 1, "C")


@njit
def _fold(facts, stretches, hours, position, timestamp, records):
    """Fold records of a batch with the same timestamp."""
    stretch = position >> facts.stretch_shift
    if stretch != facts.stretch:
        facts.stretch = stretch
        stretches[stretch].position = position
    if records <= 0:
        return
    stretches[stretch].smallest_timestamp = min(stretches[stretch].smallest_timestamp, timestamp)
    stretches[stretch].has_timestamp = True
    in_hour = max(timestamp, np.int64(NO_TIMESTAMP))
    if np.uint64(in_hour - facts.hour) >= np.uint64(HOUR_MS):
        enter_hour(facts, hours, in_hour)
    hours[facts.hour_row].records += records
    hours[facts.hour_row].certain_records += records


@njit(types.void(_FACTS, _STRETCHES, _HOURS, types.int64, LONGS), **OPTIONS)
def fold_timestamps(header_facts, stretches, hours, position, timestamps):
    """Fold the timestamps of the records of a batch."""
    facts = header_facts[0]
    _fold(facts, stretches, hours, position, np.int64(0), np.int64(0))
    for timestamp in timestamps:
        _fold(facts, stretches, hours, position, timestamp, np.int64(1))


@njit(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
        BYTES, types.int64, types.int64, types.int64, _FACTS, _STRETCHES, _HOURS, LONGS, LONGS
    ),
    **OPTIONS,
)
def fold_record_facts(window, window_position, position, end, header_facts, stretches, hours, offsets, timestamps):
    """Fold the batches from a position on, up to the end of the window.

    Args:
        window: bytes of the log from `window_position` on, read-only uint8.
        end: where the log's valid batches end.
        offsets, timestamps: buffers for the records of a batch; a batch with more records is not read.

    Returns:
        The position of the next batch, and why it is not folded.
    """
    facts = header_facts[0]
    window_end = window_position + len(window)
    while position < end:
        if position < window_position or position + min(BATCH_V2_BYTES_MIN, end - position) > window_end:
            return position, np.int64(NEEDS_BYTES)
        at = position - window_position
        batch_bytes = LOG_OVERHEAD + np.int64(int32(window, at + SIZE_AT))
        magic = np.int64(np.int8(window[at + MAGIC_AT]))
        if magic >= MAGIC_V2:
            attributes = np.int64(window[at + V2_ATTRIBUTES_AT + 1])
            count = np.int64(int32(window, at + V2_RECORDS_COUNT_AT))
            max_timestamp = int64(window, at + V2_MAX_TIMESTAMP_AT)
            if (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0 or count == 0 or count == 1:
                _fold(facts, stretches, hours, position, max_timestamp, count)
            else:
                is_here = (attributes & ATTRIBUTE_CODEC) == 0 and position + batch_bytes <= window_end
                if not is_here or count < 0 or count > len(timestamps):
                    return position, np.int64(_NEEDS_RECORDS)
                found = read_offsets_and_timestamps(
                    window[at + BATCH_V2_BYTES_MIN : at + batch_bytes],
                    count,
                    np.int64(0),
                    int64(window, at + V2_BASE_TIMESTAMP_AT),
                    False,
                    max_timestamp,
                    offsets,
                    timestamps,
                )
                if found < count:
                    return position, np.int64(_NEEDS_RECORDS)
                _fold(facts, stretches, hours, position, np.int64(0), np.int64(0))
                for number in range(count):
                    _fold(facts, stretches, hours, position, timestamps[number], np.int64(1))
        elif (window[at + V1_ATTRIBUTES_AT] & ATTRIBUTE_CODEC) != 0:
            return position, np.int64(_NEEDS_RECORDS)
        else:
            timestamp = np.int64(NO_TIMESTAMP) if magic == 0 else int64(window, at + V1_TIMESTAMP_AT)
            _fold(facts, stretches, hours, position, timestamp, np.int64(1))
        position += batch_bytes
    return position, np.int64(DONE)
