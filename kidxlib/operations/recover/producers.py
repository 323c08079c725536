"""Whether a broker that finds a marker would know its producers: it has a snapshot, or the segments give it one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kidxlib.audit.startup.producer_snapshots import ProducerSnapshots
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.errors import MalformedRecordsError
from kidxlib.format.segment_files import parse_snapshot
from kidxlib.log.segment import LogSegment


def lacks_snapshot(directory: Path, alone: StartupSimulation) -> bool:
    """Whether no producer snapshot will be there for a broker that finds a marker, which takes that for no producers
    (`UnifiedLog.rebuildProducerState`).

    Args:
        alone: what the broker does by itself.

    Raises:
        OSError: a file cannot be read.
    """
    left = [segment for segment in alone.segments if segment.action is not StartupAction.DELETE]
    start, end = alone.log_start_offset, alone.log_end_offset
    if start is None or end is None or start == end or not left:
        return False
    deleted = {segment.base_offset for segment in alone.segments} - {segment.base_offset for segment in left}
    offsets = set(map(parse_snapshot, os.listdir(directory)))
    snapshots = ProducerSnapshots(
        {offset: True for offset in offsets if offset is not None and offset <= end and offset not in deleted}
    )
    snapshots.remove_strays([segment.base_offset for segment in left])
    return not snapshots and not _tell_producers(directory, left)


def _tell_producers(directory: Path, segments: Sequence[SimulatedSegment]) -> bool:
    """Whether reading the segments gives a snapshot: they begin with the partition, and the second one where the first
    one ends (`recovery.partition.PartitionFold`).
    """
    first = segments[0]
    if first.base_offset != 0:
        return False
    if len(segments) == 1:
        return bool(first.map_end_offset)
    return _next_offset(directory, first) == segments[1].base_offset


def _next_offset(directory: Path, segment: SimulatedSegment) -> int | None:
    if segment.next_offset is not None:
        return segment.next_offset
    try:
        return LogSegment.open(directory, segment.base_offset).next_offset()
    except MalformedRecordsError:
        return None
