"""How the scan adds entries to a segment's indexes: `OffsetIndex.append` and `TimeIndex.maybeAppend` of Kafka 4.3.1."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.jit.compiler import njit
from kidxlib.recovery.scan.scan_state import EndReason

#: The entries were added; every reason why they were not is larger.
ADDED: Final = 0


@njit
def append_entries(
    states, offset_entries, time_entries, max_offset_entries, max_time_entries, base_offset, position, last_offset
):
    """Add the entries of a batch at a position, which is due.

    Returns:
        `ADDED`, or the `EndReason` for which Kafka fails.
    """
    state = states[0]
    # OffsetIndex.append
    count = state.offset_entries
    if count >= max_offset_entries:
        state.found, state.expected = count, max_offset_entries
        return np.int64(EndReason.OFFSET_INDEX_FULL)
    if count > 0 and last_offset <= state.last_indexed_offset:
        state.found, state.expected = last_offset, state.last_indexed_offset
        return np.int64(EndReason.OFFSET_NOT_INCREASING)
    offset_entries[count].relative_offset = np.int32(last_offset - base_offset)
    offset_entries[count].position = np.int32(position)
    state.offset_entries = count + 1
    state.last_indexed_offset = last_offset
    # TimeIndex.maybeAppend: the last slot is kept for the entry at the end
    if state.time_entries >= max_time_entries - 1:
        state.found, state.expected = state.time_entries, max_time_entries
        return np.int64(EndReason.TIME_INDEX_FULL)
    if not append_time(states, time_entries, base_offset):
        return np.int64(EndReason.TIME_INDEX_OFFSET_DECREASING)
    state.last_index_position = position
    return np.int64(ADDED)


@njit
def append_time(states, time_entries, base_offset):
    """`TimeIndex.maybeAppend` of the largest timestamp so far; False where its offset is below the last entry's."""
    state = states[0]
    count = state.time_entries
    if count > 0 and state.offset_of_max_timestamp < state.last_time_entry_offset:
        state.found, state.expected = state.offset_of_max_timestamp, state.last_time_entry_offset
        return False
    if state.max_timestamp > state.last_time_entry_timestamp:
        time_entries[count].timestamp = state.max_timestamp
        time_entries[count].relative_offset = np.int32(state.offset_of_max_timestamp - base_offset)
        state.time_entries = count + 1
        state.last_time_entry_timestamp = state.max_timestamp
        state.last_time_entry_offset = state.offset_of_max_timestamp
    return True
