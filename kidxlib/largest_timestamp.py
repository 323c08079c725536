"""What a broker takes for the largest timestamp in a segment when it opens its files after a clean stop.

It reads no batch for that: the last entry of the `.timeindex` counts, whatever it is (`LogSegment.maxTimestampSoFar`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kidxlib import formats
from kidxlib.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.objects import location
from kidxlib.retention import Surprise
from kidxlib.time_index import TimeIndex, TimestampOffset


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What a segment's `.timeindex` says.

    Attributes:
        max_timestamp: ms since the epoch; −1 where it has no entry, or is missing: then a broker makes an empty one.
        surprise: what is wrong with it, where its segment is known to have larger timestamps.
    """

    max_timestamp: int
    surprise: Surprise | None


def max_timestamp_on_disk(folders: Sequence[str], base_offset: int, known: int) -> OnDisk | None:
    """What the first of some folders says that has an index file of the segment.

    Args:
        known: the largest timestamp in the log.

    Returns:
        None where there is no `.index`: then a broker rebuilds the indexes, and finds what is known.

    Raises:
        OSError: the time index cannot be read.
    """
    for folder in folders:
        time_index = os.path.join(folder, segment_file(base_offset, TIME_INDEX_SUFFIX))
        if (location(folder) / segment_file(base_offset, OFFSET_INDEX_SUFFIX)).exists():
            return _read(time_index, base_offset, known)
        if location(time_index).exists():
            return None
    return None


def _read(path: str, base_offset: int, known: int) -> OnDisk:
    try:
        last = TimeIndex.open(path, base_offset).last_entry
    except FileNotFoundError:
        last = TimestampOffset(formats.NO_TIMESTAMP, base_offset)
    surprise = None
    if last.timestamp < known:
        padded = last == TimestampOffset(0, base_offset)
        surprise = Surprise.TIME_INDEX_PADDED if padded else Surprise.TIME_INDEX_CUT_SHORT
    return OnDisk(last.timestamp, surprise)
