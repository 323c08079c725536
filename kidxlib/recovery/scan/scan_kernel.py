"""The compiled scan of logs: `scan` is `LogSegment.recover` (Kafka 4.3.1) as one loop over the bytes of a segment, and
`scan_logs_in_turn` takes one log after the other. What a scan finds goes into arrays that all logs share, row behind
row, so that a segment of a few batches costs no call and no array of its own.

`scan` walks the batch headers, checks the CRC, applies the interval rule, and folds the facts that the catalog keeps.
Nearly all batches are taken many at once (`ordinary_kernel`). This module takes each of the others, in the order of
Kafka's checks. The loop sees one chunk of the file at a time; its state between chunks is one `SCAN_STATE` record.
`tests.model.recover` does the same in plain Python.

Producers and leader epochs depend on earlier segments, so `scan` only records them: as `PRODUCER_EVENT`s, with ordinary
batches of one producer collapsed into one, and as `LEADER_EPOCH`s.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, from_dtype, types  # type: ignore[attr-defined]  # it does not name all that it exports

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import as_pointer, int32, int64
from kidxlib.format.checksum_kernel import checksum, stored_checksum
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_V2_BYTES_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_TIMESTAMP,
    SIZE_AT,
    V1_ATTRIBUTES_AT,
    V1_TIMESTAMP_AT,
    V2_ATTRIBUTES_AT,
    V2_EPOCH_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_MAX_TIMESTAMP_AT,
    V2_PRODUCER_ID_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.recovery.check_kernel import with_batch
from kidxlib.recovery.scan.header_facts_kernel import (
    HEADER_FACTS,
    HOUR,
    HOUR_MS,
    HOUR_RECORDS,
    OFFSET_DIGEST,
    SMALLEST_TIMESTAMP,
    STRETCH,
    TIMESTAMP_MAX,
    add_to_cell,
    digest_of,
    enter_cell,
    gather_digests,
    gather_hours,
    gather_timestamps,
)
from kidxlib.recovery.scan.ordinary_kernel import BATCHES_AHEAD, fold_ordinary, walk_ordinary
from kidxlib.recovery.scan.scan_state import (
    LEADER_EPOCH,
    OFFSET_ENTRY,
    PRODUCER_EVENT,
    SCAN_STATE,
    TIME_ENTRY,
    EndReason,
    EventKind,
)
from kidxlib.recovery.scan.written_kernel import (
    ADDED,
    CONTROL_BATCH_BYTES_MAX,
    control_batch_event,
    write_index_entries,
    write_producer_event,
    write_time_entry,
)

_HEADER_SIZE_UP_TO_MAGIC: Final = layouts.HEADER_SIZE_UP_TO_MAGIC
_ENTRY_SIZE_MIN: Final = layouts.ENTRY_SIZE_MIN
_RELATIVE_OFFSET_MAX: Final = layouts.RELATIVE_OFFSET_MAX

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


@njit
def scan(
    chunk,
    chunk_position,
    file_size,
    base_offset,
    interval_bytes,
    max_offset_entries,
    max_time_entries,
    trusted_to,
    states,
    offset_entries,
    time_entries,
    producer_events,
    open_events,
    leader_epochs,
    header_facts,
    digests,
    stretches,
    hours,
):
    """Continue a scan through one chunk of a segment: the inner loop of `LogSegment.recover`.

    Args:
        chunk: bytes of the file from `chunk_position` on, read-only uint8.
        chunk_position: file position of the chunk's first byte; at most `state.position`.
        file_size: bytes of the whole file.
        base_offset: the segment's base offset.
        interval_bytes: `index.interval.bytes`.
        max_offset_entries, max_time_entries: entries that Kafka's index files have room for.
        trusted_to: the checksums of batches that start before this file position are trusted, not computed.
        states: one `SCAN_STATE`; on return its `end` is an `EndReason`. `NEEDS_BYTES`: call again with a chunk that
            holds `needed` bytes from `position` on, or (unless `needs_whole_batch`) with the checksum of that one batch
            in `checked_*`. `NEEDS_ROOM`: call again with more room in `producer_events` and `leader_epochs`.
        offset_entries, time_entries: the index entries found so far; written from the state's counts on. They have
            room for every entry that the file can give.
        producer_events, leader_epochs: the events and epochs found so far; `NEEDS_ROOM` asks for more room.
        open_events: `OPEN_EVENT_SLOTS` zeros at first.
        header_facts, digests, stretches, hours: facts that are folded; see `header_facts_kernel`.
    """
    state, facts = states[0], header_facts[0]
    position = state.position
    chunk_end = chunk_position + len(chunk)
    address = np.int64(chunk.ctypes.data)
    starts = np.empty(BATCHES_AHEAD + 1, np.int64)
    number = count = walked_magic = np.int64(0)
    end = EndReason.NEEDS_BYTES

    while True:
        if number == count:
            number = np.int64(0)
            count, walked_magic = walk_ordinary(
                chunk, address, position - chunk_position, trusted_to - chunk_position, starts
            )
        number, failure = fold_ordinary(
            chunk,
            address,
            chunk_position,
            starts,
            number,
            count,
            walked_magic,
            trusted_to,
            base_offset,
            interval_bytes,
            max_offset_entries,
            max_time_entries,
            states,
            offset_entries,
            time_entries,
            producer_events,
            open_events,
            header_facts,
            digests,
            stretches,
            hours,
        )
        position = chunk_position + starts[number]
        if failure != ADDED:
            end = failure
            break
        if number == count and count == BATCHES_AHEAD:
            continue
        # A batch that is not ordinary, or was not walked.
        if state.producer_events == len(producer_events) or state.leader_epochs == len(leader_epochs):
            state.needed = 0
            end = EndReason.NEEDS_ROOM
            break
        is_checked = number < count

        # FileLogInputStream.nextBatch
        if position >= file_size - _HEADER_SIZE_UP_TO_MAGIC:
            state.found = file_size - position
            end = EndReason.END_OF_FILE if position == file_size else EndReason.TRAILING_BYTES
            break
        if position + _HEADER_SIZE_UP_TO_MAGIC > chunk_end:
            state.needed, state.needs_whole_batch = min(BATCH_V2_BYTES_MIN, file_size - position), 0
            break
        at = position - chunk_position
        size = np.int64(int32(chunk, at + SIZE_AT))
        if size < _ENTRY_SIZE_MIN:
            state.found, state.expected = size, _ENTRY_SIZE_MIN
            end = EndReason.SIZE_TOO_SMALL
            break
        batch_bytes = LOG_OVERHEAD + size
        if position > file_size - batch_bytes:
            state.found, state.expected = file_size - position, batch_bytes
            end = EndReason.BATCH_OVERRUNS_FILE
            break
        magic = np.int64(np.int8(chunk[at + MAGIC_AT]))

        # ensureValid
        if magic >= MAGIC_V2 and batch_bytes < BATCH_V2_BYTES_MIN:
            state.found, state.expected = batch_bytes, BATCH_V2_BYTES_MIN
            end = EndReason.BATCH_TOO_SMALL
            break
        is_trusted = position < trusted_to
        crc_known = is_trusted or is_checked or position == state.checked_position
        needed = min(batch_bytes, BATCH_V2_BYTES_MIN) if crc_known else batch_bytes
        if position + needed > chunk_end:
            state.needed, state.needs_whole_batch = needed, 0
            break
        stored = stored_checksum(chunk, at, magic)
        if not is_trusted and not is_checked:
            computed = state.checked_crc if crc_known else checksum(address, at, batch_bytes, magic)
            if computed != stored:
                state.found, state.expected = computed, stored
                end = EndReason.CRC_MISMATCH
                break

        # Only control batches of producers are read beyond the header.
        is_producers = magic >= MAGIC_V2 and int64(chunk, at + V2_PRODUCER_ID_AT) >= 0
        is_control = is_producers and (chunk[at + V2_ATTRIBUTES_AT + 1] & ATTRIBUTE_CONTROL) != 0
        if is_control and batch_bytes <= CONTROL_BATCH_BYTES_MAX and position + batch_bytes > chunk_end:
            state.needed, state.needs_whole_batch = batch_bytes, 1
            break

        # The batch's last offset and largest timestamp. A magic below 0 is read as v1, as Kafka does.
        offset = int64(chunk, at)
        if magic >= MAGIC_V2:
            last_offset = offset + np.int64(int32(chunk, at + V2_LAST_OFFSET_DELTA_AT))
            max_timestamp = int64(chunk, at + V2_MAX_TIMESTAMP_AT)
        else:
            last_offset = offset
            max_timestamp = NO_TIMESTAMP if magic == 0 else int64(chunk, at + V1_TIMESTAMP_AT)

        # ensureOffsetInRange; the subtraction wraps as Java's does
        relative_offset = last_offset - base_offset
        if relative_offset < 0 or relative_offset > _RELATIVE_OFFSET_MAX:
            state.found, state.expected = last_offset, base_offset
            end = EndReason.OFFSET_OVERFLOW
            break

        if max_timestamp > state.max_timestamp:
            state.max_timestamp = max_timestamp
            state.offset_of_max_timestamp = last_offset

        if position - state.last_index_position > interval_bytes:
            failure = write_index_entries(
                states,
                offset_entries,
                time_entries,
                max_offset_entries,
                max_time_entries,
                base_offset,
                position,
                last_offset,
            )
            if failure != ADDED:
                end = failure
                break

        kind, coordinator_epoch, marker_timestamp = np.int64(EventKind.DATA), np.int64(-1), np.int64(-1)
        if is_control:
            kind, coordinator_epoch, marker_timestamp = control_batch_event(chunk, at, at + batch_bytes)
            if kind < 0 and kind != -EndReason.INVALID_CONTROL_RECORD:
                state.found, state.expected = coordinator_epoch, CONTROL_BATCH_BYTES_MAX
                end = -kind
                break
        elif is_producers and (chunk[at + V2_ATTRIBUTES_AT + 1] & ATTRIBUTE_TRANSACTIONAL) != 0:
            kind = np.int64(EventKind.TRANSACTIONAL_DATA)

        # A wrapper of magic 0 or 1 has no base offset: its first field is the last offset.
        is_disordered = last_offset < state.next_offset
        is_odd = is_disordered or offset < state.next_offset or magic < 0 or magic > MAGIC_V2
        if is_odd and state.odd_position < 0:
            state.odd_position = position
        state.disordered += is_disordered
        state.next_offset = last_offset + 1
        state.batches += 1
        state.magics |= np.uint64(1) << np.uint64(magic if 0 <= magic < 63 else 63)
        if magic >= MAGIC_V2:
            attributes = np.int64(chunk[at + V2_ATTRIBUTES_AT + 1])  # only the low byte is used
            records = np.int64(int32(chunk, at + V2_RECORDS_COUNT_AT))
            state.records += records
            is_append_time = (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
            is_certain = is_append_time or records == 1 or records == 0
            state.transactional_batches += (attributes & ATTRIBUTE_TRANSACTIONAL) != 0
            state.control_batches += (attributes & ATTRIBUTE_CONTROL) != 0
            leader_epoch = np.int64(int32(chunk, at + V2_EPOCH_AT))
            if leader_epoch >= 0 and leader_epoch != state.last_leader_epoch:
                if state.first_leader_epoch < 0:
                    state.first_leader_epoch = leader_epoch
                state.last_leader_epoch = leader_epoch
                leader_epochs[state.leader_epochs].epoch = np.int32(leader_epoch)
                leader_epochs[state.leader_epochs].start_offset = offset
                leader_epochs[state.leader_epochs].position = position
                state.leader_epochs += 1
            if is_producers and kind >= 0:
                write_producer_event(
                    states,
                    producer_events,
                    open_events,
                    kind,
                    coordinator_epoch,
                    marker_timestamp,
                    chunk,
                    at,
                    position,
                    last_offset,
                )
            if kind >= 0:
                state.map_end_offset = last_offset + 1
        else:
            attributes = np.int64(chunk[at + V1_ATTRIBUTES_AT])
            records = np.int64(1)
            is_append_time = (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
            is_certain = magic == 0 or is_append_time or (attributes & ATTRIBUTE_CODEC) == 0
            state.records += 1
            state.compressed_messages += (attributes & ATTRIBUTE_CODEC) != 0
        state.codecs |= np.uint64(1) << np.uint64(attributes & ATTRIBUTE_CODEC)
        # All records have the batch's timestamp if a broker's clock set it, or if there is only one: it is certain.
        timestamp = max(max_timestamp, np.int64(NO_TIMESTAMP))
        if (
            offset >> facts.range_shift != facts.range
            or position >> facts.stretch_shift != facts.stretch
            or np.uint64(timestamp - facts.hour) >= np.uint64(HOUR_MS)
        ):
            enter_cell(facts, digests, stretches, hours, position, offset, timestamp)
        has_timestamp = is_certain and records > 0
        smallest = max_timestamp if has_timestamp else np.int64(TIMESTAMP_MAX)
        certain_records = records if is_certain else np.int64(0)
        digest = digest_of(offset, last_offset, stored)
        add_to_cell(facts, digests, stretches, hours, digest, smallest, has_timestamp, records, certain_records)
        facts.uncertain_batches += not is_certain
        if magic >= MAGIC_V2 and not is_trusted:
            facts.log_crc32c = with_batch(facts.log_crc32c, chunk, address, at, batch_bytes, stored)
        position += batch_bytes
        if kind < 0:  # Kafka counts this batch as valid before it reads the control record
            end = EndReason.INVALID_CONTROL_RECORD
            break
        number = number + 1 if is_checked else count

    # The entry that closing a segment writes (skipFullCheck); Kafka fails here too if offsets went back.
    reached_end = end > EndReason.NEEDS_ROOM and end < EndReason.OFFSET_OVERFLOW
    if reached_end and not write_time_entry(states, time_entries, base_offset):
        end = EndReason.TIME_INDEX_OFFSET_DECREASING
    state.position = position
    state.end = end


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
    **OPTIONS,
)
def scan_logs_in_turn(
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
