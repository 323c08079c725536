"""The compiled loops that find the parts of records in memory, in batches of all formats and codecs; and one that folds
facts of batches from them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import BYTES, LONGS, int32, int64, uint8, wrapping_sum
from kidxlib.format.decompress_kernel import NO_ROOM, decompress
from kidxlib.format.layouts import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_V2_BYTES_MIN,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    NO_TIMESTAMP,
    V1_ATTRIBUTES_AT,
    V1_TIMESTAMP_AT,
)
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.records.batch_table_kernel import BATCH
from kidxlib.records.read_kernel import read_record

#: The place of a record: addresses of its parts in memory, and their sizes, below 0 for null.
PLACE: Final = np.dtype(
    [
        ("offset", "i8"),
        ("timestamp", "i8"),
        ("batch", "i8"),  # the row in the table of batches
        ("key_at", "i8"),
        ("key_bytes", "i8"),
        ("value_at", "i8"),
        ("value_bytes", "i8"),
        ("headers_at", "i8"),  # the address of their number; 0 in magic 0 and 1
    ]
)
#: How far records have been placed: the next batch, the places in use, the bytes of all content and of decompressed
#: content, why the loop stopped, and how many places the next batch needs.
PROGRESS: Final = np.dtype(
    [
        ("batch", "i8"),
        ("places", "i8"),
        ("bytes", "i8"),
        ("decompressed_bytes", "i8"),
        ("why", "i8"),
        ("needed", "i8"),
    ]
)

#: Facts from the records of a batch; in a malformed batch from some records, or none.
CONTENTS: Final = np.dtype(
    [
        ("records", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("largest_timestamp", "i8"),
        ("goes_back", "i1"),  # an offset is not above the one before
        ("is_well_formed", "i1"),
    ]
)

#: In `why`: all batches are placed; the next one needs more places or bytes than are left, or more room for
#: decompressed content; the next one is refused.
_DONE: Final = 0
NEEDS_PLACES: Final = 1
NEEDS_CONTENT: Final = 2
_REFUSED: Final = 3

_CODEC_ZSTD: Final = layouts.CODEC_ZSTD
_ENTRY_SIZE_MIN: Final = layouts.ENTRY_SIZE_MIN
#: The position of the key's size in a message, from its offset on.
_KEY_AT_V0: Final = V1_TIMESTAMP_AT
_KEY_AT_V1: Final = layouts.MESSAGE_V1.itemsize


@njit(forceinline=True)
def _place(place, batch, offset, timestamp, address, key_at, key_bytes, value_at, value_bytes):
    place.batch, place.offset, place.timestamp = batch, offset, timestamp
    place.key_at, place.key_bytes = address + key_at, key_bytes
    place.value_at, place.value_bytes = address + value_at, value_bytes


@njit(forceinline=True)
def _is_wanted(limits, offset, timestamp):
    return limits[0] <= offset <= limits[1] and limits[2] <= timestamp <= limits[3]


@njit
def _place_v2(batch, row, content, at, end, limits, places, count):
    """Place the records of a batch of magic 2 with content from `at` to before `end`. Returns how many places are in
    use then; −1 if the batch is malformed.
    """
    address = np.int64(content.ctypes.data)
    append_time = (row.attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
    for _ in range(row.records_count):
        at, timestamp_delta, offset_delta, key_at, key_bytes, value_at, value_bytes, headers_at = read_record(
            content, at, end
        )
        if at < 0:
            return np.int64(-1)
        offset = wrapping_sum(row.offset_field, offset_delta)
        timestamp = row.max_timestamp if append_time else wrapping_sum(row.base_timestamp, timestamp_delta)
        if _is_wanted(limits, offset, timestamp):
            place = places[count]
            _place(place, batch, offset, timestamp, address, key_at, key_bytes, value_at, value_bytes)
            place.headers_at = address + headers_at
            count += 1
    return count if at == end else np.int64(-1)


@njit
def _place_message(batch, content, at, end, offset, has_append_time, append_time, limits, places, count):
    """Place the message of magic 0 or 1 from `at` to before `end`. Returns how many places are in use then; −1 if it is
    malformed.

    Args:
        has_append_time, append_time: whether the wrapper has a broker's timestamp, and which.
    """
    magic = uint8(content, at + MAGIC_AT)
    if uint8(content, at + V1_ATTRIBUTES_AT) & ATTRIBUTE_CODEC:
        return np.int64(-1)
    key_at = at + (_KEY_AT_V0 if magic == 0 else _KEY_AT_V1) + 4
    if key_at > end:
        return np.int64(-1)
    key_bytes = np.int64(int32(content, key_at - 4))
    value_at = key_at + max(key_bytes, 0) + 4
    if value_at > end:
        return np.int64(-1)
    value_bytes = np.int64(int32(content, value_at - 4))
    if value_bytes > end - value_at:
        return np.int64(-1)
    timestamp = np.int64(NO_TIMESTAMP)
    if magic != 0:
        timestamp = append_time if magic == 1 and has_append_time else int64(content, at + V1_TIMESTAMP_AT)
    if not _is_wanted(limits, offset, timestamp):
        return count
    place = places[count]
    address = np.int64(content.ctypes.data)
    _place(place, batch, offset, timestamp, address, key_at, key_bytes, value_at, value_bytes)
    place.headers_at = 0
    return np.int64(count + 1)


@njit
def _entry_end(content, at, end):
    """Where the message of a wrapper ends that starts at a position; −1 if too few bytes are left, which Kafka ignores;
    −2 if it is malformed.
    """
    if end - at < LOG_OVERHEAD:
        return np.int64(-1)
    size = np.int64(int32(content, at + 8))
    if size < _ENTRY_SIZE_MIN:
        return np.int64(-2)
    return np.int64(-1) if size > end - at - LOG_OVERHEAD else at + LOG_OVERHEAD + size


@njit
def _messages_in(content, at, end):
    """The number of messages in a wrapper, and the last one's offset there; −1 if a message is malformed."""
    messages, offset = np.int64(0), np.int64(0)
    while True:
        entry_end = _entry_end(content, at, end)
        if entry_end < 0:
            return np.int64(-1) if entry_end == -2 else messages, offset
        messages += 1
        offset = int64(content, at)
        at = entry_end


@njit
def _place_wrapper(batch, row, content, at, end, limits, places, count):
    """Place the messages of a wrapper (`AbstractLegacyRecordBatch.DeepRecordsIterator`), as `_place_v2`. There must be
    enough places.
    """
    _, last_inner_offset = _messages_in(content, at, end)
    base = np.int64(0)
    if row.magic == 1 and row.offset_field != 0:  # old librdkafka left it at 0
        if row.offset_field < last_inner_offset:
            return np.int64(-1)
        base = wrapping_sum(row.offset_field, -last_inner_offset)
    has_append_time = row.magic != 0 and (row.attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0
    append_time = row.max_timestamp
    while True:
        entry_end = _entry_end(content, at, end)
        if entry_end < 0:
            return np.int64(count)
        offset = wrapping_sum(base, int64(content, at))
        count = _place_message(
            batch, content, at, entry_end, offset, has_append_time, append_time, limits, places, count
        )
        if count < 0:
            return np.int64(count)
        at = entry_end


@njit
def _value_of_wrapper(window, at, end, magic):
    """Where the value of the message from `at` to before `end` starts and ends; −1: it has none."""
    value_at = at + (_KEY_AT_V0 if magic == 0 else _KEY_AT_V1) + 4
    if value_at > end:
        return np.int64(-1), np.int64(-1)
    value_at += 4 + max(np.int64(int32(window, value_at - 4)), np.int64(0))
    if value_at > end:
        return np.int64(-1), np.int64(-1)
    size = np.int64(int32(window, value_at - 4))
    if size < 0 or size > end - value_at:
        return np.int64(-1), np.int64(-1)
    return value_at, value_at + size


@njit(
    types.void(
        types.Array(from_dtype(BATCH), 1, "A", readonly=True),
        BYTES,
        types.int64,
        BYTES,
        types.Array(types.uint8, 1, "C"),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        LONGS,
        LONGS,
        types.Array(from_dtype(PLACE), 1, "C"),
        types.Array(from_dtype(PROGRESS), 1, "C"),
    ),
    **OPTIONS,
)
def place_records(
    batches, window, window_position, content, room, given, bytes_max, zstd, gzip, limits, scratch, places, progresses
):
    """Place the records of batches, from the progress' `batch` on.

    Args:
        batches: of dtype `BATCH`.
        window: bytes of the log from `window_position` on, in which the batches lie.
        content, room: the memory of decompressed content, for reading and for writing.
        given: the number of bytes at the start of `content` that are the next batch's content; −1: not decompressed
        yet. bytes_max: the most bytes of content of all batches but the first.
        zstd, gzip: see `Decompressors`.
        limits: the four fields of `WantedRecords`.
        scratch: two int64.
        progresses: one, which is advanced.
    """
    progress = progresses[0]
    while progress.batch < len(batches):
        number = progress.batch
        row = batches[number]
        at = row.position - window_position
        end = at + row.size
        codec = np.int64(row.attributes & ATTRIBUTE_CODEC)
        is_v2 = row.magic >= MAGIC_V2
        if is_v2 and row.records_count == 0:
            progress.batch += 1
            continue
        if is_v2:
            at += BATCH_V2_BYTES_MIN
        elif codec != 0:
            at, end = _value_of_wrapper(window, at, end, row.magic)
        if at < 0 or (not is_v2 and codec == _CODEC_ZSTD):
            progress.why = _REFUSED
            return
        source = window
        if codec != 0:
            start = progress.decompressed_bytes
            size = given
            if given < 0:
                size = decompress(codec, row.magic, window, at, end, room, start, zstd, gzip, scratch)
            if size < 0:
                progress.why = NEEDS_CONTENT if size == NO_ROOM else _REFUSED
                return
            source, at, end = content, start, start + size
        if is_v2:
            records = np.int64(row.records_count)
        else:
            records = _messages_in(source, at, end)[0] if codec != 0 else np.int64(1)
        if records <= 0 or records > end - at:
            progress.why = _REFUSED
            return
        if records > len(places) - progress.places or (progress.bytes > 0 and progress.bytes + end - at > bytes_max):
            progress.why, progress.needed = NEEDS_PLACES, records
            return
        if is_v2:
            count = _place_v2(number, row, source, at, end, limits, places, progress.places)
        elif codec != 0:
            count = _place_wrapper(number, row, source, at, end, limits, places, progress.places)
        else:
            offset, none = row.offset_field, np.int64(NO_TIMESTAMP)
            count = _place_message(number, source, at, end, offset, False, none, limits, places, progress.places)
        if count < 0:
            progress.why = _REFUSED
            return
        progress.places = count
        progress.bytes += end - at
        if codec != 0:
            progress.decompressed_bytes = end
        given = np.int64(-1)
        progress.batch += 1
    progress.why = _DONE


@njit(
    types.void(types.Array(from_dtype(PLACE), 1, "C"), types.int64, types.Array(from_dtype(CONTENTS), 1, "C")),
    **OPTIONS,
)
def summarize_placed_records(places, first, contents):
    """Sum up the records that `place_records` has placed, for each of their batches.

    Args:
        places: records, in the order of the log.
        first: the row in `contents` of the places' batch 0.
    """
    for number in range(len(places)):
        place = places[number]
        row = contents[first + place.batch]
        if row.records == 0:
            row.first_offset, row.largest_timestamp = place.offset, place.timestamp
        else:
            row.goes_back |= place.offset <= row.last_offset
            row.largest_timestamp = max(row.largest_timestamp, place.timestamp)
        row.last_offset = place.offset
        row.records += 1
