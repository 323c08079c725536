"""Reads the timestamp that a broker takes for a segment's largest after a clean stop: the last entry of the
`.timeindex`, whatever it is. The broker reads no batch for it (`LogSegment.maxTimestampSoFar`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.retention.policy import PlanWarning
from kidxlib.storage.location import location


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The largest timestamp in a segment's `.timeindex`.

    Attributes:
        max_timestamp: ms since the epoch; −1 if the index has no entry, or is missing: a broker makes an empty one.
        warning: what is wrong with the index, if the segment is known to have larger timestamps.
    """

    max_timestamp: int
    warning: PlanWarning | None


def max_timestamp_on_disk(directories: Sequence[str], base_offset: int, known: int) -> OnDisk | None:
    """The largest timestamp in a segment's time index, from the first directory with an index file of the segment. None
    if there is no `.index`: a broker then rebuilds the indexes, and finds `known`, the largest timestamp in the log.
    """
    for directory in directories:
        time_index = os.path.join(directory, segment_file(base_offset, TIME_INDEX_SUFFIX))
        if (location(directory) / segment_file(base_offset, OFFSET_INDEX_SUFFIX)).exists():
            return _read(time_index, base_offset, known)
        if location(time_index).exists():
            return None
    return None


def _read(path: str, base_offset: int, known: int) -> OnDisk:
    try:
        last = TimeIndex.open(path, base_offset).last_entry
    except FileNotFoundError:
        last = TimestampOffset(layouts.NO_TIMESTAMP, base_offset)
    warning = None
    if last.timestamp < known:
        padded = last == TimestampOffset(0, base_offset)
        warning = PlanWarning.TIME_INDEX_PADDED if padded else PlanWarning.TIME_INDEX_INCOMPLETE
    return OnDisk(last.timestamp, warning)
