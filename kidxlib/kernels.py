"""The compiled loops, and nothing else.

`scan` is `LogSegment.recover` (Kafka 4.3.1) as one loop over the bytes of a segment: walk the batch headers, check
the CRC, apply the interval rule, and fold the facts that the catalog keeps. It sees one chunk of the file at a time;
all that it carries from chunk to chunk is in one `SCAN_STATE` record. `kidxlib.reference` says the same in plain
Python.

What recovery does with producers and leader epochs depends on earlier segments, so `scan` only notes it down:
`PRODUCER_EVENT`s, with ordinary batches of one producer collapsed into one, and `LEADER_EPOCH`s. `apply_events` then
is `LogSegment.updateProducerState` over the events of a segment.

Checksums come from ISA-L, called through its C symbols: as fast as memory gives the bytes, where a Python call per
batch would cost more than the checksum.
"""

from __future__ import annotations

import ctypes
import enum
from typing import Any, Final

import numpy as np
from llvmlite import binding, ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic

from kidxlib import formats
from kidxlib.checksums import CRC32, CRC32C
from kidxlib.compiled import njit
from kidxlib.wire_numbers import TOO_LONG, int16, int32, int64, skip_bytes, skip_headers, varint, varlong

# A compiled function loaded from numba's cache calls these symbols by name, so they must be known before any is loaded.
binding.add_symbol("kidx_crc32c", ctypes.cast(CRC32C, ctypes.c_void_p).value)
binding.add_symbol("kidx_crc32", ctypes.cast(CRC32, ctypes.c_void_p).value)
_iscsi_crc32c = types.ExternalFunction("kidx_crc32c", types.uint32(types.uintp, types.int32, types.uint32))
_gzip_crc32 = types.ExternalFunction("kidx_crc32", types.uint32(types.uint32, types.uintp, types.uint64))


class EndReason(enum.IntEnum):
    """Why a scan stopped. What each means to a reader of the catalog stands in `kidxlib.recover`."""

    # The caller has to do something, and to call again.
    NEEDS_BYTES = 0
    NEEDS_ROOM = 1
    # Kafka cuts the log here, if anything is left of it.
    END_OF_FILE = 2
    TRAILING_BYTES = 3
    BATCH_OVERRUNS_FILE = 4
    SIZE_TOO_SMALL = 5
    BATCH_TOO_SMALL = 6
    CRC_MISMATCH = 7
    INVALID_CONTROL_RECORD = 8
    # Kafka fails.
    OFFSET_OVERFLOW = 9
    OFFSET_INDEX_FULL = 10
    TIME_INDEX_FULL = 11
    OFFSET_NOT_INCREASING = 12
    TIME_INDEX_OFFSET_DECREASING = 13
    UNKNOWN_CONTROL_TYPE = 14
    MALFORMED_CONTROL_RECORD = 15
    COMPRESSED_CONTROL_BATCH = 16  # we fail
    CONTROL_BATCH_TOO_LARGE = 17  # we fail
    SEGMENT_TOO_LARGE = 18  # found before the loop starts


class EventKind(enum.IntEnum):
    """What a producer did."""

    DATA = 0  # batches outside of transactions
    TRANSACTIONAL_DATA = 1
    COMMIT = 2
    ABORT = 3
    EMPTY_CONTROL = 4  # what compaction leaves of a marker


class ProducerFailure(enum.IntEnum):
    """Why Kafka fails on a producer's batch. What each means stands in `kidxlib.producers`."""

    NONE = 0
    NOT_TRANSACTIONAL = 1
    ABORT_NOT_INCREASING = 2
    TRANSACTION_NOT_STARTED = 3


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
        ("needs_whole_batch", "i8"),  # of these bytes a checksum alone would not do
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
        ("disordered", "i8"),  # batches whose last offset is not above that of the batch before
        ("odd_position", "i8"),  # the first batch that no broker writes there, by offsets or magic; −1: none
        # Producers and leader epochs.
        ("map_end_offset", "i8"),  # `ProducerStateManager.lastMapOffset`
        ("largest_leader_epoch", "i8"),
        ("producer_events", "i8"),
        ("leader_epochs", "i8"),
    ]
)

#: What a producer did, for the fold over a partition's segments. Data batches of a producer that follow each other with
#: no marker of its own in between, and are all transactional or all not, are one event; fields that no data batch or no
#: marker has are −1.
PRODUCER_EVENT: Final = np.dtype(
    [
        ("position", "i8"),  # file position of the (first) batch
        ("producer_id", "i8"),
        ("kind", "i4"),
        ("producer_epoch", "i4"),  # of the last batch, as are all below but `first_offset`
        ("first_offset", "i8"),  # base offset of the first batch
        ("last_offset", "i8"),
        ("offset_delta", "i4"),
        ("last_sequence", "i4"),
        ("timestamp", "i8"),  # a marker's: of its record
        ("coordinator_epoch", "i4"),
    ]
)

#: A batch with a leader epoch above all before it in the segment.
LEADER_EPOCH: Final = np.dtype([("epoch", "i4"), ("start_offset", "i8"), ("position", "i8")])

#: Which event a producer's next data batch may be collapsed into, by the lowest bits of its id: a number of an event
#: plus one. Two producers that share a slot push each other out, which costs an event and no more.
OPEN_EVENT_SLOTS: Final = 4096

#: The largest control batch of a producer that is read; Kafka's have 78 bytes.
CONTROL_BATCH_BYTES_MAX: Final = 64 * 1024

#: What is known of a producer: Kafka's `ProducerStateEntry`, in a snapshot's order and words.
PRODUCER_STATE: Final = np.dtype(
    [(name, formats.SNAPSHOT_ENTRY[name].newbyteorder("=")) for name in formats.SNAPSHOT_ENTRY.names or ()]
    + [("in_transaction", "i1"), ("known", "i1")]
)

#: `ProducerStateManager.ongoingTxns`: the first offset, which is the key, and whose it is.
ONGOING_TRANSACTION: Final = np.dtype([("first_offset", "i8"), ("producer_id", "i8")])

#: An entry of a `.txnindex` in this machine's byte order.
ABORTED_TRANSACTION: Final = formats.ABORTED_TRANSACTION.newbyteorder("=")

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
_LOG_APPEND_TIME: Final = formats.ATTRIBUTE_LOG_APPEND_TIME
_NO_SEQUENCE: Final = formats.NO_SEQUENCE
_INT32_MAX: Final = 2**31 - 1
_CACHE_LINE_BYTES: Final = 64
#: How far ahead of a small batch memory is asked for, and up to which size that pays.
_PREFETCH_BYTES: Final = 4096
_SMALL_BATCH_BYTES: Final = 2048
#: What every batch has at least, of any format.
_BATCH_BYTES_MIN: Final = formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN

_SIZE_AT: Final = formats.field_position(formats.BATCH_V2, "batch_length")
_MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")
_V2_EPOCH_AT: Final = formats.field_position(formats.BATCH_V2, "partition_leader_epoch")
_V2_CRC_AT: Final = formats.field_position(formats.BATCH_V2, "crc")
_V2_ATTRIBUTES_AT: Final = formats.field_position(formats.BATCH_V2, "attributes")
_V2_LAST_OFFSET_DELTA_AT: Final = formats.field_position(formats.BATCH_V2, "last_offset_delta")
_V2_MAX_TIMESTAMP_AT: Final = formats.field_position(formats.BATCH_V2, "max_timestamp")
_V2_BASE_TIMESTAMP_AT: Final = formats.field_position(formats.BATCH_V2, "base_timestamp")
_V2_PRODUCER_ID_AT: Final = formats.field_position(formats.BATCH_V2, "producer_id")
_V2_PRODUCER_EPOCH_AT: Final = formats.field_position(formats.BATCH_V2, "producer_epoch")
_V2_BASE_SEQUENCE_AT: Final = formats.field_position(formats.BATCH_V2, "base_sequence")
_V2_RECORDS_COUNT_AT: Final = formats.field_position(formats.BATCH_V2, "records_count")
_V1_CRC_AT: Final = formats.field_position(formats.MESSAGE_V1, "crc")
_V1_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes")
_V1_TIMESTAMP_AT: Final = formats.field_position(formats.MESSAGE_V1, "timestamp")


def new_state(base_offset: int) -> np.ndarray[Any, Any]:
    """The state of a scan that has read nothing of a segment with this base offset: one `SCAN_STATE` record."""
    state = np.zeros(1, SCAN_STATE)
    state["max_timestamp"] = state["last_time_entry_timestamp"] = formats.NO_TIMESTAMP
    state["offset_of_max_timestamp"] = -1
    state["checked_position"] = state["odd_position"] = -1
    state["next_offset"] = state["map_end_offset"] = base_offset
    for field in ("first_leader_epoch", "last_leader_epoch", "largest_leader_epoch"):
        state[field] = formats.NO_LEADER_EPOCH
    return state


@njit(inline="always")
def _stored_checksum(data, at, magic):
    """What the header of a batch says; zero-extended, as the computed one."""
    return np.int64(np.uint32(int32(data, at + (_V2_CRC_AT if magic >= _MAGIC_V2 else _V1_CRC_AT))))


@njit(inline="always")
def _checksum(address, batch_bytes, magic):
    """The checksum of a whole batch at an address: CRC-32C from magic 2 on, CRC-32 before."""
    if magic >= _MAGIC_V2:
        covered, size = np.uintp(address + _V2_ATTRIBUTES_AT), np.int32(batch_bytes - _V2_ATTRIBUTES_AT)
        return np.int64(~_iscsi_crc32c(covered, size, np.uint32(0xFFFFFFFF)))
    return np.int64(_gzip_crc32(np.uint32(0), np.uintp(address + _MAGIC_AT), np.uint64(batch_bytes - _MAGIC_AT)))


@intrinsic
def _prefetch(_context, address):
    """Ask the processor to bring the cache line at an address nearer; the address need not be one of this process."""

    def generate(context, builder, _signature, arguments):
        number = cgutils.int32_t
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        to_read, to_all_caches, data = number(0), number(3), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], cgutils.voidptr_t), to_read, to_all_caches, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


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


@njit
def _read_control_batch(data, batch, batch_end):
    """What the control batch of a producer says, as `ProducerAppendInfo.append` reads it: its first record.

    Returns:
        An `EventKind`, or minus the `EndReason` that it is; the coordinator epoch; the record's timestamp.
    """
    invalid = np.int64(-EndReason.INVALID_CONTROL_RECORD), np.int64(-1), np.int64(-1)
    malformed = np.int64(-EndReason.MALFORMED_CONTROL_RECORD), np.int64(-1), np.int64(-1)
    count = int32(data, batch + _V2_RECORDS_COUNT_AT)
    attributes = np.int64(data[batch + _V2_ATTRIBUTES_AT + 1])
    if count == 0:
        return np.int64(EventKind.EMPTY_CONTROL), np.int64(-1), np.int64(-1)
    if attributes & _CODEC:
        return np.int64(-EndReason.COMPRESSED_CONTROL_BATCH), np.int64(-1), np.int64(-1)
    if batch_end - batch > CONTROL_BATCH_BYTES_MAX:
        return np.int64(-EndReason.CONTROL_BATCH_TOO_LARGE), np.int64(-1), np.int64(-1)
    if count < 0:
        return invalid

    # DefaultRecord.readFrom
    size, start = varint(data, batch + _BATCH_V2_BYTES_MIN, batch_end)
    if start == TOO_LONG:
        return malformed
    if start < 0 or size > batch_end - start or start >= batch_end:
        return invalid
    timestamp_delta, at = varlong(data, start + 1, batch_end)
    if at < 0:
        return invalid
    _, at = varint(data, at, batch_end)  # offset delta
    if at < 0:
        return invalid
    key_bytes, key, at = skip_bytes(data, at, batch_end)
    if at < 0:
        return invalid
    value_bytes, value, at = skip_bytes(data, at, batch_end)
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
    if key_bytes < formats.CONTROL_KEY_BYTES or int16(data, key) < 0:
        return invalid
    control_type = int16(data, key + 2)
    if control_type != formats.CONTROL_TYPE_ABORT and control_type != formats.CONTROL_TYPE_COMMIT:
        return np.int64(-EndReason.UNKNOWN_CONTROL_TYPE), np.int64(control_type), np.int64(-1)
    if value_bytes < 2:
        return malformed
    if int16(data, value) < 0:
        return invalid
    if value_bytes < formats.MARKER_VALUE_BYTES:
        return malformed
    if attributes & _LOG_APPEND_TIME:
        timestamp = int64(data, batch + _V2_MAX_TIMESTAMP_AT)
    else:
        timestamp = int64(data, batch + _V2_BASE_TIMESTAMP_AT) + timestamp_delta
    kind = EventKind.ABORT if control_type == formats.CONTROL_TYPE_ABORT else EventKind.COMMIT
    return np.int64(kind), np.int64(int32(data, value + 2)), timestamp


@njit
def _note_producer(
    states, events, open_events, kind, coordinator_epoch, marker_timestamp, data, at, position, last_offset
):
    """Add a producer's batch to the events, or to one of them."""
    state = states[0]
    producer_id = int64(data, at + _V2_PRODUCER_ID_AT)
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
    event.producer_epoch = np.int32(int16(data, at + _V2_PRODUCER_EPOCH_AT))
    event.last_offset = last_offset
    event.coordinator_epoch = np.int32(coordinator_epoch)
    event.timestamp = marker_timestamp
    event.offset_delta = np.int32(-1)
    event.last_sequence = np.int32(_NO_SEQUENCE)
    if kind <= EventKind.TRANSACTIONAL_DATA:
        delta = int32(data, at + _V2_LAST_OFFSET_DELTA_AT)
        event.offset_delta = delta
        event.timestamp = int64(data, at + _V2_MAX_TIMESTAMP_AT)
        sequence = int32(data, at + _V2_BASE_SEQUENCE_AT)
        if sequence != _NO_SEQUENCE:  # DefaultRecordBatch.incrementSequence, in Java's 32 bits
            sequence = np.int64(sequence)
            if sequence > np.int64(np.int32(_INT32_MAX - np.int64(delta))):
                sequence = np.int64(delta) - (_INT32_MAX - sequence) - 1
            else:
                sequence += delta
            event.last_sequence = np.int32(sequence)


@njit(
    types.void(
        types.Array(types.uint8, 1, "C", readonly=True),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.Array(from_dtype(SCAN_STATE), 1, "C"),
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
        types.Array(from_dtype(PRODUCER_EVENT), 1, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(from_dtype(LEADER_EPOCH), 1, "C"),
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
    trusted_to,
    states,
    offset_entries,
    time_entries,
    producer_events,
    open_events,
    leader_epochs,
):
    """Go on with a scan through one chunk of a segment: the inner loop of `LogSegment.recover`.

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
        producer_events, leader_epochs: likewise, without such room.
        open_events: `OPEN_EVENT_SLOTS` zeros at first.
    """
    state = states[0]
    position = state.position
    chunk_end = chunk_position + len(chunk)
    address = np.int64(chunk.ctypes.data)
    end = EndReason.NEEDS_BYTES

    while True:
        if state.producer_events == len(producer_events) or state.leader_epochs == len(leader_epochs):
            state.needed = 0
            end = EndReason.NEEDS_ROOM
            break
        # FileLogInputStream.nextBatch
        if position >= file_size - _HEADER_SIZE_UP_TO_MAGIC:
            state.found = file_size - position
            end = EndReason.END_OF_FILE if position == file_size else EndReason.TRAILING_BYTES
            break
        if position + _HEADER_SIZE_UP_TO_MAGIC > chunk_end:
            state.needed, state.needs_whole_batch = min(_BATCH_V2_BYTES_MIN, file_size - position), 0
            break
        at = position - chunk_position
        size = np.int64(int32(chunk, at + _SIZE_AT))
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
        if batch_bytes <= _SMALL_BATCH_BYTES:
            # Each header says where the next one is, so the processor alone would wait for memory at every one of them.
            for line in range(0, batch_bytes, _CACHE_LINE_BYTES):
                _prefetch(address + at + _PREFETCH_BYTES + line)  # type: ignore[call-arg]

        # ensureValid
        if magic >= _MAGIC_V2 and batch_bytes < _BATCH_V2_BYTES_MIN:
            state.found, state.expected = batch_bytes, _BATCH_V2_BYTES_MIN
            end = EndReason.BATCH_TOO_SMALL
            break
        is_trusted = position < trusted_to
        crc_known = is_trusted or position == state.checked_position
        needed = min(batch_bytes, _BATCH_V2_BYTES_MIN) if crc_known else batch_bytes
        if position + needed > chunk_end:
            state.needed, state.needs_whole_batch = needed, 0
            break
        if not is_trusted:
            stored = _stored_checksum(chunk, at, magic)
            computed = state.checked_crc if crc_known else _checksum(address + at, batch_bytes, magic)
            if computed != stored:
                state.found, state.expected = computed, stored
                end = EndReason.CRC_MISMATCH
                break

        # A control batch of a producer is the only kind that is looked into.
        is_producers = magic >= _MAGIC_V2 and int64(chunk, at + _V2_PRODUCER_ID_AT) >= 0
        is_control = is_producers and (chunk[at + _V2_ATTRIBUTES_AT + 1] & _CONTROL) != 0
        if is_control and batch_bytes <= CONTROL_BATCH_BYTES_MAX and position + batch_bytes > chunk_end:
            state.needed, state.needs_whole_batch = batch_bytes, 1
            break

        # The batch's last offset and largest timestamp. A magic below 0 is read as v1, as Kafka does.
        offset = int64(chunk, at)
        if magic >= _MAGIC_V2:
            last_offset = offset + np.int64(int32(chunk, at + _V2_LAST_OFFSET_DELTA_AT))
            max_timestamp = int64(chunk, at + _V2_MAX_TIMESTAMP_AT)
        else:
            last_offset = offset
            max_timestamp = _NO_TIMESTAMP if magic == 0 else int64(chunk, at + _V1_TIMESTAMP_AT)

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

        kind, coordinator_epoch, marker_timestamp = np.int64(EventKind.DATA), np.int64(-1), np.int64(-1)
        if is_control:
            kind, coordinator_epoch, marker_timestamp = _read_control_batch(chunk, at, at + batch_bytes)
            if kind < 0 and kind != -EndReason.INVALID_CONTROL_RECORD:
                state.found, state.expected = coordinator_epoch, CONTROL_BATCH_BYTES_MAX
                end = -kind
                break
        elif is_producers and (chunk[at + _V2_ATTRIBUTES_AT + 1] & _TRANSACTIONAL) != 0:
            kind = np.int64(EventKind.TRANSACTIONAL_DATA)

        # A wrapper of magic 0 or 1 does not say where it begins: its first field is the last offset.
        is_disordered = last_offset < state.next_offset
        is_odd = is_disordered or offset < state.next_offset or magic < 0 or magic > _MAGIC_V2
        if is_odd and state.odd_position < 0:
            state.odd_position = position
        state.disordered += is_disordered
        state.next_offset = last_offset + 1
        state.batches += 1
        state.magics |= np.uint64(1) << np.uint64(magic if 0 <= magic < 63 else 63)
        if magic >= _MAGIC_V2:
            attributes = np.int64(chunk[at + _V2_ATTRIBUTES_AT + 1])  # only the low byte is used
            state.records += np.int64(int32(chunk, at + _V2_RECORDS_COUNT_AT))
            state.transactional_batches += (attributes & _TRANSACTIONAL) != 0
            state.control_batches += (attributes & _CONTROL) != 0
            leader_epoch = np.int64(int32(chunk, at + _V2_EPOCH_AT))
            if leader_epoch >= 0:
                if state.first_leader_epoch < 0:
                    state.first_leader_epoch = leader_epoch
                state.last_leader_epoch = leader_epoch
            if leader_epoch > state.largest_leader_epoch:
                state.largest_leader_epoch = leader_epoch
                leader_epochs[state.leader_epochs].epoch = np.int32(leader_epoch)
                leader_epochs[state.leader_epochs].start_offset = offset
                leader_epochs[state.leader_epochs].position = position
                state.leader_epochs += 1
            if is_producers and kind >= 0:
                _note_producer(
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
            attributes = np.int64(chunk[at + _V1_ATTRIBUTES_AT])
            state.records += 1
            state.compressed_messages += (attributes & _CODEC) != 0
        state.codecs |= np.uint64(1) << np.uint64(attributes & _CODEC)
        position += batch_bytes
        if kind < 0:  # Kafka has counted this batch as valid when it looks into it
            end = EndReason.INVALID_CONTROL_RECORD
            break

    # The entry that closing a segment writes (skipFullCheck); Kafka fails here too where offsets went back.
    reached_end = end > EndReason.NEEDS_ROOM and end < EndReason.OFFSET_OVERFLOW
    if reached_end and not _append_time(states, time_entries, base_offset):
        end = EndReason.TIME_INDEX_OFFSET_DECREASING
    state.position = position
    state.end = end


@njit(
    types.int64(types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def check_batches(data, start, stop):
    """Check the checksums of the batches from `start` on: the position of the first that starts at `stop` or behind it,
    or before that of the first that is not whole and right.

    Args:
        data: the whole log, read-only uint8.
    """
    address = np.int64(data.ctypes.data)
    position = start
    while position < stop and position + _BATCH_BYTES_MIN <= len(data):
        batch_bytes = _LOG_OVERHEAD + np.int64(int32(data, position + _SIZE_AT))
        magic = np.int64(np.int8(data[position + _MAGIC_AT]))
        smallest = _BATCH_V2_BYTES_MIN if magic >= _MAGIC_V2 else _BATCH_BYTES_MIN
        if batch_bytes < smallest or position + batch_bytes > len(data):
            break
        if _checksum(address + position, batch_bytes, magic) != _stored_checksum(data, position, magic):
            break
        position += batch_bytes
    return position


@njit(
    types.int64(types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def find_batch(data, start, stop):
    """The first position from `start` on, and before `stop`, at which a batch of magic 2 seems to start, as its header
    and its checksum say; −1 where there is none.

    Args:
        data: the whole log, read-only uint8.
    """
    address = np.int64(data.ctypes.data)
    for position in range(start, min(stop, len(data) - _BATCH_V2_BYTES_MIN + 1)):
        if data[position + _MAGIC_AT] != _MAGIC_V2:
            continue
        # Cheap conditions first: what looks like a size in the midst of records may be that of a gigabyte.
        batch_bytes = _LOG_OVERHEAD + np.int64(int32(data, position + _SIZE_AT))
        is_header = (
            int64(data, position) >= 0
            and _BATCH_V2_BYTES_MIN <= batch_bytes <= len(data) - position
            and data[position + _V2_ATTRIBUTES_AT] == 0
            and int32(data, position + _V2_LAST_OFFSET_DELTA_AT) >= 0
            and int32(data, position + _V2_RECORDS_COUNT_AT) >= 0
        )
        if is_header and _checksum(address + position, batch_bytes, np.int64(_MAGIC_V2)) == _stored_checksum(
            data, position, np.int64(_MAGIC_V2)
        ):
            return position
    return np.int64(-1)


@njit(
    types.int64(
        types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64, types.int64, types.int64, types.int64
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def find_whole_batch(data, start, stop, left, least_offset, most_offset):
    """The first position from `start` on, and before `stop`, at which a whole batch of magic 0, 1 or 2 stands, as its
    checksum says, whose offset is one of these; or at which the header of one stands that reaches past these bytes, and
    not past the log's end. −1 where there is none.

    Args:
        data: bytes of a log, read-only uint8.
        left: bytes from their first one to the end of the log.
    """
    address = np.int64(data.ctypes.data)
    for position in range(start, min(stop, len(data) - _BATCH_BYTES_MIN + 1)):
        magic = np.int64(np.int8(data[position + _MAGIC_AT]))
        if magic < 0 or magic > _MAGIC_V2:
            continue
        offset = int64(data, position)
        batch_bytes = _LOG_OVERHEAD + np.int64(int32(data, position + _SIZE_AT))
        smallest = _BATCH_V2_BYTES_MIN if magic >= _MAGIC_V2 else _BATCH_BYTES_MIN
        if not (least_offset <= offset <= most_offset and smallest <= batch_bytes <= left - position):
            continue
        if batch_bytes > len(data) - position:
            return np.int64(position)
        if _checksum(address + position, batch_bytes, magic) == _stored_checksum(data, position, magic):
            return np.int64(position)
    return np.int64(-1)


@njit(
    types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
        types.Array(types.uint8, 1, "C", readonly=True),
        types.int64,
        types.int64,
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
        types.Array(from_dtype(OFFSET_ENTRY), 1, "C"),
        types.Array(from_dtype(TIME_ENTRY), 1, "C"),
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def coarsen(data, base_offset, interval_bytes, dense_offsets, dense_times, offset_entries, time_entries):
    """The indexes that `scan` makes with a larger interval, through those that it made with a smaller one.

    Args:
        data: the whole log up to the end of its last valid batch, read-only uint8. Offsets increase from batch to
            batch.
        base_offset: the segment's base offset.
        interval_bytes: the larger interval.
        dense_offsets, dense_times: the indexes made with the smaller one.
        offset_entries, time_entries: the index entries found, with as much room as Kafka's files have, or as the log
            can give.

    Returns:
        How many entries both have; −1 for both where there is no room for another, or an index is not of this log.
    """
    failed = np.int64(-1), np.int64(-1)
    size = np.int64(len(data))
    offsets, times = np.int64(0), np.int64(0)
    indexed = np.int64(0)  # file position of the batch indexed last
    max_timestamp, offset_of_max = np.int64(_NO_TIMESTAMP), np.int64(-1)
    dense, dense_time = 0, 0
    position = np.int64(0)  # all batches before it are in the largest timestamp
    while True:
        # The last dense entry within the interval: its batch and all before it are in the dense time index.
        while dense < len(dense_offsets) and dense_offsets[dense].position <= indexed + interval_bytes:
            dense += 1
        if dense > 0 and dense_offsets[dense - 1].position >= position:
            start = np.int64(dense_offsets[dense - 1].position)
            if start + _BATCH_BYTES_MIN > size:
                return failed
            position = start + _LOG_OVERHEAD + np.int64(int32(data, start + _SIZE_AT))
            if position <= start:
                return failed
            within = dense_offsets[dense - 1].relative_offset
            while dense_time < len(dense_times) and dense_times[dense_time].relative_offset <= within:
                dense_time += 1
            if dense_time > 0:
                max_timestamp = dense_times[dense_time - 1].timestamp
                offset_of_max = base_offset + dense_times[dense_time - 1].relative_offset
        # From header to header, to the first batch behind the interval.
        found = False
        while position < size and not found:
            if position + _BATCH_BYTES_MIN > size:
                return failed
            batch_bytes = _LOG_OVERHEAD + np.int64(int32(data, position + _SIZE_AT))
            magic = np.int64(np.int8(data[position + _MAGIC_AT]))
            if batch_bytes < _BATCH_BYTES_MIN or position + batch_bytes > size:
                return failed
            last_offset = int64(data, position)
            timestamp = np.int64(_NO_TIMESTAMP)
            if magic >= _MAGIC_V2:
                if batch_bytes < _BATCH_V2_BYTES_MIN:
                    return failed
                last_offset += np.int64(int32(data, position + _V2_LAST_OFFSET_DELTA_AT))
                timestamp = int64(data, position + _V2_MAX_TIMESTAMP_AT)
            elif magic != 0:
                timestamp = int64(data, position + _V1_TIMESTAMP_AT)
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max = timestamp, last_offset
            if position - indexed > interval_bytes:
                found = True
                indexed = position
                if offsets == len(offset_entries) or times >= len(time_entries) - 1:
                    return failed
                offset_entries[offsets].relative_offset = np.int32(last_offset - base_offset)
                offset_entries[offsets].position = np.int32(position)
                offsets += 1
            position += batch_bytes
        if max_timestamp > (time_entries[times - 1].timestamp if times else _NO_TIMESTAMP):
            if times == len(time_entries):
                return failed
            time_entries[times].timestamp = max_timestamp
            time_entries[times].relative_offset = np.int32(offset_of_max - base_offset)
            times += 1
        if not found:
            return offsets, times


@njit(
    types.UniTuple(types.int64, 4)(  # type: ignore[no-untyped-call]
        types.Array(from_dtype(PRODUCER_EVENT), 1, "C", readonly=True),
        types.Array(types.int64, 1, "C"),
        types.Array(from_dtype(PRODUCER_STATE), 1, "C"),
        types.Array(from_dtype(ONGOING_TRANSACTION), 1, "C"),
        types.int64,
        types.Array(from_dtype(ABORTED_TRANSACTION), 1, "C"),
    ),
    cache=True,
    boundscheck=False,
    nogil=True,
)
def apply_events(events, producers, states, ongoing, ongoing_count, aborted):
    """Bring producer states forward by the events of a segment: `LogSegment.updateProducerState`.

    Args:
        events: in the order of their positions.
        producers: for each event, which of `states` is its producer's.
        states: `known` is 0 for producers that had no state before.
        ongoing: open transactions; the first `ongoing_count` are filled, and there is room for one more an event that
            may open one.
        aborted: room for one entry per abort.

    Returns:
        How many entries `aborted` has now, and `ongoing`; the first event that Kafka fails on, or how many there are;
        which `ProducerFailure` that is.
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
                state.last_sequence = np.int32(_NO_SEQUENCE)
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
