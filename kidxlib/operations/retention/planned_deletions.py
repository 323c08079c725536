"""The rows of a recorded plan: what is to go of each partition, and how the partition stood then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Final

import pyarrow as pa

from kidxlib.build.directories import index_directory, segments_directory
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.matching import positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.retention_plans import SegmentInPlan, SegmentToDelete
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.operations.retention.recorded_plan import RecordedPlan
from kidxlib.recovery.outcome import ABSENT, USABLE, Status
from kidxlib.retention.plan import PartitionDeletion, PartitionThen, PlannedSegment, SegmentThen
from kidxlib.retention.reasons import Decision, Reason
from kidxlib.run.recorded_sources import source_paths
from kidxlib.storage.location import Location, location
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.scope import scope_of


def planned_deletions(plan: RecordedPlan) -> list[PartitionDeletion]:
    """What is to go of each partition.

    Raises:
        UsageError: it lies in an object store, or elsewhere than its source.
    """
    going = plan.read(SegmentToDelete.names(), [Among("decision", (Decision.DELETE.value,))])
    segments = SegmentToDelete.of_arrow(going.sort_by([(name, "ascending") for name in SEGMENTS.key]))
    for segment in segments:
        if is_object(segment.log_path) or is_object(segment.index_directory):
            raise UsageError(
                f"--apply: {segment.log_path}, with its index files in {segment.index_directory}: nothing is deleted "
                "in an object store, where a file cannot be renamed first; delete what the plan names with the object "
                "store's own tools"
            )
    paths = source_paths(plan.tables)
    return [
        _deletion(key, list(of_partition), location(paths.get(key[0], "/")))
        for key, of_partition in groupby(segments, key=lambda segment: segment.partition_key)
    ]


def _deletion(key: PartitionKey, segments: Sequence[SegmentToDelete], source: Location) -> PartitionDeletion:
    """What is to go of a partition. Its place follows from its source's, and is to be what it was in the plan.

    Raises:
        UsageError: it is not.
    """
    partition = TopicPartition(key[1], key[2])
    logs = {segment.base_offset: segment.log_path for segment in segments}
    log_directory = segments_directory(source, partition, logs)
    if log_directory is None:
        raise UsageError(
            f"{segments[0].log_path}: not in {source}, where source {key[0]} was at its last build; run "
            "build_index and plan again"
        )
    auxiliary_files = index_directory(partition, [segment.index_directory for segment in segments])
    if auxiliary_files is None:
        raise UsageError(
            f"{segments[0].index_directory}: not the one index directory of {partition.directory}; run build_index and "
            "plan again"
        )
    return PartitionDeletion(
        key=key,
        segments_directory=log_directory,
        index_directory=auxiliary_files,
        segments=tuple(_file(segment) for segment in segments),
    )


def _file(segment: SegmentToDelete | SegmentInPlan) -> PlannedSegment:
    return PlannedSegment(segment.base_offset, segment.bytes or 0, segment.log_mtime_ns, segment.log_inode)


def partitions_then(plan: RecordedPlan, keys: Collection[PartitionKey]) -> dict[PartitionKey, PartitionThen]:
    """Partitions as they were planned, less what the catalog says of their segments by now: one that a build since then
    has found to be damaged is not fully read.
    """
    if not keys:
        return {}
    wanted = pa.table([list(column) for column in zip(*keys, strict=True)], schema=PARTITIONS.schema(PARTITIONS.key))
    scope = scope_of({"wanted": wanted}, PARTITIONS.key)
    planned = plan.read(SegmentInPlan.names(), scope)
    planned = planned.filter(positions_in(planned, wanted, PARTITIONS.key) >= 0)
    planned = planned.sort_by([(name, "ascending") for name in SEGMENTS.key])
    now = plan.tables.read(SEGMENTS, [*SEGMENTS.key, "status"], scope)
    words, at = now["status"].to_pylist(), positions_in(planned, now, SEGMENTS.key).tolist()
    statuses = [None if place < 0 else Status(words[place]) for place in at]
    found = zip(SegmentInPlan.of_arrow(planned), statuses, strict=True)
    return {
        key: _partition_then(list(segments)) for key, segments in groupby(found, key=lambda each: each[0].partition_key)
    }


#: A segment that a run before this one has renamed was usable before.
_STILL_FULLY_READ: Final = frozenset({*USABLE, *ABSENT})


def _partition_then(found: Sequence[tuple[SegmentInPlan, Status | None]]) -> PartitionThen:
    """A partition from its segments, each with its status in the catalog by now; None: the catalog no longer has it."""
    first, _ = found[0]
    return PartitionThen(
        topic_id=first.topic_id,
        log_start_offset=first.log_start_offset,
        high_watermark=first.high_watermark,
        segments=[_segment_then(segment, status) for segment, status in found],
    )


def _segment_then(segment: SegmentInPlan, status: Status | None) -> SegmentThen:
    # Only a plan of an older release lacks these, and such a plan is never applied.
    assert segment.next_offset is not None and segment.counted_bytes is not None
    assert segment.largest_timestamp_ms is not None
    return SegmentThen(
        file=_file(segment),
        next_offset=segment.next_offset,
        counted_bytes=segment.counted_bytes,
        max_timestamp_ms=-1 if segment.age_from_mtime else segment.largest_timestamp_ms,
        fully_read=segment.reason != Reason.NOT_WELL.value and status in _STILL_FULLY_READ,
        deleted=status is Status.DELETED,
    )
