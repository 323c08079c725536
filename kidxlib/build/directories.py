"""Where index files are: beside their logs, or in an index directory, which has a directory for each partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kidxlib.build.source import PartitionDirectory
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.directory import Directory
from kidxlib.storage.location import Location, location


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where index files go, or are.

    Attributes:
        index_dir: the index directory; None for beside the segments.
        by_source: in the index directory, partitions are below their source's name.
    """

    index_dir: Location | None
    by_source: bool

    def directory(self, partition: PartitionDirectory) -> Directory:
        name = partition.topic_partition.directory
        if self.index_dir is None:
            return Directory(str(partition.log_dir), partition.path.name)
        return Directory(str(self.index_dir), f"{partition.source.name}/{name}" if self.by_source else name)


def segments_directory(source: Location, topic_partition: TopicPartition, logs: Mapping[int, str]) -> Directory | None:
    """The directory of a partition's logs, below their source; None if a table says that they are elsewhere.

    Args:
        logs: their paths in that table, by base offset.
    """
    name = topic_partition.directory
    for log_dir in (source, source.parent):  # the source may be a log dir, or this very partition's directory
        paths = (str(log_dir / name / segment_file(base_offset, LOG_SUFFIX)) for base_offset in logs)
        if all(path == recorded for path, recorded in zip(paths, logs.values(), strict=True)):
            return Directory(str(log_dir), name)
    return None


def index_directory(topic_partition: TopicPartition, recorded: Collection[str]) -> Directory | None:
    """The directory of a partition's index files; None if a table names several directories, or one of another
    partition.
    """
    path = location(min(recorded))
    if len(set(recorded)) > 1 or path.name != topic_partition.directory:
        return None
    return Directory(str(path.parent), path.name)
