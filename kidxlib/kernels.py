"""The compiled loops, and nothing else.

`scan` is `LogSegment.recover` (Kafka 4.3.1) as one loop over the bytes of a segment: walk the batch headers, check
the CRC, apply the interval rule, and fold the facts that the catalog keeps. It sees one chunk of the file at a time;
all that it carries from chunk to chunk is in one `SCAN_STATE` record. `kidxlib.reference` says the same in a page of
plain Python.

Checksums come from libcrc32c and libdeflate, called through their C symbols: about 20 GB/s in cache, where a Python
call per batch would cost more than the checksum.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Any, Final

import numpy as np
from llvmlite import binding
from numba import from_dtype, njit, types

from kidxlib import formats
from kidxlib.checksums import CRC32, CRC32C

# A compiled function loaded from numba's cache calls these symbols by name, so they must be known before any is loaded.
binding.add_symbol("kidx_crc32c", ctypes.cast(CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_crc32", ctypes.cast(CRC32, ctypes.c_void_p).value)
_crc32c = types.ExternalFunction("kidx_crc32c", types.uint32(types.uintp, types.uintp))
_crc32 = types.ExternalFunction("kidx_crc32", types.uint32(types.uint32, types.uintp, types.uintp))


class EndReason(enum.IntEnum):
    """Why a scan stopped. What each means to a reader of the catalog stands in `kidxlib.recover`."""

    NEEDS_BYTES = 0
    END_OF_FILE = 1
    TRAILING_BYTES = 2
    BATCH_OVERRUNS_FILE = 3
    SIZE_TOO_SMALL = 4
    BATCH_TOO_SMALL = 5
    CRC_MISMATCH = 6
    OFFSET_OVERFLOW = 7
    OFFSET_INDEX_FULL = 8
    TIME_INDEX_FULL = 9
    OFFSET_NOT_INCREASING = 10
    TIME_INDEX_OFFSET_DECREASING = 11
    SEGMENT_TOO_LARGE = 12  # found before the loop starts


#: What the loop carries from chunk to chunk: Kafka's own variables first, then why it ended, then the facts.
SCAN_STATE: Final = np.dtype(
    [
        ("position", "i8"),  # `validBytes`: file position of the next batch
        ("last_index_position", "i8"),  # `lastIndexEntry`: file position of the batch indexed last
        ("max_timestamp", "i8"),  # `maxTimestampAndOffsetSoFar`
        ("offset_of_max_timestamp", "i8"),
        ("offset_entries", "i8"),
        ("last_indexed_offset", "i8"),
        ("time_entries", "i8"),
        ("last_time_entry_timestamp", "i8"),
        ("last_time_entry_offset", "i8"),
        # Why the loop returned, what it found there and what would have been right; bytes it needs from `position` on.
        ("end", "i8"),
        ("found", "i8"),
        ("expected", "i8"),
        ("needed", "i8"),
        # The checksum of the one batch that is larger than a chunk, computed by the caller piece by piece.
        ("checked_position", "i8"),
        ("checked_crc", "i8"),
        # Facts.
        ("next_offset", "i8"),
        ("batches", "i8"),
        ("records", "i8"),
        ("compressed_messages", "i8"),  # v0 and v1 wrappers: how many records they hold is not in their header
        ("first_leader_epoch", "i8"),
        ("last_leader_epoch", "i8"),
        ("transactional_batches", "i8"),
        ("control_batches", "i8"),
        ("magics", "u8"),  # bit n: magic n was seen; bit 63: any other
        ("codecs", "u8"),  # bit n: codec n was seen
    ]
)

#: Index entries as the loop writes them: the file layouts in this machine's byte order.
OFFSET_ENTRY: Final = formats.OFFSET_INDEX_ENTRY.newbyteorder("=")
TIME_ENTRY: Final = formats.TIME_INDEX_ENTRY.newbyteorder("=")

_LOG_OVERHEAD: Final = formats.LOG_OVERHEAD
_HEADER_SIZE_UP_TO_MAGIC: Final = formats.HEADER_SIZE_UP_TO_MAGIC
_ENTRY_SIZE_MIN: Final = formats.ENTRY_SIZE_MIN
_BATCH_V2_BYTES_MIN: Final = formats.BATCH_V2_BYTES_MIN
_MAGIC_V2: Final = formats.MAGIC_V2
_NO_TIMESTAMP: Final = formats.NO_TIMESTAMP
_RELATIVE_OFFSET_MAX: Final = formats.RELATIVE_OFFSET_MAX
_CODEC: Final = formats.ATTRIBUTE_CODEC
_TRANSACTIONAL: Final = formats.ATTRIBUTE_TRANSACTIONAL
_CONTROL: Final = formats.ATTRIBUTE_CONTROL

_SIZE_AT: Final = formats.field_position(formats.BATCH_V2, "batch_length")
_MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")
_V2_EPOCH_AT: Final = formats.field_position(formats.BATCH_V2, "partition_leader_epoch")
_V2_CRC_AT: Final = formats.field_position(formats.BATCH_V2, "crc")
_V2_ATTRIBUTES_AT: Final = formats.field_position(formats.BATCH_V2, "attributes")
_V2_LAST_OFFSET_DELTA_AT: Final = formats.field_position(formats.BATCH_V2, "last_offset_delta")
_V2_MAX_TIMESTAMP_AT: Final = formats.field_position(formats.BATCH_V2, "max_timestamp")
_V2_RECORDS_COUNT_AT: Final = formats.field_position(formats.BATCH_V2, "records_count")
_V1_CRC_AT: Final = formats.field_position(formats.MESSAGE_V1, "crc")
_V1_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes")
_V1_TIMESTAMP_AT: Final = formats.field_position(formats.MESSAGE_V1, "timestamp")


def new_state(base_offset: int) -> np.ndarray[Any, Any]:
    """The state of a scan that has read nothing of a segment with this base offset: one `SCAN_STATE` record."""
    state = np.zeros(1, SCAN_STATE)
    state["max_timestamp"] = state["last_time_entry_timestamp"] = formats.NO_TIMESTAMP
    state["offset_of_max_timestamp"] = -1
    state["checked_position"] = -1
    state["next_offset"] = base_offset
    state["first_leader_epoch"] = state["last_leader_epoch"] = formats.NO_LEADER_EPOCH
    return state


@njit(inline="always")
def _int32(data, at):
    value = (
        (np.uint32(data[at]) << 24) | (np.uint32(data[at + 1]) << 16) | (np.uint32(data[at + 2]) << 8) | data[at + 3]
    )
    return np.int32(value)


@njit(inline="always")
def _int64(data, at):
    high = np.int64(_int32(data, at))
    return (high << 32) | np.int64(np.uint32(_int32(data, at + 4)))


@njit(inline="always")
def _append_time(states, time_entries, base_offset):
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


@njit(
    types.void(
        types.Array(types.uint8, 1, "C", readonly=True),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.boolean,
        types.Array(from_dtype(SCAN_STATE), 1, "C"),
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def scan(
    chunk,
    chunk_position,
    file_size,
    base_offset,
    interval_bytes,
    max_offset_entries,
    max_time_entries,
    verify_crc,
    states,
    offset_entries,
    time_entries,
):
    """Go on with a scan through one chunk of a segment: the inner loop of `LogSegment.recover`.

    Args:
        chunk: bytes of the file from `chunk_position` on, read-only uint8.
        chunk_position: file position of the chunk's first byte; at most `state.position`.
        file_size: bytes of the whole file.
        base_offset: the segment's base offset.
        interval_bytes: `index.interval.bytes`.
        max_offset_entries, max_time_entries: entries that Kafka's index files have room for.
        verify_crc: False trusts the checksums and reads headers only.
        states: one `SCAN_STATE`; on return its `end` is an `EndReason`. `NEEDS_BYTES`: call again with a chunk that
            holds `needed` bytes from `position` on, or with the checksum of that one batch in `checked_*`.
        offset_entries, time_entries: the index entries found so far; written from the state's counts on. They have
            room for every entry that the file can give.
    """
    state = states[0]
    position = state.position
    chunk_end = chunk_position + len(chunk)
    address = np.int64(chunk.ctypes.data)
    end = EndReason.NEEDS_BYTES

    while True:
        # FileLogInputStream.nextBatch
        if position >= file_size - _HEADER_SIZE_UP_TO_MAGIC:
            state.found = file_size - position
            end = EndReason.END_OF_FILE if position == file_size else EndReason.TRAILING_BYTES
            break
        if position + _HEADER_SIZE_UP_TO_MAGIC > chunk_end:
            state.needed = min(_BATCH_V2_BYTES_MIN, file_size - position)
            break
        at = position - chunk_position
        size = np.int64(_int32(chunk, at + _SIZE_AT))
        if size < _ENTRY_SIZE_MIN:
            state.found, state.expected = size, _ENTRY_SIZE_MIN
            end = EndReason.SIZE_TOO_SMALL
            break
        batch_bytes = _LOG_OVERHEAD + size
        if position > file_size - batch_bytes:
            state.found, state.expected = file_size - position, batch_bytes
            end = EndReason.BATCH_OVERRUNS_FILE
            break
        magic = np.int64(np.int8(chunk[at + _MAGIC_AT]))

        # ensureValid
        if magic >= _MAGIC_V2 and batch_bytes < _BATCH_V2_BYTES_MIN:
            state.found, state.expected = batch_bytes, _BATCH_V2_BYTES_MIN
            end = EndReason.BATCH_TOO_SMALL
            break
        crc_known = not verify_crc or position == state.checked_position
        needed = min(batch_bytes, _BATCH_V2_BYTES_MIN) if crc_known else batch_bytes
        if position + needed > chunk_end:
            state.needed = needed
            break
        if verify_crc:
            if magic >= _MAGIC_V2:
                stored = np.int64(np.uint32(_int32(chunk, at + _V2_CRC_AT)))
                computed = state.checked_crc
                if not crc_known:
                    covered = at + _V2_ATTRIBUTES_AT
                    computed = np.int64(_crc32c(np.uintp(address + covered), np.uintp(batch_bytes - _V2_ATTRIBUTES_AT)))
            else:
                stored = np.int64(np.uint32(_int32(chunk, at + _V1_CRC_AT)))
                computed = state.checked_crc
                if not crc_known:
                    covered = at + _MAGIC_AT
                    computed = np.int64(
                        _crc32(np.uint32(0), np.uintp(address + covered), np.uintp(batch_bytes - _MAGIC_AT))
                    )
            if computed != stored:
                state.found, state.expected = computed, stored
                end = EndReason.CRC_MISMATCH
                break

        # The batch's last offset and largest timestamp. A magic below 0 is read as v1, as Kafka does.
        offset = _int64(chunk, at)
        if magic >= _MAGIC_V2:
            last_offset = offset + np.int64(_int32(chunk, at + _V2_LAST_OFFSET_DELTA_AT))
            max_timestamp = _int64(chunk, at + _V2_MAX_TIMESTAMP_AT)
        else:
            last_offset = offset
            max_timestamp = _NO_TIMESTAMP if magic == 0 else _int64(chunk, at + _V1_TIMESTAMP_AT)

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
            # OffsetIndex.append
            count = state.offset_entries
            if count >= max_offset_entries:
                state.found, state.expected = count, max_offset_entries
                end = EndReason.OFFSET_INDEX_FULL
                break
            if count > 0 and last_offset <= state.last_indexed_offset:
                state.found, state.expected = last_offset, state.last_indexed_offset
                end = EndReason.OFFSET_NOT_INCREASING
                break
            offset_entries[count].relative_offset = np.int32(relative_offset)
            offset_entries[count].position = np.int32(position)
            state.offset_entries = count + 1
            state.last_indexed_offset = last_offset
            # TimeIndex.maybeAppend: the last slot is kept for the entry at the end
            if state.time_entries >= max_time_entries - 1:
                state.found, state.expected = state.time_entries, max_time_entries
                end = EndReason.TIME_INDEX_FULL
                break
            if not _append_time(states, time_entries, base_offset):
                end = EndReason.TIME_INDEX_OFFSET_DECREASING
                break
            state.last_index_position = position

        position += batch_bytes
        state.next_offset = last_offset + 1
        state.batches += 1
        state.magics |= np.uint64(1) << np.uint64(magic if 0 <= magic < 63 else 63)
        if magic >= _MAGIC_V2:
            attributes = np.int64(chunk[at + _V2_ATTRIBUTES_AT + 1])  # only the low byte is used
            state.records += np.int64(_int32(chunk, at + _V2_RECORDS_COUNT_AT))
            state.transactional_batches += (attributes & _TRANSACTIONAL) != 0
            state.control_batches += (attributes & _CONTROL) != 0
            leader_epoch = np.int64(_int32(chunk, at + _V2_EPOCH_AT))
            if leader_epoch >= 0:
                if state.first_leader_epoch < 0:
                    state.first_leader_epoch = leader_epoch
                state.last_leader_epoch = leader_epoch
        else:
            attributes = np.int64(chunk[at + _V1_ATTRIBUTES_AT])
            state.records += 1
            state.compressed_messages += (attributes & _CODEC) != 0
        state.codecs |= np.uint64(1) << np.uint64(attributes & _CODEC)

    # The entry that closing a segment writes (skipFullCheck); Kafka fails here too where offsets went back.
    reached_end = end != EndReason.NEEDS_BYTES and end < EndReason.OFFSET_OVERFLOW
    if reached_end and not _append_time(states, time_entries, base_offset):
        end = EndReason.TIME_INDEX_OFFSET_DECREASING
    state.position = position
    state.end = end
