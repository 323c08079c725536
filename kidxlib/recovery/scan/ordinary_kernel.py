"""The fast part of the scan, for runs of ordinary batches, which nearly all batches are.

First one loop walks the headers of a few dozen batches and checks their checksums, then another folds their facts. Each
loop needs few values at a time, so the processor works on several batches at once. A single loop needs more values than
there are registers, and takes twice as long for short batches.

Other batches (torn or wrong, control records, offsets that go back, another leader epoch, another hour) are left to
`scan_kernel`, which takes batches one by one, in the order of Kafka's checks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import int32, int64, prefetch
from kidxlib.format.checksum_kernel import checksum, stored_checksum
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_BYTES_MIN,
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
from kidxlib.jit.compiler import njit
from kidxlib.recovery.check_kernel import with_batch
from kidxlib.recovery.scan.header_facts_kernel import HOUR_MS, TIMESTAMP_MAX, add_to_cell, digest_of
from kidxlib.recovery.scan.scan_state import EventKind
from kidxlib.recovery.scan.written_kernel import ADDED, write_index_entries, write_producer_event

#: How many batches are walked before their facts are folded.
BATCHES_AHEAD: Final = 64
_RELATIVE_OFFSET_MAX: Final = layouts.RELATIVE_OFFSET_MAX
_CACHE_LINE_BYTES: Final = 64
#: How far ahead of a small batch memory is prefetched if only headers are read, and the largest batch for which it
#: pays.
_PREFETCH_BYTES: Final = 4096
_SMALL_BATCH_BYTES: Final = 2048


@njit
def walk_ordinary(chunk, address, at, trusted_to, starts):
    """Find successive batches of one magic, 0, 1 or 2, that are whole in a chunk and have the right checksum.

    Args:
        chunk: bytes of the log, uint8.
        address: the address of the chunk.
        at: where in the chunk the first batch starts.
        trusted_to: checksums of batches that start before this position in the chunk are trusted; it may be outside.
        starts: where each batch starts, then where the last one ends; int64 of shape (`BATCHES_AHEAD` + 1,).

    Returns:
        The number of batches, and their magic.
    """
    magic = np.int64(np.int8(chunk[at + MAGIC_AT])) if at + BATCH_V2_BYTES_MIN <= len(chunk) else np.int64(-1)
    smallest = BATCH_V2_BYTES_MIN if magic == MAGIC_V2 else BATCH_BYTES_MIN
    count = 0
    starts[0] = at
    if magic < 0 or magic > MAGIC_V2:
        return count, magic
    while count < BATCHES_AHEAD and at + BATCH_V2_BYTES_MIN <= len(chunk):
        batch_bytes = LOG_OVERHEAD + np.int64(int32(chunk, at + SIZE_AT))
        if batch_bytes < smallest or batch_bytes > len(chunk) - at or np.int8(chunk[np.uintp(at + MAGIC_AT)]) != magic:
            break
        if at >= trusted_to:
            if checksum(address, at, batch_bytes, magic) != stored_checksum(chunk, at, magic):
                break
        elif batch_bytes <= _SMALL_BATCH_BYTES:
            # Each header says where the next one is, so without prefetching the processor would wait at each header.
            for line in range(0, batch_bytes, _CACHE_LINE_BYTES):
                prefetch(address + at + _PREFETCH_BYTES + line)  # type: ignore[call-arg]
        at += batch_bytes
        count += 1
        starts[count] = at
    return count, magic


@njit
def fold_ordinary(
    chunk,
    address,
    chunk_position,
    starts,
    first,
    count,
    magic,
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
):
    """Fold the batches of `walk_ordinary` from number `first` on, as long as they are ordinary.

    Returns:
        The number of the first batch that is not folded, and `ADDED` or the `EndReason` for which Kafka fails there.
    """
    state, facts = states[0], header_facts[0]
    is_v2 = magic == MAGIC_V2
    epoch, last_index_position = state.last_leader_epoch, state.last_index_position
    next_offset, max_timestamp = state.next_offset, state.max_timestamp
    offset_of_max_timestamp = state.offset_of_max_timestamp
    log_crc32c, codecs = facts.log_crc32c, state.codecs
    cell_end = ((facts.stretch + 1) << facts.stretch_shift) - chunk_position
    digest, smallest, has_timestamp = np.uint64(0), np.int64(TIMESTAMP_MAX), False
    records_in_all = certain_records = uncertain_batches = transactional = compressed = np.int64(0)
    producer_id, kind, unnoted = np.int64(-1), np.int64(EventKind.DATA), np.int64(-1)
    end = np.int64(ADDED)
    number = first

    while number < count:
        at = starts[np.uintp(number)]
        offset = int64(chunk, at)
        if is_v2:
            attributes = np.int64(chunk[np.uintp(at + V2_ATTRIBUTES_AT + 1)])  # only the low byte is used
            last_offset = offset + np.int64(int32(chunk, at + V2_LAST_OFFSET_DELTA_AT))
            timestamp = int64(chunk, at + V2_MAX_TIMESTAMP_AT)
            records = np.int64(int32(chunk, at + V2_RECORDS_COUNT_AT))
            leader_epoch = np.int64(int32(chunk, at + V2_EPOCH_AT))
            if (attributes & ATTRIBUTE_CONTROL) != 0 or (leader_epoch >= 0 and leader_epoch != epoch):
                break
        else:
            attributes = np.int64(chunk[np.uintp(at + V1_ATTRIBUTES_AT)])
            last_offset, records = offset, np.int64(1)
            timestamp = np.int64(NO_TIMESTAMP) if magic == 0 else int64(chunk, at + V1_TIMESTAMP_AT)
        relative_offset = last_offset - base_offset
        if (
            offset < next_offset
            or last_offset < next_offset
            or relative_offset < 0
            or relative_offset > _RELATIVE_OFFSET_MAX
            or offset >> facts.range_shift != facts.range
            or at >= cell_end
            or np.uint64(max(timestamp, np.int64(NO_TIMESTAMP)) - facts.hour) >= np.uint64(HOUR_MS)
        ):
            break
        if is_v2:
            id_here = int64(chunk, at + V2_PRODUCER_ID_AT)
            kind_here = np.int64((attributes & ATTRIBUTE_TRANSACTIONAL) != 0)
            if (
                id_here >= 0
                and (id_here != producer_id or kind_here != kind)
                and (state.producer_events == len(producer_events))
            ):
                break

        if timestamp > max_timestamp:
            max_timestamp, offset_of_max_timestamp = timestamp, last_offset
        position = chunk_position + at
        if position - last_index_position > interval_bytes:
            state.max_timestamp, state.offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
            end = write_index_entries(
                states,
                offset_entries,
                time_entries,
                max_offset_entries,
                max_time_entries,
                base_offset,
                position,
                last_offset,
            )
            if end != ADDED:
                break
            last_index_position = position

        if is_v2:
            if id_here >= 0:
                # Of successive batches of one producer, the first and the last are noted.
                if id_here == producer_id and kind_here == kind:
                    unnoted = number
                else:
                    _note(states, producer_events, open_events, kind, chunk, chunk_position, starts, unnoted)
                    producer_id, kind, unnoted = id_here, kind_here, np.int64(-1)
                    _note(states, producer_events, open_events, kind, chunk, chunk_position, starts, number)
            transactional += kind_here
            is_certain = (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0 or records == 1 or records == 0
            stored = stored_checksum(chunk, at, MAGIC_V2)
            if position >= trusted_to:
                log_crc32c = with_batch(log_crc32c, chunk, address, at, starts[np.uintp(number + 1)] - at, stored)
        else:
            is_compressed = (attributes & ATTRIBUTE_CODEC) != 0
            compressed += is_compressed
            is_certain = magic == 0 or (attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0 or not is_compressed
            stored = stored_checksum(chunk, at, magic)
        next_offset = last_offset + 1
        codecs |= np.uint64(1) << np.uint64(attributes & ATTRIBUTE_CODEC)
        records_in_all += records
        digest += digest_of(offset, last_offset, stored)
        if is_certain:
            certain_records += records
            if records > 0:
                smallest, has_timestamp = min(smallest, timestamp), True
        else:
            uncertain_batches += 1
        number += 1

    _note(states, producer_events, open_events, kind, chunk, chunk_position, starts, unnoted)
    if number > first or end != ADDED:
        state.max_timestamp, state.offset_of_max_timestamp = max_timestamp, offset_of_max_timestamp
    if number > first:
        state.batches += number - first
        state.records += records_in_all
        state.next_offset = next_offset
        state.codecs = codecs
        state.magics |= np.uint64(1) << np.uint64(magic)
        state.transactional_batches += transactional
        state.compressed_messages += compressed
        if is_v2:
            state.map_end_offset = next_offset
        facts.log_crc32c = log_crc32c
        facts.uncertain_batches += uncertain_batches
        add_to_cell(facts, digests, stretches, hours, digest, smallest, has_timestamp, records_in_all, certain_records)
    return number, end


@njit
def _note(states, events, open_events, kind, chunk, chunk_position, starts, number):
    """Note a producer's batch; −1: none."""
    if number < 0:
        return
    at = starts[number]
    last_offset = int64(chunk, at) + np.int64(int32(chunk, at + V2_LAST_OFFSET_DELTA_AT))
    none = np.int64(-1)
    write_producer_event(states, events, open_events, kind, none, none, chunk, at, chunk_position + at, last_offset)
