"""`scan_logs`: one log after the other, each through the bytes of it that are at hand. What a scan finds goes into
arrays that all logs share, row behind row, so that a segment of a few batches costs no call and no array of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, from_dtype, types  # type: ignore[attr-defined]  # it does not name all that it exports

from kidxlib.format.bytes_kernel import as_pointer
from kidxlib.jit.compiler import njit
from kidxlib.recovery.log_facts.header_facts_kernel import (
    HEADER_FACTS,
    HOUR,
    HOUR_RECORDS,
    OFFSET_DIGEST,
    SMALLEST_TIMESTAMP,
    STRETCH,
    gather_digests,
    gather_hours,
    gather_timestamps,
)
from kidxlib.recovery.scan.scan_kernel import scan
from kidxlib.recovery.scan.scan_state import (
    LEADER_EPOCH,
    OFFSET_ENTRY,
    PRODUCER_EVENT,
    SCAN_STATE,
    TIME_ENTRY,
    EndReason,
)

#: A log to scan.
LOG: Final = np.dtype(
    [
        ("base_offset", "i8"),
        ("size", "i8"),  # bytes of the whole file
        ("interval_bytes", "i8"),  # `index.interval.bytes`
        ("max_offset_entries", "i8"),  # that Kafka's index files have room for
        ("max_time_entries", "i8"),
        ("trusted_to", "i8"),  # checksums of batches that start before this file position are not computed
        # The bytes at hand: their address, how many they are, and the file position of the first.
        ("address", "i8"),
        ("chunk_bytes", "i8"),
        ("chunk_position", "i8"),
    ]
)
#: For each log where its rows begin in the arrays that logs share, and after the last log where they end.
BOUNDS: Final = np.dtype(
    [
        (name, "i8")
        for name in ("offset_index", "time_index", "producer_events", "leader_epochs", "digests", "timestamps", "hours")
    ]
)


@njit(
    types.int64(
        types.int64,
        types.Array(from_dtype(LOG), 1, "C"),
        types.Array(from_dtype(SCAN_STATE), 1, "C"),
        types.Array(from_dtype(HEADER_FACTS), 1, "C"),
        types.Array(from_dtype(BOUNDS), 1, "C"),
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
        types.Array(from_dtype(PRODUCER_EVENT), 1, "C"),
        types.Array(from_dtype(LEADER_EPOCH), 1, "C"),
        types.Array(from_dtype(OFFSET_DIGEST), 1, "C"),
        types.Array(from_dtype(SMALLEST_TIMESTAMP), 1, "C"),
        types.Array(from_dtype(HOUR_RECORDS), 1, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.uint64, 1, "C"),
        types.Array(from_dtype(STRETCH), 1, "C"),
        types.Array(from_dtype(HOUR), 1, "C"),
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def scan_logs(
    first,
    logs,
    states,
    header_facts,
    bounds,
    offset_entries,
    time_entries,
    producer_events,
    leader_epochs,
    digests,
    timestamps,
    hours,
    open_events,
    digests_of_log,
    stretches_of_log,
    hours_of_log,
):
    """Scan logs, or go on with the scan of the first of them.

    Args:
        first: the number of the log to begin or to go on with.
        logs: of dtype `LOG`.
        states, header_facts: those of each log, as `scan` takes and leaves them.
        bounds: of dtype `BOUNDS`, one more than logs; written up to the log that is returned.
        offset_entries, time_entries, digests, timestamps, hours: the rows of all logs, with room for all there can be.
        producer_events, leader_epochs: the rows of all logs; `EndReason.NEEDS_ROOM` asks for more room.
        open_events, digests_of_log, stretches_of_log, hours_of_log: what the scan of one log works with, as for a log
            of which nothing was read; it is left so.

    Returns:
        The number of the log whose state says what its scan needs; the number of logs, if all are scanned.
    """
    for number in range(first, len(logs)):
        log, state, begin = logs[number], states[number], bounds[number]
        if state.end <= EndReason.NEEDS_ROOM:
            scan(
                carray(as_pointer(log.address), (log.chunk_bytes,), np.uint8),  # type: ignore[call-arg]
                log.chunk_position,
                log.size,
                log.base_offset,
                log.interval_bytes,
                log.max_offset_entries,
                log.max_time_entries,
                log.trusted_to,
                states[number : number + 1],
                offset_entries[begin.offset_index :],
                time_entries[begin.time_index :],
                producer_events[begin.producer_events :],
                open_events,
                leader_epochs[begin.leader_epochs :],
                header_facts[number : number + 1],
                digests_of_log,
                stretches_of_log,
                hours_of_log,
            )
        if state.end <= EndReason.NEEDS_ROOM:
            return number
        end, facts = bounds[number + 1], header_facts[number]
        end.offset_index = begin.offset_index + state.offset_entries
        end.time_index = begin.time_index + state.time_entries
        end.producer_events = begin.producer_events + state.producer_events
        end.leader_epochs = begin.leader_epochs + state.leader_epochs
        end.digests = gather_digests(facts, digests_of_log, digests, begin.digests)
        end.timestamps = gather_timestamps(stretches_of_log, timestamps, begin.timestamps)
        end.hours = gather_hours(hours_of_log, hours, begin.hours)
        if state.producer_events:
            for slot in range(len(open_events)):
                open_events[slot] = 0
    return len(logs)
