"""The output of the compiled scan: index entries (`OffsetIndex.append` and `TimeIndex.maybeAppend` of Kafka 4.3.1) and
producer events. Events of markers are read from control batches.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import TOO_LONG, int16, int32, int64, read_varint, skip_bytes, skip_headers, varlong
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_V2_BYTES_MIN,
    NO_SEQUENCE,
    V2_ATTRIBUTES_AT,
    V2_BASE_SEQUENCE_AT,
    V2_BASE_TIMESTAMP_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_MAX_TIMESTAMP_AT,
    V2_PRODUCER_EPOCH_AT,
    V2_PRODUCER_ID_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.jit.compiler import njit
from kidxlib.recovery.scan.scan_state import OPEN_EVENT_SLOTS, EndReason, EventKind

_INT32_MAX: Final = 2**31 - 1

#: Returned if the entries were added, instead of an `EndReason` for which Kafka fails: those are larger.
ADDED: Final = 0

#: A producer's control batch larger than this is not read; Kafka's have 78 bytes.
CONTROL_BATCH_BYTES_MAX: Final = 64 * 1024


@njit
def write_producer_event(
    states, events, open_events, kind, coordinator_epoch, marker_timestamp, data, at, position, last_offset
):
    """Add a producer's batch as a new event, or extend the producer's open event by it."""
    state = states[0]
    producer_id = int64(data, at + V2_PRODUCER_ID_AT)
    slot = producer_id & (OPEN_EVENT_SLOTS - 1)
    number = open_events[slot] - 1
    extends = number >= 0 and events[number].producer_id == producer_id
    if kind == EventKind.EMPTY_CONTROL and extends:
        return  # the event would only name a producer, and this one is known
    if kind > EventKind.TRANSACTIONAL_DATA:
        open_events[slot] = 0
    if kind > EventKind.TRANSACTIONAL_DATA or not extends or events[number].kind != kind:
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


@njit
def write_index_entries(
    states, offset_entries, time_entries, max_offset_entries, max_time_entries, base_offset, position, last_offset
):
    """Add the index entries that are due at a batch.

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
    if not write_time_entry(states, time_entries, base_offset):
        return np.int64(EndReason.TIME_INDEX_OFFSET_DECREASING)
    state.last_index_position = position
    return np.int64(ADDED)


@njit
def write_time_entry(states, time_entries, base_offset):
    """`TimeIndex.maybeAppend` of the largest timestamp so far; False if its offset is below the last entry's."""
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


@njit
def control_batch_event(data, batch, batch_end):
    """The producer's event of a control batch, by its first record, as `ProducerAppendInfo.append` reads it.

    Returns:
        An `EventKind`, or a negated `EndReason`; the coordinator epoch, or an unknown control type; the timestamp.
    """
    invalid = np.int64(-EndReason.INVALID_CONTROL_RECORD), np.int64(-1), np.int64(-1)
    malformed = np.int64(-EndReason.MALFORMED_CONTROL_RECORD), np.int64(-1), np.int64(-1)
    count = int32(data, batch + V2_RECORDS_COUNT_AT)
    attributes = np.int64(data[batch + V2_ATTRIBUTES_AT + 1])
    if count == 0:
        return np.int64(EventKind.EMPTY_CONTROL), np.int64(-1), np.int64(-1)
    if attributes & ATTRIBUTE_CODEC:
        return np.int64(-EndReason.COMPRESSED_CONTROL_BATCH), np.int64(-1), np.int64(-1)
    if batch_end - batch > CONTROL_BATCH_BYTES_MAX:
        return np.int64(-EndReason.CONTROL_BATCH_TOO_LARGE), np.int64(-1), np.int64(-1)
    if count < 0:
        return invalid

    # DefaultRecord.readFrom
    size, start = read_varint(data, batch + BATCH_V2_BYTES_MIN, batch_end)
    if start == TOO_LONG:
        return malformed
    if start < 0 or size > batch_end - start or start >= batch_end:
        return invalid
    timestamp_delta, at = varlong(data, start + 1, batch_end)
    if at < 0:
        return invalid
    _, at = read_varint(data, at, batch_end)  # offset delta
    if at < 0:
        return invalid
    key_bytes, key_at, at = skip_bytes(data, at, batch_end)
    if at < 0:
        return invalid
    value_bytes, value_at, at = skip_bytes(data, at, batch_end)
    if at < 0:
        return invalid
    at = skip_headers(data, at, batch_end)
    if at < 0:
        return invalid
    if at - start != size or (count == 1 and at != batch_end):
        return invalid

    # EndTransactionMarker.deserialize
    if key_bytes < 0:
        return malformed
    if key_bytes < layouts.CONTROL_KEY_BYTES or int16(data, key_at) < 0:
        return invalid
    control_type = int16(data, key_at + 2)
    if control_type != layouts.CONTROL_TYPE_ABORT and control_type != layouts.CONTROL_TYPE_COMMIT:
        return np.int64(-EndReason.UNKNOWN_CONTROL_TYPE), np.int64(control_type), np.int64(-1)
    if value_bytes < 2:
        return malformed
    if int16(data, value_at) < 0:
        return invalid
    if value_bytes < layouts.MARKER_VALUE_BYTES:
        return malformed
    if attributes & ATTRIBUTE_LOG_APPEND_TIME:
        timestamp = int64(data, batch + V2_MAX_TIMESTAMP_AT)
    else:
        timestamp = int64(data, batch + V2_BASE_TIMESTAMP_AT) + timestamp_delta
    kind = EventKind.ABORT if control_type == layouts.CONTROL_TYPE_ABORT else EventKind.COMMIT
    return np.int64(kind), np.int64(int32(data, value_at + 2)), timestamp
