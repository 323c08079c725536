"""`apply_events`: `LogSegment.updateProducerState` over the events of a segment, and the states of producers."""

from __future__ import annotations

import enum
from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.format import layouts
from kidxlib.format.layouts import NO_SEQUENCE
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.recovery.scan.scan_state import PRODUCER_EVENT, EventKind


class ProducerFailure(enum.IntEnum):
    """Why Kafka fails on a producer's batch. `kidxlib.recovery.partition_fold` has the meaning of each."""

    NONE = 0
    NOT_TRANSACTIONAL = 1
    ABORT_NOT_INCREASING = 2
    TRANSACTION_NOT_STARTED = 3


#: The state of a producer: Kafka's `ProducerStateEntry`, with the order and names of a snapshot.
PRODUCER_STATE: Final = np.dtype(
    [(name, layouts.SNAPSHOT_ENTRY[name].newbyteorder("=")) for name in layouts.SNAPSHOT_ENTRY.names or ()]
    + [("in_transaction", "i1"), ("known", "i1")]
)

#: `ProducerStateManager.ongoingTxns`: the first offset, which is the key, and the producer.
ONGOING_TRANSACTION: Final = np.dtype([("first_offset", "i8"), ("producer_id", "i8")])

#: An entry of a `.txnindex` in this machine's byte order.
ABORTED_TRANSACTION: Final = layouts.ABORTED_TRANSACTION.newbyteorder("=")


@njit(
    types.UniTuple(types.int64, 4)(  # type: ignore[no-untyped-call]
        types.Array(from_dtype(PRODUCER_EVENT), 1, "C", readonly=True),
        types.Array(types.int64, 1, "C"),
        types.Array(from_dtype(PRODUCER_STATE), 1, "C"),
        types.Array(from_dtype(ONGOING_TRANSACTION), 1, "C"),
        types.int64,
        types.Array(from_dtype(ABORTED_TRANSACTION), 1, "C"),
    ),
    **OPTIONS,
)
def apply_events(events, producers, states, ongoing, ongoing_count, aborted):
    """Apply the events of a segment to producer states in one compiled loop: `LogSegment.updateProducerState`.

    Args:
        events: in the order of their positions.
        producers: for each event, the position of its producer in `states`.
        states: `known` is 0 for producers that had no state before.
        ongoing: open transactions in the first `ongoing_count` entries, with room for one more for each event that may
            open one.
        aborted: room for one entry per abort.

    Returns:
        How many entries `aborted` has now; how many `ongoing` has; the first event on which Kafka fails, or the number
        of events; the `ProducerFailure`.
    """
    aborted_count = np.int64(0)
    for number in range(len(events)):
        event, state = events[number], states[producers[number]]
        if event.kind <= EventKind.TRANSACTIONAL_DATA:
            # ProducerAppendInfo.appendDataBatch
            if state.in_transaction and event.kind == EventKind.DATA:
                return aborted_count, ongoing_count, number, np.int64(ProducerFailure.NOT_TRANSACTIONAL)
            state.producer_epoch = np.int16(event.producer_epoch)
            state.last_sequence = event.last_sequence
            state.last_offset = event.last_offset
            state.offset_delta = event.offset_delta
            state.timestamp = event.timestamp
            if event.kind == EventKind.TRANSACTIONAL_DATA and not state.in_transaction:
                state.in_transaction = 1
                state.current_transaction_first_offset = event.first_offset
                place = 0
                while place < ongoing_count and ongoing[place].first_offset != event.first_offset:
                    place += 1
                ongoing[place].first_offset = event.first_offset
                ongoing[place].producer_id = event.producer_id
                ongoing_count = max(ongoing_count, place + 1)
        elif event.kind != EventKind.EMPTY_CONTROL:
            # ProducerAppendInfo.appendEndTxnMarker
            if state.producer_epoch != event.producer_epoch:
                state.producer_epoch = np.int16(event.producer_epoch)
                state.last_sequence = np.int32(NO_SEQUENCE)
                state.last_offset = -1
                state.offset_delta = np.int32(0)
            state.coordinator_epoch = event.coordinator_epoch
            state.timestamp = event.timestamp
            if state.in_transaction:
                first_offset = state.current_transaction_first_offset
                state.in_transaction = 0
                state.current_transaction_first_offset = -1
                if event.kind == EventKind.ABORT:
                    # TransactionIndex.append
                    if aborted_count > 0 and event.first_offset <= aborted[aborted_count - 1].last_offset:
                        return aborted_count, ongoing_count, number, np.int64(ProducerFailure.ABORT_NOT_INCREASING)
                    # ProducerStateManager.lastStableOffset
                    last_stable_offset, found = event.first_offset + 1, False
                    for place in range(ongoing_count):
                        other = ongoing[place]
                        if other.producer_id != event.producer_id and (
                            not found or other.first_offset < last_stable_offset
                        ):
                            last_stable_offset, found = other.first_offset, True
                    entry = aborted[aborted_count]
                    entry.version = np.int16(0)
                    entry.producer_id = event.producer_id
                    entry.first_offset = first_offset
                    entry.last_offset = event.first_offset
                    entry.last_stable_offset = last_stable_offset
                    aborted_count += 1
                # ProducerStateManager.completeTxn
                place = 0
                while place < ongoing_count and ongoing[place].first_offset != first_offset:
                    place += 1
                if place == ongoing_count:
                    return aborted_count, ongoing_count, number, np.int64(ProducerFailure.TRANSACTION_NOT_STARTED)
                ongoing_count -= 1
                ongoing[place] = ongoing[ongoing_count]
        state.known = 1
    return aborted_count, ongoing_count, len(events), np.int64(ProducerFailure.NONE)
