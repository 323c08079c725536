"""Warnings of partitions, or the last of their segments, that are missing from a source. A deleted topic looks like a
lost directory, and no log is left to tell them apart, so a person has to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from re import Pattern
from typing import Final

from kidxlib.format.topic_partition import PartitionKey, TopicPartition, parse_partition_directory
from kidxlib.indexing.changes import Changes
from kidxlib.indexing.listing import offset_indexes
from kidxlib.indexing.plan import Plan
from kidxlib.indexing.source import IndexPlace, PartitionDirectory, Source
from kidxlib.storage.location import Location, location
from kidxlib.text.words import counted

#: There is no catalog, or it was not asked.
NOT_ASKED: Final[Mapping[PartitionKey, int]] = {}

_NO_DIRECTORY: Final = "and no directory: the topic was deleted or moved, or the directory is lost"


def without_directory(
    plan: Plan,
    sources: Sequence[Source],
    topics: Pattern[str],
    index_place: IndexPlace,
    in_catalog: Mapping[PartitionKey, int] = NOT_ASKED,
) -> Mapping[PartitionKey, str]:
    """A line for each partition without a directory in the log dirs that an index directory or the catalog knows, in
    order. `in_catalog` has the number of segments of partitions without a listed segment. A source without any segment
    is reported as a whole.
    """
    log_dirs = [source for source in sources if source.name in plan.log_dirs and source.name not in plan.empty]
    listed = {partition.key for partition in plan.partitions}
    lines = _of_catalog(log_dirs, listed, in_catalog)
    for source in log_dirs:
        for partition in _indexed(source, index_place):
            key = source.name, partition.topic, partition.partition
            if key not in listed and topics.fullmatch(partition.topic):
                directory = PartitionDirectory(source, partition, source.path / partition.directory)
                index_directory = location(str(index_place.directory(directory)))
                if count := len(offset_indexes(index_directory)):
                    lines[key] = (
                        f"{directory.path}: it has index files of {counted(count, 'segment')} in {index_directory}, "
                        f"{_NO_DIRECTORY}"
                    )
    return dict(sorted(lines.items()))


def _of_catalog(
    log_dirs: Sequence[Source], listed: Collection[PartitionKey], in_catalog: Mapping[PartitionKey, int]
) -> dict[PartitionKey, str]:
    paths = {source.name: source.path for source in log_dirs}
    return {
        key: f"{_directory(paths[key[0]], key)}: it has {counted(count, 'segment')} in the catalog, {_NO_DIRECTORY}"
        for key, count in in_catalog.items()
        if count and key[0] in paths and key not in listed
    }


def _indexed(source: Source, index_place: IndexPlace) -> Iterator[TopicPartition]:
    """The partitions of a source with a directory in the index directory."""
    if index_place.index_dir is None:
        return
    root = index_place.index_dir / source.name if index_place.by_source else index_place.index_dir
    try:
        partitions = [parse_partition_directory(path.name) for path in root.iterdir()]
    except OSError:  # there is no index of this source, which is reported for each segment
        return
    yield from filter(None, partitions)


def warnings_of_missing(changes: Changes, sources: Sequence[Source]) -> list[str]:
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
