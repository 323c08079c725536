"""Walks over the batches of a log for many searches at once, compiled: the loops of `LogSegment.translate_offset` and
`find_offset_by_timestamp` over headers, and the one over the records of a batch.

A search starts at the position that an index gave it and goes from header to header. It sees one window of the log at
a time; all that it carries from window to window is in its `WALK` record. What a header does not tell, because the
batch has to be decompressed or is malformed, is left to the methods themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from kidxlib import formats
from kidxlib.compiled import njit
from kidxlib.storage import LogBytes
from kidxlib.wire_numbers import int32, int64, skip_bytes, skip_headers, varint, varlong


class Outcome(enum.IntEnum):
    """How a walk stands."""

    UNDECIDED = 0
    FOUND = 1
    NONE = 2  # the log ends, or a batch that is not whole follows
    NOT_IN_HEADERS = 3


#: A search on its way.
WALK: Final = np.dtype(
    [
        ("target", "i8"),  # offset, or timestamp in ms since the epoch
        ("position", "i8"),  # file position of the next batch, or of the one that was found
        ("outcome", "i8"),
        ("bytes_read", "i8"),  # of headers
        # The batch that was found, and the one before the next: its last offset, where there is one.
        ("base_offset", "i8"),
        ("leader_epoch", "i8"),
        ("previous_position", "i8"),  # −1: none
        ("previous_base_offset", "i8"),
        ("previous_last_offset", "i8"),
        ("previous_leader_epoch", "i8"),
    ]
)

_ENDS: Final = -1
_LEAVES_WINDOW: Final = -2
_UNTOLD: Final = -3

_NO_EPOCH: Final = formats.NO_LEADER_EPOCH
_NO_TIMESTAMP: Final = formats.NO_TIMESTAMP
_MAGIC_V2: Final = formats.MAGIC_V2
_HEADER_BYTES: Final = formats.BATCH_V2.itemsize
_LOG_OVERHEAD: Final = formats.LOG_OVERHEAD
_HEADER_SIZE_UP_TO_MAGIC: Final = formats.HEADER_SIZE_UP_TO_MAGIC
_SIZE_MIN: Final = formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN
_CODEC: Final = formats.ATTRIBUTE_CODEC
_SIZE_AT: Final = formats.field_position(formats.BATCH_V2, "batch_length")
_MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")
_LEADER_EPOCH_AT: Final = formats.field_position(formats.BATCH_V2, "partition_leader_epoch")
_LAST_OFFSET_DELTA_AT: Final = formats.field_position(formats.BATCH_V2, "last_offset_delta")
_MAX_TIMESTAMP_AT: Final = formats.field_position(formats.BATCH_V2, "max_timestamp")
_V1_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes")
_V1_TIMESTAMP_AT: Final = formats.field_position(formats.MESSAGE_V1, "timestamp")

_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
_LONGS: Final = types.Array(types.int64, 1, "C")
_WALKS: Final = types.Array(from_dtype(WALK), 1, "C")
_STEP: Final = types.int64(_BYTES, types.int64, types.int64, _WALKS, types.int64)
_OPTIONS: Final = {"cache": True, "boundscheck": False, "nogil": True}


@njit(inline="always")
def _sum(first, second):
    """It wraps, as Java's does. Of signed numbers the compiler takes for granted that sums do not."""
    return np.int64(np.uint64(first) + np.uint64(second))


@njit
def _next_size(window, window_position, log_bytes, walk):
    """All bytes of the batch at a walk's position (`records.batches`), or why that cannot be said."""
    position = walk.position
    if position >= log_bytes - _HEADER_SIZE_UP_TO_MAGIC:
        return np.int64(_ENDS)
    header_bytes = min(_HEADER_BYTES, log_bytes - position)
    at = position - window_position
    if position < 0:
        return np.int64(_UNTOLD)
    if at < 0 or at + header_bytes > len(window):
        return np.int64(_LEAVES_WINDOW)
    walk.bytes_read += header_bytes
    size = np.int64(int32(window, at + _SIZE_AT)) + _LOG_OVERHEAD
    if size < _SIZE_MIN:
        return np.int64(_UNTOLD)
    if size > log_bytes - position:
        return np.int64(_ENDS)
    magic = np.int8(window[at + _MAGIC_AT])
    if magic < 0 or (magic >= _MAGIC_V2 and size < _HEADER_BYTES):
        return np.int64(_UNTOLD)
    return size


@njit(inline="always")
def _last_offset(window, at):
    """Last offset and leader epoch of a batch, and whether it is a compressed one of magic 0 or 1."""
    offset = int64(window, at)
    if np.int8(window[at + _MAGIC_AT]) >= _MAGIC_V2:
        delta = np.int64(int32(window, at + _LAST_OFFSET_DELTA_AT))
        return _sum(offset, delta), np.int64(int32(window, at + _LEADER_EPOCH_AT)), False
    return offset, np.int64(_NO_EPOCH), window[at + _V1_ATTRIBUTES_AT] & _CODEC != 0


@njit(inline="always")
def _max_timestamp(window, at):
    """The largest timestamp of a batch, as it says itself; −1 of magic 0."""
    magic = np.int8(window[at + _MAGIC_AT])
    if magic >= _MAGIC_V2:
        return int64(window, at + _MAX_TIMESTAMP_AT)
    return int64(window, at + _V1_TIMESTAMP_AT) if magic == 1 else np.int64(_NO_TIMESTAMP)


@njit(inline="always")
def _previous_reaches(walk):
    """Whether the batch before the next holds the target; if so it is the one that was looked for."""
    if walk.previous_position < 0 or walk.previous_last_offset < walk.target:
        return False
    walk.outcome = Outcome.FOUND
    walk.position = walk.previous_position
    walk.base_offset = walk.previous_base_offset
    walk.leader_epoch = walk.previous_leader_epoch
    return True


@njit(_STEP, **_OPTIONS)
def step_to_offsets(window, window_position, log_bytes, walks, number):
    """`FileRecords.searchForOffsetFromPosition` for each walk from one on: the number of the first that leaves the
    window, or how many walks there are.
    """
    while number < len(walks):
        walk = walks[number]
        while walk.outcome == Outcome.UNDECIDED:
            size = _next_size(window, window_position, log_bytes, walk)
            if size == _LEAVES_WINDOW:
                return number
            if size == _UNTOLD:
                walk.outcome = Outcome.NOT_IN_HEADERS
                break
            if size == _ENDS:
                if not _previous_reaches(walk):
                    walk.outcome = Outcome.NONE
                break
            at = walk.position - window_position
            first_offset = int64(window, at)
            last_offset, epoch, is_wrapper = _last_offset(window, at)
            if is_wrapper and last_offset >= walk.target:
                walk.outcome = Outcome.NOT_IN_HEADERS  # where it starts is inside it
                break
            if first_offset >= walk.target:
                if first_offset == walk.target or not _previous_reaches(walk):
                    walk.outcome = Outcome.FOUND
                    walk.base_offset, walk.leader_epoch = first_offset, epoch
                break
            walk.previous_position, walk.previous_base_offset = walk.position, first_offset
            walk.previous_last_offset, walk.previous_leader_epoch = last_offset, epoch
            walk.position += size
        number += 1
    return number


@njit(_STEP, **_OPTIONS)
def step_to_timestamps(window, window_position, log_bytes, walks, number):
    """To the first batch that says that it has such a timestamp or a later one, likewise; its offsets are not told."""
    while number < len(walks):
        walk = walks[number]
        while walk.outcome == Outcome.UNDECIDED:
            size = _next_size(window, window_position, log_bytes, walk)
            if size == _LEAVES_WINDOW:
                return number
            if size == _UNTOLD:
                walk.outcome = Outcome.NOT_IN_HEADERS
                break
            if size == _ENDS:
                walk.outcome = Outcome.NONE
                break
            if _max_timestamp(window, walk.position - window_position) >= walk.target:
                walk.outcome = Outcome.FOUND
                break
            walk.position += size
        number += 1
    return number


#: What is asked of the batches before a file position, and of the one that starts there.
MEASURE: Final = np.dtype(
    [
        ("position", "i8"),
        ("is_batch", "i8"),  # a whole batch starts there
        ("base_offset", "i8"),  # its first field: of a wrapper the last offset
        ("last_offset", "i8"),
        ("last_offset_before", "i8"),  # the largest of the batches before it; `LEAST` where there are none
        ("max_timestamp_before", "i8"),  # likewise
    ]
)
LEAST: Final = -(2**63)
#: One walk over the whole log, and the largest that it has met.
_SWEEP: Final = np.dtype([("position", "i8"), ("bytes_read", "i8"), ("last_offset", "i8"), ("max_timestamp", "i8")])


@njit(
    types.int64(
        _BYTES,
        types.int64,
        types.int64,
        types.Array(from_dtype(_SWEEP), 1, "C"),
        types.Array(from_dtype(MEASURE), 1, "C"),
        types.int64,
    ),
    **_OPTIONS,
)
def _sweep(window, window_position, log_bytes, sweeps, measures, number):
    """Take the measures from one on: the number of the first that lies behind the window, or how many there are."""
    sweep = sweeps[0]
    while number < len(measures):
        size = _next_size(window, window_position, log_bytes, sweep)
        if size == _LEAVES_WINDOW:
            return number
        at = sweep.position - window_position
        while number < len(measures) and (size < 0 or measures[number].position <= sweep.position):
            measure = measures[number]
            measure.last_offset_before, measure.max_timestamp_before = sweep.last_offset, sweep.max_timestamp
            measure.is_batch = size >= 0 and measure.position == sweep.position
            if measure.is_batch:
                measure.base_offset, measure.last_offset = int64(window, at), _last_offset(window, at)[0]
            number += 1
        if size >= 0:
            sweep.last_offset = max(sweep.last_offset, _last_offset(window, at)[0])
            sweep.max_timestamp = max(sweep.max_timestamp, _max_timestamp(window, at))
            sweep.position += size
    return number


def measure(log: LogBytes, positions: NDArray[np.int64]) -> NDArray[np.void]:
    """What stands before and at file positions, of dtype `MEASURE`; the headers of the log are read once.

    Args:
        positions: of shape (n,), ascending.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    measures = np.zeros(len(positions), MEASURE)
    measures["position"] = positions
    sweeps = np.array([(0, 0, LEAST, LEAST)], _SWEEP)
    log_bytes, number = log.size, 0
    window_position, window = 0, np.empty(0, np.uint8)
    while (number := _sweep(window, window_position, log_bytes, sweeps, measures, number)) < len(measures):
        window_position, window = log.window(int(sweeps[0]["position"]))
    return measures


Step: TypeAlias = Callable[[NDArray[np.uint8], int, int, NDArray[np.void], int], int]


def new_walks(targets: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.void]:
    """Walks that start at these positions, of dtype `WALK`; both arrays have shape (n,)."""
    walks = np.zeros(len(targets), WALK)
    walks["target"], walks["position"], walks["previous_position"] = targets, positions, -1
    return walks


def walk(log: LogBytes, walks: NDArray[np.void], step: Step) -> None:
    """Take each walk to its end. Fastest where their positions increase.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    log_bytes, number = log.size, 0
    window_position, window = 0, np.empty(0, np.uint8)
    while (number := step(window, window_position, log_bytes, walks, number)) < len(walks):
        window_position, window = log.window(int(walks[number]["position"]))


@njit(
    types.int64(_BYTES, types.int64, types.int64, types.int64, types.boolean, types.int64, _LONGS, _LONGS),
    **_OPTIONS,
)
def read_records(content, count, base_offset, base_timestamp, append_time, max_timestamp, offsets, timestamps):
    """Offsets and timestamps of the records of a v2 batch (`DefaultRecordBatch.RecordIterator`).

    Args:
        content: the records, decompressed.
        append_time: they all have the batch's largest timestamp, which a broker gave them.
        offsets, timestamps: where they are put.

    Returns:
        How many stand before a malformed one: `count` where none is.
    """
    at, end = np.int64(0), np.int64(len(content))
    for number in range(count):
        size, start = varint(content, at, end)
        if start < 0 or size < 0 or size > end - start:
            return number
        at = start + size
        if number == count - 1 and at != end:
            return number
        if size == 0:
            return number
        timestamp_delta, field = varlong(
            content, start + 1, at
        )  # the first byte is attributes, none of which is in use
        if field < 0:
            return number
        offset_delta, field = varint(content, field, at)
        for _ in range(2):  # key and value
            if field >= 0:
                _, _, field = skip_bytes(content, field, at)
        if field < 0 or skip_headers(content, field, at) != at:
            return number
        offsets[number] = _sum(base_offset, offset_delta)
        timestamps[number] = max_timestamp if append_time else _sum(base_timestamp, timestamp_delta)
    return count
