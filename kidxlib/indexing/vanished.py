"""Warnings of partitions, or the last of their segments, that are missing from a source.

A deleted topic looks like a lost directory, and no log is left to tell them apart. So they are reported to a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from re import Pattern
from typing import Final

from kidxlib.format.topic_partition import PartitionKey, TopicPartition, parse_partition_directory
from kidxlib.indexing.changes import Changes
from kidxlib.indexing.listing import offset_indexes
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import PartitionDirectory, Source, Target
from kidxlib.storage.location import Location, location
from kidxlib.text.words import counted

#: What is to be said of a partition, in one line.
Lines = Mapping[PartitionKey, str]

#: There is no catalog, or nothing was asked of it.
NOT_ASKED: Final[Mapping[PartitionKey, int]] = {}

_NO_DIRECTORY: Final = "and no directory: the topic was deleted or moved, or the directory is lost"


def without_directory(
    plan: Plan,
    sources: Sequence[Source],
    topics: Pattern[str],
    target: Target,
    in_catalog: Mapping[PartitionKey, int] = NOT_ASKED,
) -> Lines:
    """The partitions without a directory in the log dirs, which an index directory or the catalog knows, in order. A
    source without any segment is reported as a whole.

    Args:
        in_catalog: how many segments the catalog has of partitions that were not listed with any.
    """
    log_dirs = [source for source in sources if source.name in plan.log_dirs and source.name not in plan.empty]
    listed = {partition.key for partition in plan.partitions}
    found = _of_catalog(log_dirs, listed, in_catalog)
    for source in log_dirs:
        for partition in _indexed(source, target):
            key = source.name, partition.topic, partition.partition
            if key not in listed and topics.fullmatch(partition.topic):
                directory = PartitionDirectory(source, partition, source.path / partition.directory)
                index_directory = location(str(target.directory(directory)))
                if count := len(offset_indexes(index_directory)):
                    found[key] = (
                        f"{directory.path}: it has index files of {counted(count, 'segment')} in {index_directory}, "
                        f"{_NO_DIRECTORY}"
                    )
    return dict(sorted(found.items()))


def _of_catalog(
    log_dirs: Sequence[Source], listed: Collection[PartitionKey], in_catalog: Mapping[PartitionKey, int]
) -> dict[PartitionKey, str]:
    paths = {source.name: source.path for source in log_dirs}
    return {
        key: f"{_directory(paths[key[0]], key)}: it has {counted(count, 'segment')} in the catalog, {_NO_DIRECTORY}"
        for key, count in in_catalog.items()
        if count and key[0] in paths and key not in listed
    }


def _indexed(source: Source, target: Target) -> Iterator[TopicPartition]:
    """The partitions of a source that have directories in an index directory."""
    if target.index_dir is None:
        return
    root = target.index_dir / source.name if target.by_source else target.index_dir
    try:
        found = [parse_partition_directory(path.name) for path in root.iterdir()]
    except OSError:  # no index of this source is found, which is reported of each
        return
    yield from (partition for partition in found if partition is not None)


def of_changes(changes: Changes, sources: Sequence[Source]) -> list[str]:
    """The warnings of a build about partitions that end elsewhere than in the catalog: losses first."""
    paths = {source.name: source.path for source in sources}
    lost = [
        f"lost: {_directory(paths[key[0]], key)}: {_last_missing(len(offsets))}, from offset {min(offsets)} "
        "on, and those before are there: a broker has truncated the log, or files are lost (retention deletes at the "
        "beginning)"
        for key, offsets in sorted(changes.missing_at_end.items())
    ]
    gone = [
        f"missing: {_directory(paths[key[0]], key)}: {_all_missing(count)}: the topic was deleted or moved, or its "
        "directory is lost"
        for key, count in sorted(changes.emptied.items())
    ]
    return [*lost, *gone]


def _directory(source: Location, key: PartitionKey) -> Location:
    """Where a partition's directory was; the source may be that directory."""
    name = TopicPartition(key[1], key[2]).directory
    return source if source.name == name else source / name


def _last_missing(count: int) -> str:
    return "its last segment is missing" if count == 1 else f"its last {count:,} segments are missing"


def _all_missing(count: int) -> str:
    return "its one segment is missing" if count == 1 else f"all its {count:,} segments are missing"
