"""The marks of a segment on the timeline, as bits of a number; a piece of several segments has the bits of all."""

from __future__ import annotations

import enum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.recovery.outcome import Status
from kidxlib.retention.decide import Flags, Longs


class Mark(enum.IntFlag):
    ACTIVE = 1
    EXPIRED = 2  # it goes by the topic's own policy
    TRUNCATED = 4
    QUARANTINED = 8
    UNREADABLE = 16
    GONE = 32
    DELETED = 64
    FUTURE = 128  # its largest timestamp is more than an hour ahead
    BACKWARDS = 256  # an earlier segment has a larger timestamp
    GAP = 512  # it begins above the end of the segment before it
    OVERLAP = 1024  # it begins below that end
    UNREAD = 2048  # a remote segment that brokers do not read
    BROKEN = 4096  # an audit found a file of it torn or broken
    DIFFERS = 8192  # it holds the first offset at which this replica differs from others


MARKS: Final = tuple(mark.name for mark in Mark if mark.name is not None)
#: How far a timestamp may be ahead of the report's time: a broker's default of `message.timestamp.after.max.ms`.
FUTURE_MS: Final = 3_600_000
_OF_STATUS: Final = {
    Status.TRUNCATED: Mark.TRUNCATED,
    Status.QUARANTINED: Mark.QUARANTINED,
    Status.CHANGED: Mark.UNREADABLE,
    Status.UNREADABLE: Mark.UNREADABLE,
    Status.GONE: Mark.GONE,
    Status.DELETED: Mark.DELETED,
}


def marks_of_status(status: Values) -> Longs:
    """The mark of each segment's status; 0 if it is ok."""
    indices: Values = pc.index_in(status, value_set=pa.array([known.value for known in _OF_STATUS]))
    numbers = indices.fill_null(len(_OF_STATUS)).to_numpy()
    marks: Longs = np.array([*_OF_STATUS.values(), 0], np.int64)[numbers]
    return marks


def marks_of_neighbours(
    starts: Flags, base_offsets: Longs, next_offsets: Longs, timestamps: Longs, now_ms: int
) -> Longs:
    """Gaps, overlaps and timestamps that go back, of segments in order; `starts` are the first ones of a partition in a
    source. An unknown next offset is −1. Timestamps are the largest, ms since the epoch, below 0 where there is none;
    one that is ahead of the report's time tells nothing about those after it.
    """
    marks = np.zeros(len(starts), np.int64)
    before = np.append(-1, next_offsets[:-1])
    is_known = ~starts & (before >= 0)
    marks[is_known & (base_offsets > before)] |= Mark.GAP
    marks[is_known & (base_offsets < before)] |= Mark.OVERLAP
    firsts = np.flatnonzero(starts)
    for start, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(starts)], strict=True):
        here = timestamps[start:end]
        is_back = (here >= 0) & (here < np.maximum.accumulate(np.where(here > now_ms + FUTURE_MS, -1, here)))
        marks[start:end][is_back] |= Mark.BACKWARDS
    return marks
