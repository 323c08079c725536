"""Log dirs that were built, as compaction finds them, without a catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kidxlib.catalog.segments import SegmentToCompact
from kidxlib.compaction.compact_partition import (
    CompactionOptions,
    CompactionTask,
    IndexChange,
    Mode,
    compact_each_partition,
)
from kidxlib.compaction.policy import CompactionPolicy, Rule
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.finish_partition import UnfinishedSegment, fold_and_publish
from kidxlib.indexing.plan import AuxiliaryFiles
from kidxlib.indexing.segments import BuiltSegment, build_segments
from kidxlib.indexing.source import parse_sources
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.location import Directory, Location
from tests.support.plans import plan_of

_HOUR_NS = 3600 * 10**9


def built(log_dir: Location, index_dir: Location | None, options: RecoverOptions | None = None) -> list[CompactionTask]:
    """Build a log dir, in place if there is no index dir, and return the tasks that a catalog would give."""
    plan = plan_of(parse_sources([f"it={log_dir}"]), index_dir, options=options)
    scanned: dict[PartitionKey, list[BuiltSegment]] = defaultdict(list)
    to_finish: dict[PartitionKey, list[UnfinishedSegment]] = defaultdict(list)
    for segment in build_segments(plan.build_tasks(publish_truncated=index_dir is not None), use_mmap=True):
        scanned[segment.task.segment.partition_key].append(segment)
        to_finish[segment.task.segment.partition_key].append(UnfinishedSegment.of(segment))
    for _ in fold_and_publish(
        (listed.partition_task(AuxiliaryFiles()), to_finish[listed.key]) for listed in plan.partitions
    ):
        pass
    return [
        CompactionTask(
            key=listed.key,
            segments_directory=Directory(str(listed.directory.log_dir), listed.directory.path.name),
            index_directory=listed.index_directory,
            segments=tuple(recorded(segment) for segment in scanned[listed.key]),
        )
        for listed in plan.partitions
    ]


def recorded(segment: BuiltSegment) -> SegmentToCompact:
    """A built segment as its row in a catalog has it."""
    facts = None if segment.recovered is None else segment.recovered.facts
    version, options = segment.version, segment.task.options
    return SegmentToCompact(
        base_offset=segment.task.segment.base_offset,
        status=segment.end.status,
        active=segment.task.segment.active,
        log_bytes=None if version is None else version.size,
        log_mtime_ns=None if version is None else version.mtime_ns,
        log_inode=None if version is None else version.inode,
        interval_bytes=options.interval_bytes,
        max_index_bytes=options.max_index_bytes,
        crc_checked=options.verify_crc,
        producer_state="log-start",
        log_path=segment.task.segment.path,
        index_directory=str(segment.task.index_directory),
        valid_bytes=None if facts is None else facts.valid_bytes,
        max_timestamp_ms=None if facts is None else facts.max_timestamp_ms,
        offsets_increase=facts is not None and facts.offsets_increase,
        offset_index_crc32c=None if segment.offset_index is None else segment.offset_index.crc32c,
        time_index_crc32c=None if segment.time_index is None else segment.time_index.crc32c,
        transaction_index_crc32c=None,
    )


def to_interval(interval_bytes: int) -> CompactionOptions:
    """Give every segment that is not active this interval."""
    return options(rules=[Rule(interval_bytes=interval_bytes)])


def options(
    *, rules: Sequence[Rule] = (), trim: bool = False, orphans: bool = False, now_ms: int = 0
) -> CompactionOptions:
    """Options with which files that a run or a broker has left are left-overs after an hour."""
    return CompactionOptions(
        policy=CompactionPolicy(tuple(rules)),
        trim=trim,
        orphans=orphans,
        now_ms=now_ms,
        clock_ms=now_ms,
        staged_delay_ns=_HOUR_NS,
        delete_delay_ns=_HOUR_NS,
    )


def applied(tasks: Sequence[CompactionTask], how: CompactionOptions, *, use_mmap: bool = True) -> list[IndexChange]:
    """The changes of a compaction that is applied; nobody else uses the log dirs."""
    log_dirs = frozenset(task.segments_directory.root for task in tasks if task.segments_directory is not None)
    return list(compact_each_partition(tasks, replace(how, locked=log_dirs), Mode.APPLY, use_mmap))


def planned(tasks: Sequence[CompactionTask], how: CompactionOptions, *, use_mmap: bool = True) -> list[IndexChange]:
    """The changes of a compaction that is only planned."""
    return list(compact_each_partition(tasks, how, Mode.PLAN, use_mmap))
