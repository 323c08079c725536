"""Partitions that the cluster's metadata gives to a broker, and of which no directory is in its log dirs; and what
these know of their brokers: whose they are, and the metadata, which one of a broker's log dirs has.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.absent import by_node
from kidxlib.audit.startup.log_dir_entries import directories_in
from kidxlib.audit.startup.markers import of_another_time, stopped_apart
from kidxlib.audit.startup.node import was_formatted
from kidxlib.errors import CheckpointError, KidxError
from kidxlib.format.not_segments import NotASegment
from kidxlib.format.topic_partition import TopicPartition, is_moved, is_other_name, loaded_as, looks_like
from kidxlib.indexing.skipped import Skipped
from kidxlib.log.cluster_metadata.image import ClusterMetadata, read_despite_damage
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.reading.left_out import COPY_IT, LeftOut, Why, mount
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import (
    PARTITION_METADATA,
    MetaProperties,
    looks_unmounted,
    read_meta_properties,
    read_topic_id,
)
from kidxlib.text.words import counted

#: Directories that have a partition's records and are not read.
_SET_ASIDE: Final = (NotASegment.DIRECTORY_STRAY, NotASegment.DIRECTORY_DELETE, NotASegment.DIRECTORY_FUTURE)


class BrokersMetadata:
    """Reads files of log dirs, each once.

    Attributes:
        log_dirs: those that are looked at.
    """

    def __init__(self, log_dirs: Iterable[Location], known: Mapping[Location, ClusterMetadata] | None = None) -> None:
        """
        Args:
            known: metadata of the clusters of log dirs that somebody has read already.
        """
        self.log_dirs = list(dict.fromkeys(log_dirs))
        self._owners: dict[Location, MetaProperties] = {}
        self._metadata: dict[str, ClusterMetadata | None] = {}
        for log_dir, metadata in (known or {}).items():
            with contextlib.suppress(OSError, KidxError):  # its owner is not known
                if (cluster_id := self.owner(log_dir).cluster_id) is not None:
                    self._metadata[cluster_id] = metadata

    def owner(self, log_dir: Location) -> MetaProperties:
        """The owner of a log dir: its cluster and node, by `meta.properties`."""
        if log_dir not in self._owners:
            self._owners[log_dir] = read_meta_properties(log_dir)
        return self._owners[log_dir]

    def of_cluster(self, cluster_id: str) -> ClusterMetadata | None:
        """The metadata of a cluster; None if none of the log dirs has it."""
        if cluster_id not in self._metadata:
            self._metadata[cluster_id] = None
            for log_dir in self.log_dirs:
                if self.owner(log_dir).cluster_id == cluster_id and (log_dir / METADATA_DIRECTORY).exists():
                    self._metadata[cluster_id] = read_despite_damage(log_dir / METADATA_DIRECTORY)
                    break
        return self._metadata[cluster_id]

    def of_another_time(self) -> tuple[Mapping[Location, str], list[str]]:
        """Log dirs that are older than another one of their broker, and so lack what was written since, and what
        `kidx verify` says of each; and what says of others that they may be, by the metadata that one of them has.
        """
        older = {each.where.parent: str(each) for of_node in self._of_nodes() for each in stopped_apart(of_node)}
        maybe, by_marker = list[str](), frozenset(older)
        for log_dir in (each for of_node in self._of_nodes() for each in of_node):
            with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
                owner = self.owner(log_dir)
                metadata = None if owner.cluster_id is None else self.of_cluster(owner.cluster_id)
                if metadata is None or owner.node_id is None or by_marker & {log_dir, metadata.directory.parent}:
                    continue
                said = of_another_time(log_dir, directories_in(log_dir), owner.node_id, metadata.to_end)
                if said is not None:
                    maybe.append(said)
        return older, maybe

    def _of_nodes(self) -> list[list[Location]]:
        """The log dirs of each broker that has several here."""
        groups = by_node(self.log_dirs) if len(self.log_dirs) > 1 else []
        return [of_node for of_node in groups if len(of_node) > 1]


def not_of_one_time(
    brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]
) -> tuple[list[LeftOut], list[str]]:
    """What was written since to partitions in log dirs that are older than others of their broker; and what tells of
    log dirs that none of the partitions is in, or that they may be older.

    Args:
        there: partitions that are read, with their log dirs.
    """
    older, maybe = brokers.of_another_time()
    left_out = [
        LeftOut(
            partition=partition,
            why=Why.OLDER_LOG_DIR,
            first_offset=0,
            end_offset=None,
            edge=0,
            told_by=older[log_dir],
        )
        for partition, log_dir in there
        if log_dir in older
    ]
    told = {each.told_by for each in left_out}
    return left_out, [*(line for line in older.values() if line not in told), *maybe]


def of_other_topics(brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]) -> Iterator[LeftOut]:
    """The partitions whose `partition.metadata` has another topic id than the cluster's metadata has for their topic: a
    broker serves none of them, and what is in them may be another topic's.

    Args:
        there: partitions that are read, with their log dirs.
    """
    names: dict[str, Mapping[str, str]] = {}
    for partition, log_dir in there:
        with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
            cluster_id = brokers.owner(log_dir).cluster_id
            metadata = None if cluster_id is None else brokers.of_cluster(cluster_id)
            if cluster_id is None or metadata is None:
                continue
            if cluster_id not in names:
                names[cluster_id] = metadata.to_end.topic_names
            found = read_topic_id(log_dir / partition.directory)
            told = found and other_topic_id(found, partition.topic, metadata.to_end, names[cluster_id])
            if not told:
                continue
            yield LeftOut(
                partition=partition,
                why=Why.OTHER_TOPIC_ID,
                first_offset=0,
                end_offset=None,
                edge=0,
                told_by=(
                    f"{PARTITION_METADATA} there has {told}: the records may be another topic's; kidx verify says what "
                    "to do"
                ),
            )


def other_topic_id(topic_id: str, topic: str, metadata: ClusterMetadata, names: Mapping[str, str]) -> str | None:
    """Why a topic id is not the topic's, in words; None if it is, or one of them is not known.

    Args:
        topic_id: in the `partition.metadata` of a directory with the topic's name.
        metadata: read to its end.
        names: of its topics, by their ids.
    """
    expected = metadata.topics.get(topic)
    if topic_id == expected or (expected is None and topic_id not in names):
        return None
    whose = f", which is {names[topic_id]}'s" if topic_id in names else ""
    has = "no such topic" if expected is None else f"{expected} for this topic"
    return f"{topic_id}{whose}, and the cluster's metadata has {has}"


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
    folders = _other_folders(log_dirs) if found else []
    empty = unmounted_in(log_dirs) if found else None
    return [
        _with_place(replace(each, aside=_aside(folders, partition, topic_ids.get(partition.topic))), empty)
        for partition, each in sorted(found.items())
        if partition not in there
    ]


def _with_place(absent: LeftOut, empty: str | None) -> LeftOut:
    """Add the empty log dirs that may have the partition once they are mounted; then its absence is a problem."""
    if empty is None or absent.why is Why.NO_DIRECTORY:
        return absent
    return replace(absent, unmounted=empty, is_problem=True)


def unmounted_in(log_dirs: Collection[Location]) -> str | None:
    """The empty log dirs, as if a disk is not mounted, in words; None if none is empty."""
    found = sorted(str(log_dir) for log_dir in log_dirs if looks_unmounted(log_dir))
    return ", ".join(found) or None


def not_anywhere(partitions: Iterable[TopicPartition]) -> Iterator[LeftOut]:
    """The partitions that are asked for by name and are not known anywhere."""
    for partition in partitions:
        yield _absent_one(partition, Why.NOT_ANYWHERE, None, is_problem=True)


def folders_passed_over(
    place: str, skipped: Skipped, there: Iterable[TopicPartition], meant: Iterable[TopicPartition]
) -> Iterator[str]:
    """The folders that have records and are not looked into: those that a broker moves, deletes or has set aside, and
    those that somebody has renamed.

    Args:
        place: where they are.
        skipped: what a listing has met there besides partitions.
        there: partitions that it has met.
        meant: those of them that are asked for.
    """
    for reason in _SET_ASIDE:
        if count := skipped.counts[reason]:
            yield f"{place}: not read: {counted(count, 'directory', 'directories')} ({reason.in_words}); {COPY_IT}"
    listed = [*(Path(path).name for path, _ in skipped.unexpected), *(each.directory for each in there)]
    names, asked = list(filter(is_other_name, listed)), list(meant)
    if renamed := sorted({name for name in names if any(looks_like(name, each) for each in asked)}):
        them, few = counted(len(renamed), "directory", "directories"), ", ".join(renamed[:3])
        yield f"{place}: not read: {them} with a partition's name and more ({few}); {COPY_IT}"


def _other_folders(log_dirs: Iterable[Location]) -> list[Location]:
    """The folders whose names are not those of partitions, or begin with a dot."""
    found: list[Location] = []
    for log_dir in log_dirs:
        with contextlib.suppress(OSError):
            found += [folder for folder in directories_in(log_dir) if is_other_name(folder.name)]
    return found


def _aside(folders: Iterable[Location], partition: TopicPartition, topic_id: str | None) -> str | None:
    """The first folder of a partition that brokers move, delete or have set aside, or that somebody has renamed; not of
    a topic of that name that was deleted before.
    """
    for folder in folders:
        is_of_it = is_moved(folder.name) and loaded_as(folder.name) == partition
        if not is_of_it and not looks_like(folder.name, partition):
            continue
        with contextlib.suppress(OSError, CheckpointError):
            if topic_id is None or read_topic_id(folder) in (topic_id, None):
                return str(folder)
    return None


def log_dirs_without_metadata(log_dirs: Iterable[Location], brokers: BrokersMetadata) -> list[Location]:
    """Log dirs of nodes with KRaft whose metadata is in none of the log dirs that are looked at; where one of them has
    the directory, and nothing in it, that one.
    """
    found = list[Location]()
    for log_dir in log_dirs:
        with contextlib.suppress(OSError, KidxError):
            owner = brokers.owner(log_dir)
            if owner.is_kraft and owner.cluster_id is not None and brokers.of_cluster(owner.cluster_id) is None:
                found.append(log_dir)
            # Without meta.properties nobody knows whose it is: the metadata of any log dir may be that of its broker.
            if owner == MetaProperties() and was_formatted(log_dir) and not any(map(_has_metadata, brokers.log_dirs)):
                found.append(log_dir)
    holders = {brokers.owner(each).cluster_id: each for each in found if _has_metadata(each)}
    return [each for each in found if holders.get(brokers.owner(each).cluster_id, each) == each]


def _has_metadata(log_dir: Location) -> bool:
    return (log_dir / METADATA_DIRECTORY).exists()


def may_be_elsewhere(log_dir: Location, unmounted: str | None) -> str:
    """The words for a log dir without metadata.

    Args:
        unmounted: `unmounted_in` the log dirs that are read.
    """
    if _has_metadata(log_dir):
        lacking = f"nothing there that can be read, so that nobody can tell which partitions {log_dir} should have"
        return f"{log_dir / METADATA_DIRECTORY}: {lacking}; kidx verify says what is wrong"
    return (
        f"{log_dir}: no {METADATA_DIRECTORY} in it, so that another log dir of its broker has that, and perhaps "
        f"partitions that are asked for; {'name all log dirs' if unmounted is None else mount(unmounted)}"
    )


def numbered_below(there: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """The partitions with numbers below the largest number that is there, for each topic."""
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
