"""Partitions to compact, from their rows in the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kidxlib.build.directories import index_directory, segments_directory
from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.compaction.task import CompactionTask
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.recovery.outcome import ABSENT
from kidxlib.storage.location import location


def compaction_task(
    key: PartitionKey, segments: Sequence[SegmentToCompact], sources: Mapping[str, str]
) -> CompactionTask | None:
    """A partition; None where its rows do not say where its index files are."""
    source, topic, number = key
    partition = TopicPartition(topic, number)
    # Rows of segments that are gone tell of where things were.
    present = [segment for segment in segments if segment.status not in ABSENT] or segments
    directory = index_directory(partition, [segment.index_directory for segment in present])
    if directory is None:
        return None
    path = sources.get(source)
    logs = {segment.base_offset: segment.log_path for segment in present}
    return CompactionTask(
        key=key,
        segments_directory=None if path is None else segments_directory(location(path), partition, logs),
        index_directory=directory,
        segments=tuple(segments),
    )
