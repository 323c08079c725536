"""Partitions that the cluster's metadata gives to a broker, and of which no directory is in its log dirs; and what
these know of their brokers: whose they are, and the metadata, which one of a broker's log dirs has.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.absent import log_dirs_by_node
from kidxlib.audit.startup.directories import directories_in
from kidxlib.audit.startup.last_stop import why_of_another_time
from kidxlib.audit.startup.node import obstacles_of_older_log_dirs, was_formatted
from kidxlib.errors import CheckpointError, ClusterMetadataError, KidxError, describe_error
from kidxlib.format.segment_files import NotASegment
from kidxlib.format.topic_partition import TopicPartition, is_moved, is_other_name, loaded_as, may_be_renamed
from kidxlib.indexing.listing import Skipped
from kidxlib.log.metadata_image import ClusterMetadata, read_despite_damage
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.reading.unread_offsets import COPY_IT, LeftOut, Why, mount_remedy
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
    """The owners of log dirs and the metadata of their clusters. Files are read at the first question, and once.

    `known` is metadata that was read already, by a log dir of its cluster.
    """

    def __init__(self, log_dirs: Iterable[Location], known: Mapping[Location, ClusterMetadata] | None = None) -> None:
        self.log_dirs = list(dict.fromkeys(log_dirs))
        self._owners: dict[Location, MetaProperties] = {}
        self._copies: dict[Location, ClusterMetadata] = {}
        self._metadata: dict[str, ClusterMetadata | None] = {}
        self._unread: dict[str, list[str]] = {}
        for log_dir, metadata in (known or {}).items():
            with contextlib.suppress(OSError, KidxError):  # its owner is not known
                if (cluster_id := self.owner(log_dir).cluster_id) is not None:
                    self._metadata[cluster_id] = _furthest([metadata, self._metadata.get(cluster_id)])

    def owner(self, log_dir: Location) -> MetaProperties:
        """The cluster and the node of a log dir."""
        if log_dir not in self._owners:
            self._owners[log_dir] = read_meta_properties(log_dir)
        return self._owners[log_dir]

    def of_cluster(self, cluster_id: str) -> ClusterMetadata | None:
        """The metadata of a cluster; None if none of the log dirs has it. Where several nodes have a copy, that which
        goes furthest counts, of those that can be read.
        """
        if cluster_id not in self._metadata:
            copies, failed, unread = list[ClusterMetadata](), list[KidxError | OSError](), list[str]()
            for log_dir in self.log_dirs:
                try:
                    if self.owner(log_dir).cluster_id == cluster_id and _has_metadata(log_dir):
                        copies.append(self._copy(log_dir))
                except (CheckpointError, ClusterMetadataError, OSError) as error:
                    if self._is_of_another_cluster(log_dir, cluster_id):
                        continue
                    failed.append(error)
                    if _has_metadata(log_dir):
                        unread.append(describe_error(error))
            furthest = _furthest(copies)
            if furthest is None and failed:
                self._metadata[cluster_id] = None
                raise failed[0]
            self._unread[cluster_id] = [] if furthest is None else [furthest.instead_of(why) for why in unread]
            self._metadata[cluster_id] = furthest
        return self._metadata[cluster_id]

    def _copy(self, log_dir: Location) -> ClusterMetadata:
        if log_dir not in self._copies:
            self._copies[log_dir] = read_despite_damage(log_dir / METADATA_DIRECTORY)
        return self._copies[log_dir]

    def _is_of_another_cluster(self, log_dir: Location, cluster_id: str) -> bool:
        """Whether a log dir whose `meta.properties` cannot be read has the metadata of another cluster: copies of one
        cluster have topic ids in common. Where nothing tells, it may be of any cluster.
        """
        if log_dir in self._owners:
            return False
        clusters: set[str | None] = set()
        for other in self.log_dirs:
            with contextlib.suppress(OSError, KidxError):  # nothing tells of this one, either
                if (name := self.owner(other).cluster_id) is not None and _has_metadata(other):
                    ids = self._copy(log_dir).to_end.topics.values()
                    clusters |= {name} if {*ids} & {*self._copy(other).to_end.topics.values()} else set()
        return bool(clusters) and cluster_id not in clusters

    def metadata_of(self, log_dir: Location) -> ClusterMetadata | None:
        """The metadata of a log dir's cluster; None if none of the log dirs has it."""
        cluster_id = self.owner(log_dir).cluster_id
        return None if cluster_id is None else self.of_cluster(cluster_id)

    def unread_copies(self, log_dir: Location) -> Sequence[str]:
        """A line on each copy of the metadata of a log dir's cluster that cannot be read, and in place of which another
        one counts: it may have been the newest.
        """
        if self.metadata_of(log_dir) is None:
            return ()
        return self._unread.get(self.owner(log_dir).cluster_id or "", ())

    def older_log_dirs(self) -> tuple[Mapping[Location, str], list[str]]:
        """Log dirs that are older than another log dir of their broker, and so lack what was written since, each with
        what `kidx verify` says of it; and lines on others that may be older by the cluster's metadata.
        """
        groups = log_dirs_by_node(self.log_dirs) if len(self.log_dirs) > 1 else []
        brokers = [log_dirs for log_dirs in groups if len(log_dirs) > 1]
        older = {
            finding.where.parent: str(finding)
            for log_dirs in brokers
            for finding in obstacles_of_older_log_dirs(log_dirs)
        }
        maybe = list[str]()
        for log_dir in (log_dir for log_dirs in brokers for log_dir in log_dirs):
            with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
                node_id, metadata = self.owner(log_dir).node_id, self.metadata_of(log_dir)
                if metadata is None or node_id is None or older.keys() & {log_dir, metadata.directory.parent}:
                    continue
                line = why_of_another_time(log_dir, directories_in(log_dir), node_id, metadata.to_end)
                if line is not None:
                    maybe.append(line)
        return older, maybe


def _furthest(copies: Iterable[ClusterMetadata | None]) -> ClusterMetadata | None:
    return max((copy for copy in copies if copy is not None), key=lambda copy: copy.how_far, default=None)


def not_of_one_time(
    brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]
) -> tuple[list[LeftOut], list[str]]:
    """The offsets that partitions lack because their log dir is older than another of its broker; and lines on log dirs
    that are older and have none of the partitions, or that may be older, and on copies of the metadata that cannot be
    read, so that the metadata may be older.
    """
    older, maybe = brokers.older_log_dirs()
    for log_dir in brokers.log_dirs:
        with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
            maybe += [line for line in brokers.unread_copies(log_dir) if line not in maybe]
    left_out = [
        LeftOut(
            partition=partition,
            why=Why.OLDER_LOG_DIR,
            told_by=older[log_dir],
        )
        for partition, log_dir in there
        if log_dir in older
    ]
    told = {left.told_by for left in left_out}
    return left_out, [*(line for line in older.values() if line not in told), *maybe]


def of_other_topics(brokers: BrokersMetadata, there: Iterable[tuple[TopicPartition, Location]]) -> Iterator[LeftOut]:
    """The partitions whose `partition.metadata` has another topic id than the cluster's metadata has for their topic: a
    broker serves none of them, and their records may be another topic's.
    """
    names: dict[Location, Mapping[str, str]] = {}
    for partition, log_dir in there:
        with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
            metadata = brokers.metadata_of(log_dir)
            if metadata is None:
                continue
            if metadata.directory not in names:
                names[metadata.directory] = metadata.to_end.topic_names
            topic_id = read_topic_id(log_dir / partition.directory)
            topic_names = names[metadata.directory]
            differs = topic_id and other_topic_id(topic_id, partition.topic, metadata.to_end, topic_names)
            if not differs:
                continue
            yield LeftOut(
                partition=partition,
                why=Why.OTHER_TOPIC_ID,
                told_by=(
                    f"{PARTITION_METADATA} there has {differs}: the records may be another topic's; kidx verify says "
                    "what to do"
                ),
            )


def other_topic_id(topic_id: str, topic: str, metadata: ClusterMetadata, names: Mapping[str, str]) -> str | None:
    """Why the topic id in a `partition.metadata` is not the topic's; None if it is, or if the metadata knows neither.

    `metadata` is read to its end, and `names` are those of its topics by id.
    """
    expected = metadata.topics.get(topic)
    if topic_id == expected or (expected is None and topic_id not in names):
        return None
    whose = f", which is {names[topic_id]}'s" if topic_id in names else ""
    has = "no such topic" if expected is None else f"{expected} for this topic"
    return f"{topic_id}{whose}, and the cluster's metadata has {has}"


def absent_partitions(
    log_dirs: Collection[Location],
    asks_for: Callable[[TopicPartition], bool],
    brokers: BrokersMetadata,
    there: Collection[TopicPartition],
    *,
    by_name: bool,
) -> list[LeftOut]:
    """The absent partitions for which `asks_for` is true: those of a log dir that is read as a whole (`log_dirs`), and
    those of other log dirs of the broker. Where no log dir has the metadata, another one has it, and the numbers of a
    topic's partitions tell some: they begin at 0 and lack none.

    If partitions are asked for `by_name`, one in a log dir that is not read is a problem, and not merely good to know.
    """
    absent: dict[TopicPartition, LeftOut] = {}
    topic_ids: dict[str, str] = {}
    owners = list[MetaProperties]()
    for log_dir in brokers.log_dirs:
        with contextlib.suppress(OSError, KidxError):  # nothing is told of a log dir of which nothing is known
            if log_dir in log_dirs:
                owners.append(brokers.owner(log_dir))
    for node_id, cluster_id in {(owner.node_id, owner.cluster_id) for owner in owners}:
        with contextlib.suppress(OSError, KidxError):
            metadata = None if cluster_id is None else brokers.of_cluster(cluster_id)
            if metadata is not None and node_id is not None:
                topic_ids |= metadata.to_end.topics
                directories = {owner.directory_id for owner in owners if owner.node_id == node_id}
                for left in _assigned(asks_for, metadata.to_end, node_id, directories, by_name=by_name):
                    absent.setdefault(left.partition, left)
    if log_dirs_without_metadata(log_dirs, brokers):
        for partition in filter(asks_for, numbered_below(there)):
            left = LeftOut(partition=partition, why=Why.NOT_IN_LOG_DIRS, is_problem=by_name)
            absent.setdefault(partition, left)
    folders = _other_folders(log_dirs) if absent else []
    empty = unmounted_in(log_dirs) if absent else None
    return [
        _with_place(replace(left, aside=_aside(folders, partition, topic_ids.get(partition.topic))), empty)
        for partition, left in sorted(absent.items())
        if partition not in there
    ]


def _with_place(absent: LeftOut, empty: str | None) -> LeftOut:
    """Add the empty log dirs that may have the partition once they are mounted; then its absence is a problem."""
    if empty is None or absent.why is Why.NO_DIRECTORY:
        return absent
    return replace(absent, unmounted=empty, is_problem=True)


def unmounted_in(log_dirs: Collection[Location]) -> str | None:
    """The empty log dirs, as if a disk is not mounted, in words; None if none is empty."""
    return ", ".join(sorted(str(log_dir) for log_dir in log_dirs if looks_unmounted(log_dir))) or None


def folders_passed_over(
    place: str, skipped: Skipped, there: Iterable[TopicPartition], meant: Iterable[TopicPartition]
) -> Iterator[str]:
    """Lines on the directories that have records and are not read: those that a broker moves, deletes or has set aside,
    and those that somebody has renamed.

    A listing of `place` gave `skipped` and the partitions that are `there`; those of them that are asked for are
    `meant`.
    """
    for reason in _SET_ASIDE:
        if count := skipped.counts[reason]:
            yield f"{place}: not read: {counted(count, 'directory', 'directories')} ({reason.in_words}); {COPY_IT}"
    listed = [*(Path(path).name for path, _ in skipped.unexpected), *(partition.directory for partition in there)]
    names, asked = list(filter(is_other_name, listed)), list(meant)
    if renamed := sorted({name for name in names if any(may_be_renamed(name, partition) for partition in asked)}):
        directories, first_names = counted(len(renamed), "directory", "directories"), ", ".join(renamed[:3])
        yield f"{place}: not read: {directories} with a partition's name and more ({first_names}); {COPY_IT}"


def _other_folders(log_dirs: Iterable[Location]) -> list[Location]:
    """The directories whose names are not those of partitions, or begin with a dot."""
    folders: list[Location] = []
    for log_dir in log_dirs:
        with contextlib.suppress(OSError):
            folders += [folder for folder in directories_in(log_dir) if is_other_name(folder.name)]
    return folders


def _aside(folders: Iterable[Location], partition: TopicPartition, topic_id: str | None) -> str | None:
    """The first directory of a partition that brokers move, delete or have set aside, or that somebody has renamed. A
    deleted topic's directory does not count, though it has the same name.
    """
    for folder in folders:
        is_moved_there = is_moved(folder.name) and loaded_as(folder.name) == partition
        if not is_moved_there and not may_be_renamed(folder.name, partition):
            continue
        with contextlib.suppress(OSError, CheckpointError):
            if topic_id is None or read_topic_id(folder) in (topic_id, None):
                return str(folder)
    return None


def log_dirs_without_metadata(log_dirs: Iterable[Location], brokers: BrokersMetadata) -> list[Location]:
    """Log dirs of nodes with KRaft whose metadata is in none of the log dirs that are looked at; if one of a cluster's
    has the directory, and nothing in it, that one alone.
    """
    without = list[Location]()
    for log_dir in log_dirs:
        with contextlib.suppress(OSError, KidxError):
            owner = brokers.owner(log_dir)
            if owner.is_kraft and owner.cluster_id is not None and brokers.of_cluster(owner.cluster_id) is None:
                without.append(log_dir)
            # Without meta.properties nobody knows whose it is: the metadata of any log dir may be that of its broker.
            if owner == MetaProperties() and was_formatted(log_dir) and not any(map(_has_metadata, brokers.log_dirs)):
                without.append(log_dir)
    holders = {brokers.owner(log_dir).cluster_id: log_dir for log_dir in without if _has_metadata(log_dir)}
    return [log_dir for log_dir in without if holders.get(brokers.owner(log_dir).cluster_id, log_dir) == log_dir]


def _has_metadata(log_dir: Location) -> bool:
    """Whether a log dir has a copy of the metadata; also where a disk does not tell: who reads it says why."""
    try:
        return (log_dir / METADATA_DIRECTORY).exists()
    except OSError:
        return True


def may_be_elsewhere(log_dir: Location, unmounted: str | None) -> str:
    """The line on a log dir without metadata; `unmounted` is that of the log dirs that are read."""
    if _has_metadata(log_dir):
        lacking = f"nothing there that can be read, so that nobody can tell which partitions {log_dir} should have"
        return f"{log_dir / METADATA_DIRECTORY}: {lacking}; kidx verify says what is wrong"
    return (
        f"{log_dir}: no {METADATA_DIRECTORY} in it, so that another log dir of its broker has that, and perhaps "
        f"partitions that are asked for; {'name all log dirs' if unmounted is None else mount_remedy(unmounted)}"
    )


def numbered_below(there: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """The partitions with numbers below the largest number that is there, for each topic."""
    last: defaultdict[str, int] = defaultdict(int)
    for partition in there:
        last[partition.topic] = max(last[partition.topic], partition.partition)
    for topic, number in last.items():
        yield from (TopicPartition(topic, below) for below in range(number))


def _assigned(
    asks_for: Callable[[TopicPartition], bool],
    metadata: ClusterMetadata,
    node_id: int,
    directories: Collection[str | None],
    *,
    by_name: bool,
) -> Iterator[LeftOut]:
    """All partitions that a broker is assigned, as if none were there."""
    all_are_read = set(metadata.log_dirs.get(node_id, ())) <= set(directories)
    for partition, assignment in metadata.assignments.items():
        if node_id in assignment.replicas and asks_for(partition):
            number = assignment.replicas.index(node_id)
            directory_id = assignment.directories[number] if number < len(assignment.directories) else None
            is_here = all_are_read or (directory_id is not None and directory_id in directories)
            why = Why.NO_DIRECTORY if is_here else Why.OTHER_LOG_DIR
            yield LeftOut(partition=partition, why=why, directory_id=directory_id, is_problem=is_here or by_name)
