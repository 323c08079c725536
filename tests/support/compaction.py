"""Log dirs that were built, as compaction finds them, without a catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kidxlib.build import BuiltSegment, build
from kidxlib.compact import Change, CompactionOptions, CompactionTask, Mode, RecordedSegment, compact
from kidxlib.compaction_policy import CompactionPolicy, Rule
from kidxlib.finish import SegmentTask, finish, segment_task
from kidxlib.objects import Location
from kidxlib.orphans import Delays
from kidxlib.plan import PartitionKey, SideFiles, Target, find_segments, parse_sources, parse_topics
from kidxlib.publish import Folder
from kidxlib.recover import RecoverOptions

_HOUR_NS = 3600 * 10**9


def built(log_dir: Location, index_dir: Location | None, options: RecoverOptions | None = None) -> list[CompactionTask]:
    """Build a log dir, in place where there is no index dir, and what a catalog would say of it."""
    target = Target(index_dir=index_dir, by_source=False, publish_truncated=index_dir is not None)
    used = options or RecoverOptions()
    plan = find_segments(parse_sources([f"it={log_dir}"]), parse_topics(".*"), target, lambda topic: used)
    scanned: dict[PartitionKey, list[BuiltSegment]] = defaultdict(list)
    to_finish: dict[PartitionKey, list[SegmentTask]] = defaultdict(list)
    for segment in build(plan.tasks, may_map=True):
        scanned[segment.task.segment.partition_key].append(segment)
        to_finish[segment.task.segment.partition_key].append(segment_task(segment))
    for _ in finish((listed.partition_task(SideFiles()), to_finish[listed.key]) for listed in plan.partitions):
        pass
    return [
        CompactionTask(
            key=listed.key,
            segments_folder=Folder(str(listed.folder.log_dir), listed.folder.path.name),
            index_folder=listed.index_folder,
            segments=tuple(recorded(segment) for segment in scanned[listed.key]),
        )
        for listed in plan.partitions
    ]


def recorded(segment: BuiltSegment) -> RecordedSegment:
    """A segment that was built, as its row has it."""
    facts = None if segment.recovered is None else segment.recovered.facts
    return RecordedSegment(
        base_offset=segment.task.segment.base_offset,
        status=segment.end.status,
        active=segment.task.segment.active,
        version=segment.version,
        valid_bytes=None if facts is None else facts.valid_bytes,
        max_timestamp_ms=None if facts is None else facts.max_timestamp_ms,
        options=segment.task.options,
        offsets_increase=facts is not None and facts.offsets_increase,
        finished=True,
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
    """Options; files that a run or a broker has left are left-overs after an hour."""
    return CompactionOptions(
        policy=CompactionPolicy(tuple(rules)),
        trim=trim,
        orphans=orphans,
        now_ms=now_ms,
        clock_ms=now_ms,
        delays=Delays(staged=_HOUR_NS, deleted=_HOUR_NS),
    )


def applied(tasks: Sequence[CompactionTask], how: CompactionOptions, *, may_map: bool = True) -> list[Change]:
    """What is done; nobody else uses the log dirs."""
    log_dirs = frozenset(task.segments_folder.root for task in tasks if task.segments_folder is not None)
    return list(compact(tasks, replace(how, locked=log_dirs), Mode.APPLY, may_map))


def planned(tasks: Sequence[CompactionTask], how: CompactionOptions, *, may_map: bool = True) -> list[Change]:
    """What would be."""
    return list(compact(tasks, how, Mode.PLAN, may_map))
