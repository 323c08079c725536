"""Compiled walks over the batch headers of a log for many searches at once: the loops of `LogSegment.translate_offset`
and `find_offset_by_timestamp`, and facts about the batches before and at given file positions.

A search starts at the position from an index and goes from header to header. It sees one window of the log at a time;
its state between windows is its `_WALK` record. If a batch has to be decompressed or is malformed, the search is left
to these methods.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from kidxlib.format.bytes_kernel import BYTES, int64
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.records.read_kernel import (
    ENDS,
    LEAVES_WINDOW,
    UNDETERMINED,
    read_batch_size,
    read_last_offset,
    read_max_timestamp,
)
from kidxlib.storage.log_bytes import LogBytes

#: Facts about the batches before a file position, and the batch that starts there.
_MEASURE: Final = np.dtype(
    [
        ("position", "i8"),
        ("is_batch", "i8"),  # a whole batch starts there
        ("base_offset", "i8"),  # the batch's first field: in a wrapper the last offset
        ("last_offset", "i8"),
        ("last_offset_before", "i8"),  # the largest of the batches before it; `_LEAST` is none
        ("max_timestamp_before", "i8"),  # the largest timestamp of these batches; `_LEAST` is none
    ]
)
_LEAST: Final = -(2**63)
#: A walk over the whole log, with the largest offset and timestamp so far.
_SWEEP: Final = np.dtype([("position", "i8"), ("bytes_read", "i8"), ("last_offset", "i8"), ("max_timestamp", "i8")])


class SearchOutcome(enum.IntEnum):
    """How a search of batch headers ended."""

    UNDECIDED = 0
    FOUND = 1
    NONE = 2  # the log ends, or a torn batch follows
    NOT_IN_HEADERS = 3


#: The state of a search.
_WALK: Final = np.dtype(
    [
        ("target", "i8"),  # offset, or timestamp in ms since the epoch
        ("position", "i8"),  # file position of the next batch, or of the found one
        ("outcome", "i8"),
        ("bytes_read", "i8"),  # of headers
        # The found batch, and the batch before the next one, if there is one.
        ("base_offset", "i8"),
        ("leader_epoch", "i8"),
        ("previous_position", "i8"),  # −1: none
        ("previous_base_offset", "i8"),
        ("previous_last_offset", "i8"),
        ("previous_leader_epoch", "i8"),
    ]
)
_WALKS: Final = types.Array(from_dtype(_WALK), 1, "C")
_STEP: Final = types.int64(BYTES, types.int64, types.int64, _WALKS, types.int64)


@njit(forceinline=True)
def _previous_reaches(walk):
    """Whether the batch before the next one holds the target; if so it becomes the found batch."""
    if walk.previous_position < 0 or walk.previous_last_offset < walk.target:
        return False
    walk.outcome = SearchOutcome.FOUND
    walk.position = walk.previous_position
    walk.base_offset = walk.previous_base_offset
    walk.leader_epoch = walk.previous_leader_epoch
    return True


@njit(_STEP, **OPTIONS)
def step_to_offsets(window, window_position, log_bytes, walks, number):
    """`FileRecords.searchForOffsetFromPosition` for each walk from a number on. Returns the number of the first walk
    that leaves the window, or the number of walks.
    """
    while number < len(walks):
        walk = walks[number]
        while walk.outcome == SearchOutcome.UNDECIDED:
            size = read_batch_size(window, window_position, log_bytes, walk)
            if size == LEAVES_WINDOW:
                return number
            if size == UNDETERMINED:
                walk.outcome = SearchOutcome.NOT_IN_HEADERS
                break
            if size == ENDS:
                if not _previous_reaches(walk):
                    walk.outcome = SearchOutcome.NONE
                break
            at = walk.position - window_position
            first_offset = int64(window, at)
            last_offset, epoch, is_wrapper = read_last_offset(window, at)
            if is_wrapper and last_offset >= walk.target:
                walk.outcome = SearchOutcome.NOT_IN_HEADERS  # its base offset is inside the wrapper
                break
            if first_offset >= walk.target:
                if first_offset == walk.target or not _previous_reaches(walk):
                    walk.outcome = SearchOutcome.FOUND
                    walk.base_offset, walk.leader_epoch = first_offset, epoch
                break
            walk.previous_position, walk.previous_base_offset = walk.position, first_offset
            walk.previous_last_offset, walk.previous_leader_epoch = last_offset, epoch
            walk.position += size
        number += 1
    return number


@njit(_STEP, **OPTIONS)
def step_to_timestamps(window, window_position, log_bytes, walks, number):
    """Step each walk to the first batch whose header has this timestamp or a later one. Its offsets are not returned.
    Return values are those of `step_to_offsets`.
    """
    while number < len(walks):
        walk = walks[number]
        while walk.outcome == SearchOutcome.UNDECIDED:
            size = read_batch_size(window, window_position, log_bytes, walk)
            if size == LEAVES_WINDOW:
                return number
            if size == UNDETERMINED:
                walk.outcome = SearchOutcome.NOT_IN_HEADERS
                break
            if size == ENDS:
                walk.outcome = SearchOutcome.NONE
                break
            if read_max_timestamp(window, walk.position - window_position) >= walk.target:
                walk.outcome = SearchOutcome.FOUND
                break
            walk.position += size
        number += 1
    return number


Step: TypeAlias = Callable[[NDArray[np.uint8], int, int, NDArray[np.void], int], int]


def new_walks(targets: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.void]:
    """Searches of batch headers that begin at these positions, of dtype `_WALK`; both arrays have shape (n,)."""
    walks = np.zeros(len(targets), _WALK)
    walks["target"], walks["position"], walks["previous_position"] = targets, positions, -1
    return walks


def walk(log: LogBytes, walks: NDArray[np.void], step: Step) -> None:
    """Run each search of batch headers to its end; fastest if their positions increase."""
    log_bytes, number = log.size, 0
    window_position, window = 0, np.empty(0, np.uint8)
    while (number := step(window, window_position, log_bytes, walks, number)) < len(walks):
        window_position, window = log.window(int(walks[number]["position"]))


@njit(
    types.int64(
        BYTES,
        types.int64,
        types.int64,
        types.Array(from_dtype(_SWEEP), 1, "C"),
        types.Array(from_dtype(_MEASURE), 1, "C"),
        types.int64,
    ),
    **OPTIONS,
)
def _sweep(window, window_position, log_bytes, sweeps, measures, number):
    """Take the measures from `number` on. Return the number of the first one whose position is after the window, or the
    number of all measures.
    """
    sweep = sweeps[0]
    while number < len(measures):
        size = read_batch_size(window, window_position, log_bytes, sweep)
        if size == LEAVES_WINDOW:
            return number
        at = sweep.position - window_position
        while number < len(measures) and (size < 0 or measures[number].position <= sweep.position):
            measure = measures[number]
            measure.last_offset_before, measure.max_timestamp_before = sweep.last_offset, sweep.max_timestamp
            measure.is_batch = size >= 0 and measure.position == sweep.position
            if measure.is_batch:
                measure.base_offset, measure.last_offset = int64(window, at), read_last_offset(window, at)[0]
            number += 1
        if size >= 0:
            sweep.last_offset = max(sweep.last_offset, read_last_offset(window, at)[0])
            sweep.max_timestamp = max(sweep.max_timestamp, read_max_timestamp(window, at))
            sweep.position += size
    return number


def measure(log: LogBytes, positions: NDArray[np.int64]) -> NDArray[np.void]:
    """Walk over the batch headers of a log once, and measure the batches before and at file positions, as dtype
    `_MEASURE`. Positions have shape (n,) and increase.
    """
    measures = np.zeros(len(positions), _MEASURE)
    measures["position"] = positions
    sweeps = np.array([(0, 0, _LEAST, _LEAST)], _SWEEP)
    log_bytes, number = log.size, 0
    window_position, window = 0, np.empty(0, np.uint8)
    while (number := _sweep(window, window_position, log_bytes, sweeps, measures, number)) < len(measures):
        window_position, window = log.window(int(sweeps[0]["position"]))
    return measures
