"""How a scan notes down what producers do: a batch at a time, ordinary batches of one producer as one event."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format.batch_header import (
    NO_SEQUENCE,
    V2_BASE_SEQUENCE_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_MAX_TIMESTAMP_AT,
    V2_PRODUCER_EPOCH_AT,
    V2_PRODUCER_ID_AT,
)
from kidxlib.format.varint import int16, int32, int64
from kidxlib.jit.compiler import njit
from kidxlib.recovery.scan.scan_events import OPEN_EVENT_SLOTS, EventKind

_INT32_MAX: Final = 2**31 - 1


@njit
def note_producer(
    states, events, open_events, kind, coordinator_epoch, marker_timestamp, data, at, position, last_offset
):
    """Add a producer's batch to the events, or to one of them."""
    state = states[0]
    producer_id = int64(data, at + V2_PRODUCER_ID_AT)
    slot = producer_id & (OPEN_EVENT_SLOTS - 1)
    number = open_events[slot] - 1
    collapses = number >= 0 and events[number].producer_id == producer_id
    if kind == EventKind.EMPTY_CONTROL and collapses:
        return  # it says that there is such a producer, which is known
    if kind > EventKind.TRANSACTIONAL_DATA:
        open_events[slot] = 0
    if kind > EventKind.TRANSACTIONAL_DATA or not collapses or events[number].kind != kind:
        number = state.producer_events
        state.producer_events = number + 1
        event = events[number]
        event.position = position
        event.producer_id = producer_id
        event.kind = kind
        event.first_offset = int64(data, at)
        if kind <= EventKind.TRANSACTIONAL_DATA:
            open_events[slot] = number + 1
    event = events[number]
    event.producer_epoch = np.int32(int16(data, at + V2_PRODUCER_EPOCH_AT))
    event.last_offset = last_offset
    event.coordinator_epoch = np.int32(coordinator_epoch)
    event.timestamp = marker_timestamp
    event.offset_delta = np.int32(-1)
    event.last_sequence = np.int32(NO_SEQUENCE)
    if kind <= EventKind.TRANSACTIONAL_DATA:
        delta = int32(data, at + V2_LAST_OFFSET_DELTA_AT)
        event.offset_delta = delta
        event.timestamp = int64(data, at + V2_MAX_TIMESTAMP_AT)
        sequence = int32(data, at + V2_BASE_SEQUENCE_AT)
        if sequence != NO_SEQUENCE:  # DefaultRecordBatch.incrementSequence, in Java's 32 bits
            sequence = np.int64(sequence)
            if sequence > np.int64(np.int32(_INT32_MAX - np.int64(delta))):
                sequence = np.int64(delta) - (_INT32_MAX - sequence) - 1
            else:
                sequence += delta
            event.last_sequence = np.int32(sequence)
