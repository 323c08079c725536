"""Partitions that the cluster's metadata gives to a broker, and of which no directory is in its log dirs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kidxlib.audit.startup.log_dir_entries import directories_in
from kidxlib.audit.startup.meta_properties import was_formatted
from kidxlib.errors import CheckpointError, KidxError
from kidxlib.format.topic_partition import TopicPartition, is_moved, loaded_as
from kidxlib.log.cluster_metadata.read import ClusterMetadata
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import MetaProperties, read_topic_id


def absent_partitions(
    log_dirs: Collection[Location],
    means: Callable[[TopicPartition], bool],
    brokers: BrokersMetadata,
    there: Collection[TopicPartition],
    *,
    by_name: bool,
) -> list[LeftOut]:
    """Absent partitions that are asked for: those of a log dir that is read, and those of others of the broker. Where
    no log dir has the metadata, another one has, and the numbers of a topic's partitions tell some: they begin at 0 and
    lack none.

    Args:
        log_dirs: those that are read as a whole.
        means: whether a partition is asked for.
        there: partitions that have a directory.
        by_name: topics or partitions are asked for by their names, so that one in a log dir that is not read is a
            problem, and not merely good to know.
    """
    found: dict[TopicPartition, LeftOut] = {}
    topic_ids: dict[str, str] = {}
    owners = list[MetaProperties]()
    for log_dir in brokers.log_dirs:
        with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
            if log_dir in log_dirs:
                owners.append(brokers.owner(log_dir))
    for node_id, cluster_id in {(owner.node_id, owner.cluster_id) for owner in owners}:
        with contextlib.suppress(OSError, KidxError):
            metadata = None if cluster_id is None else brokers.of_cluster(cluster_id)
            if metadata is not None and node_id is not None:
                topic_ids |= metadata.to_end.topics
                directories = {owner.directory_id for owner in owners if owner.node_id == node_id}
                for each in _absent(means, metadata.to_end, node_id, directories, by_name=by_name):
                    found.setdefault(each.partition, each)
    if log_dirs_without_metadata(log_dirs, brokers):
        for partition in filter(means, numbered_below(there)):
            found.setdefault(partition, _absent_one(partition, Why.NOT_IN_LOG_DIRS, None, is_problem=by_name))
    moved = _moved_folders(log_dirs)
    return [
        replace(each, aside=_aside(moved.get(partition, ()), topic_ids.get(partition.topic)))
        for partition, each in sorted(found.items())
        if partition not in there
    ]


def not_anywhere(partitions: Iterable[TopicPartition]) -> Iterator[LeftOut]:
    """Partitions that are asked for by their names, and that nobody knows."""
    for partition in partitions:
        yield _absent_one(partition, Why.NOT_ANYWHERE, None, is_problem=True)


def _moved_folders(log_dirs: Iterable[Location]) -> Mapping[TopicPartition, Sequence[Location]]:
    """The folders of partitions that brokers move, delete or have set aside."""
    found: defaultdict[TopicPartition, list[Location]] = defaultdict(list)
    for log_dir in log_dirs:
        with contextlib.suppress(OSError):
            for folder in directories_in(log_dir):
                if is_moved(folder.name) and (partition := loaded_as(folder.name)) is not None:
                    found[partition].append(folder)
    return found


def _aside(folders: Iterable[Location], topic_id: str | None) -> str | None:
    """The first folder that is not of a topic of that name that was deleted before."""
    for folder in folders:
        with contextlib.suppress(OSError, CheckpointError):
            if topic_id is None or read_topic_id(folder) in (topic_id, None):
                return str(folder)
    return None


def log_dirs_without_metadata(log_dirs: Iterable[Location], brokers: BrokersMetadata) -> list[Location]:
    """Log dirs of nodes with KRaft whose metadata is in none of the log dirs that are looked at."""
    found = []
    for log_dir in log_dirs:
        with contextlib.suppress(OSError, KidxError):
            owner = brokers.owner(log_dir)
            if owner.is_kraft and owner.cluster_id is not None and brokers.of_cluster(owner.cluster_id) is None:
                found.append(log_dir)
            # Without meta.properties nobody knows whose it is: the metadata of any log dir may be that of its broker.
            if owner == MetaProperties() and was_formatted(log_dir) and not any(map(_has_metadata, brokers.log_dirs)):
                found.append(log_dir)
    return found


def _has_metadata(log_dir: Location) -> bool:
    return (log_dir / METADATA_DIRECTORY).exists()


def may_be_elsewhere(log_dir: Location) -> str:
    """What is said of a log dir without metadata."""
    return (
        f"{log_dir}: no {METADATA_DIRECTORY} in it, so that another log dir of its broker has that, and perhaps "
        "partitions that are asked for; name all log dirs"
    )


def numbered_below(there: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """The partitions that topics have by the largest numbers of those that are there."""
    last: defaultdict[str, int] = defaultdict(int)
    for each in there:
        last[each.topic] = max(last[each.topic], each.partition)
    for topic, number in last.items():
        yield from (TopicPartition(topic, below) for below in range(number))


def _absent_one(partition: TopicPartition, why: Why, directory_id: str | None, *, is_problem: bool) -> LeftOut:
    return LeftOut(
        partition=partition,
        why=why,
        first_offset=0,
        end_offset=None,
        edge=0,
        directory_id=directory_id,
        is_problem=is_problem,
    )


def _absent(
    means: Callable[[TopicPartition], bool],
    metadata: ClusterMetadata,
    node_id: int,
    directories: Collection[str | None],
    *,
    by_name: bool,
) -> Iterator[LeftOut]:
    """All partitions of a broker, as if none were there."""
    all_are_read = set(metadata.log_dirs.get(node_id, ())) <= set(directories)
    for partition, assignment in metadata.assignments.items():
        if node_id in assignment.replicas and means(partition):
            number = assignment.replicas.index(node_id)
            directory_id = assignment.directories[number] if number < len(assignment.directories) else None
            is_here = all_are_read or (directory_id is not None and directory_id in directories)
            why = Why.NO_DIRECTORY if is_here else Why.OTHER_LOG_DIR
            yield _absent_one(partition, why, directory_id, is_problem=is_here or by_name)
