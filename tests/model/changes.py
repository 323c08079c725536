"""A listing compared with the catalog segment by segment, as plainly as it can be said: the model of
`kidxlib.indexing.changes`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kidxlib.catalog.rows import SegmentKey
from kidxlib.catalog.segments import IntervalSource, KnownSegment
from kidxlib.catalog.tables import FACTS_VERSION
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.changes import PartitionChange
from kidxlib.indexing.plan import AuxiliaryFiles, BuildTask, Plan, PlannedPartition
from kidxlib.recovery.options import INTERVAL, MAX_INDEX
from kidxlib.recovery.outcome import ABSENT, Status
from kidxlib.storage.location import list_directory

#: The catalog's segments by base offset, partition by partition.
Known = Mapping[PartitionKey, Mapping[int, KnownSegment]]


@dataclass(slots=True)
class PlainChanges:
    """As `Changes`, with a task for each segment to read, and other segments by their keys."""

    to_read: list[BuildTask] = field(default_factory=list)
    unchanged: int = 0
    unchanged_bytes: int = 0
    relisted: list[tuple[PartitionKey, int, bool, str]] = field(default_factory=list)
    gone: list[tuple[PartitionKey, int]] = field(default_factory=list)
    emptied: dict[PartitionKey, int] = field(default_factory=dict)
    missing_at_end: dict[PartitionKey, list[int]] = field(default_factory=dict)
    to_finish: dict[PartitionKey, PartitionChange] = field(default_factory=dict)


def known_of(rows: pa.Table) -> Known:
    """Rows of the catalog as the model takes them."""
    known: dict[PartitionKey, dict[int, KnownSegment]] = {}
    for key, segment in zip(SegmentKey.of_arrow(rows), KnownSegment.of_arrow(rows), strict=True):
        known.setdefault(key.partition_key, {})[segment.base_offset] = segment
    return known


def compare_plainly(
    plan: Plan,
    known: Known,
    auxiliary_files: AuxiliaryFiles,
    *,
    publish_truncated: bool,
    explicit_interval: bool,
    rebuild: bool,
) -> PlainChanges:
    """What `compare` is to give."""
    changes = PlainChanges()
    tasks: dict[PartitionKey, list[BuildTask]] = {}
    for task in plan.build_tasks(publish_truncated=publish_truncated):
        tasks.setdefault(task.segment.partition_key, []).append(task)
    partitions = {partition.key: partition for partition in plan.partitions}
    without_segments = partitions.keys() - tasks.keys()
    whole = _without_auxiliary_files(plan, tasks, auxiliary_files)
    to_fold: dict[PartitionKey, list[int]] = defaultdict(list)
    for key in sorted({*tasks, *known}):
        gone = dict(known.get(key, {}))
        if key not in tasks:
            if key[0] in plan.log_dirs or key in without_segments:
                _add_emptied(changes, plan, key, gone)
            continue
        for task in tasks[key]:
            segment = task.segment
            before = gone.pop(segment.base_offset, None)
            if before is not None and not rebuild:
                task, before = _with_kept(task, before, partitions[key], explicit_interval=explicit_interval)
            if rebuild or _repairs_indexes(task) or before is None or not _is_unchanged(task, before):
                changes.to_read.append(task)
                to_fold[key].append(segment.base_offset)
                continue
            if not before.is_finished or not _transaction_index_is_there(task, before):
                to_fold[key].append(segment.base_offset)
            changes.unchanged += 1
            changes.unchanged_bytes += task.log_bytes
            if (before.active, before.log_path) != (segment.active, segment.path):
                changes.relisted.append((key, segment.base_offset, segment.active, segment.path))
        changes.gone += _present(key, gone)
        changes.missing_at_end |= _missing_at_end(key, gone, tasks[key][-1])
    changes.to_finish = {
        key: PartitionChange(
            partitions[key].topic_id,
            of_partition[0].segment.base_offset,
            None if key in whole else min(to_fold[key]),
            len(of_partition),
        )
        for key, of_partition in tasks.items()
        if key in whole or key in to_fold
    }
    return changes


def _with_kept(
    task: BuildTask, before: KnownSegment, partition: PlannedPartition, *, explicit_interval: bool
) -> tuple[BuildTask, KnownSegment]:
    """The task with what its segment was built with, where that stays."""
    only_once_told = _only_once_told(partition, before)
    if MAX_INDEX in only_once_told:
        before = replace(before, max_index_bytes=task.options.max_index_bytes)
    by_compaction = before.interval_source is IntervalSource.COMPACTION
    if (task.only is None and not by_compaction and INTERVAL not in only_once_told) or explicit_interval:
        return task, before
    options = replace(task.options, interval_bytes=before.interval_bytes)
    return replace(task, options=options, interval_source=before.interval_source), before


def _only_once_told(partition: PlannedPartition, before: KnownSegment) -> set[str]:
    """The settings that the metadata of the topic's cluster told, and that nobody tells now."""
    if before.interval_source is not IntervalSource.METADATA:
        return set()
    return {name for name in (INTERVAL, MAX_INDEX) if not partition.choice.is_told(name, partition.topic_id)}


def _present(key: PartitionKey, segments: Mapping[int, KnownSegment]) -> Iterator[tuple[PartitionKey, int]]:
    return ((key, base_offset) for base_offset, known in sorted(segments.items()) if known.status not in ABSENT)


def _add_emptied(changes: PlainChanges, plan: Plan, key: PartitionKey, known: Mapping[int, KnownSegment]) -> None:
    if key not in plan.unlistable and key[0] not in plan.empty and (present := list(_present(key, known))):
        changes.gone += present
        changes.emptied[key] = len(present)


def _missing_at_end(
    key: PartitionKey, gone: Mapping[int, KnownSegment], last: BuildTask
) -> Mapping[PartitionKey, list[int]]:
    later = {offset: known for offset, known in gone.items() if offset > last.segment.base_offset}
    offsets = sorted(
        base_offset
        for (_, base_offset) in _present(key, later)
        if later[base_offset].topic_id == last.topic_id or None in (later[base_offset].topic_id, last.topic_id)
    )
    return {key: offsets} if offsets else {}


def _without_auxiliary_files(
    plan: Plan, tasks: Mapping[PartitionKey, list[BuildTask]], wanted: AuxiliaryFiles
) -> set[PartitionKey]:
    found = {partition.key for partition in plan.partitions if partition.only is not None}
    if not (wanted.snapshots or wanted.epochs):
        return found
    for key, (_, *later) in tasks.items():
        names = {LEADER_EPOCH_CHECKPOINT} if wanted.epochs else set()
        if wanted.snapshots:
            names |= {segment_file(task.segment.base_offset, SNAPSHOT_SUFFIX) for task in later}
        if not names <= set(list_directory(tasks[key][0].index_directory)):
            found.add(key)
    return found


def _repairs_indexes(task: BuildTask) -> bool:
    """Whether it repairs named files, its offset or time index among them."""
    names = {segment_file(task.segment.base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
    return task.only is not None and bool(names & task.only)


def _is_unchanged(task: BuildTask, before: KnownSegment) -> bool:
    options = task.options
    return (
        before.catalog_version >= FACTS_VERSION
        and before.status in (Status.OK, Status.TRUNCATED, Status.QUARANTINED)
        and before.version == task.segment.version
        and before.topic_id == task.topic_id
        and before.interval_bytes == options.interval_bytes
        and before.max_index_bytes == options.max_index_bytes
        and (before.crc_checked or not options.verify_crc)
        and before.index_directory == str(task.index_directory)
        and _files_are_there(task, before)
    )


def _files_are_there(task: BuildTask, before: KnownSegment) -> bool:
    if before.offset_index_bytes is None or before.time_index_bytes is None:
        return before.status is Status.QUARANTINED or not task.publish_truncated
    found = _size_of(task, OFFSET_INDEX_SUFFIX), _size_of(task, TIME_INDEX_SUFFIX)
    return found == (before.offset_index_bytes, before.time_index_bytes)


def _transaction_index_is_there(task: BuildTask, before: KnownSegment) -> bool:
    if before.transaction_index_bytes is None:
        return True
    return _size_of(task, TRANSACTION_INDEX_SUFFIX) == before.transaction_index_bytes


def _size_of(task: BuildTask, suffix: str) -> int | None:
    try:
        return os.lstat(os.path.join(str(task.index_directory), segment_file(task.segment.base_offset, suffix))).st_size
    except OSError:
        return None
