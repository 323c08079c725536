"""Whether a broker that finds a marker knows its producers: it has a snapshot, or the segments give it one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kidxlib.audit.startup.forgotten_producers import forgotten_producers
from kidxlib.audit.startup.producer_snapshots import ProducerSnapshots
from kidxlib.audit.startup.simulation import SimulatedSegment, StartupAction, StartupSimulation
from kidxlib.format.segment_files import LOG_SUFFIX, parse_snapshot, segment_file
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.partition import PartitionFold, ScannedSegment, StateSource
from kidxlib.recovery.segment import recover
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.location import location


def lacks_snapshot(directory: Path, alone: StartupSimulation, options: RecoverOptions) -> bool:
    """Whether no producer snapshot will be there for a broker that finds a marker, which takes that for no producers
    (`UnifiedLog.rebuildProducerState`).

    Args:
        alone: what the broker does by itself.
        options: of the topic.

    Raises:
        OSError, LogChangedError: a file cannot be read.
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
    return not snapshots and not _tell_producers(directory, left, options)


def _tell_producers(directory: Path, segments: Sequence[SimulatedSegment], options: RecoverOptions) -> bool:
    """Whether reading the segments gives a snapshot: they begin with the partition, and the first one is whole and ends
    where the second one begins.
    """
    if segments[0].base_offset != 0:
        return False
    fold, first = PartitionFold(lambda offset: None), _scanned(directory, segments[0], options)
    fold.add(first)
    if fold.end_source is StateSource.UNKNOWN:
        return False
    return fold.map_end_offset > 0 if len(segments) == 1 else first.next_offset == segments[1].base_offset


def forgotten_after_clean_stop(directory: Path, alone: StartupSimulation, options: RecoverOptions) -> str | None:
    """What a broker forgets as it starts by itself, having found no producer snapshot after a clean stop; None where
    it forgets nothing. Only then all of the log is read, for nothing else tells.

    Raises:
        OSError, LogChangedError: a log cannot be read.
    """
    if not alone.forgets_producers:
        return None
    fold = PartitionFold(lambda offset: None)
    for segment in alone.segments:
        fold.add(_scanned(directory, segment, replace(options, verify_crc=False)))
    return forgotten_producers(fold, location(str(directory)))


def _scanned(directory: Path, segment: SimulatedSegment, options: RecoverOptions) -> ScannedSegment:
    log = LogFile(str(directory / segment_file(segment.base_offset, LOG_SUFFIX)))
    log.keep_valid(segment.kept_bytes)
    try:
        return ScannedSegment.of(segment.base_offset, recover(log, segment.base_offset, options))
    finally:
        log.close()
