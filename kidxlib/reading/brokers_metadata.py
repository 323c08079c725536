"""What log dirs tell of their partitions: whose the log dirs are and the metadata of their cluster, which one of a
broker's log dirs has (`BrokersMetadata`), and what both say of a partition: whether it is the only replica or
compacted, where its log began, and how far it went.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kidxlib.audit.startup.last_stop import why_of_another_time
from kidxlib.audit.startup.meta_properties import log_dirs_by_node, was_formatted
from kidxlib.audit.startup.node import obstacles_of_older_log_dirs
from kidxlib.errors import CheckpointError, ClusterMetadataError, KidxError, describe_error
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS, TopicPartition
from kidxlib.indexing.source import PartitionDirectory
from kidxlib.log.metadata_image import BrokerSettings, ClusterMetadata, read_despite_damage, topic_config
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.location import Location
from kidxlib.storage.lock import is_locked
from kidxlib.storage.log_dir import (
    MetaProperties,
    directories_in,
    read_meta_properties,
    read_offset_checkpoint,
    read_topic_id,
)
from kidxlib.storage.logs_aside import LogsAside

if TYPE_CHECKING:
    from kidxlib.log.log import LogDirEvidence
    from kidxlib.lookup.checkpoint_evidence import ReadOffsets

_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


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
                    if self.owner(log_dir).cluster_id == cluster_id and self.is_in(log_dir):
                        copies.append(self._copy(log_dir))
                except (CheckpointError, ClusterMetadataError, OSError) as error:
                    if self._is_of_another_cluster(log_dir, cluster_id):
                        continue
                    failed.append(error)
                    if self.is_in(log_dir):
                        unread.append(describe_error(error))
            furthest = _furthest(copies)
            if furthest is None and failed:
                self._metadata[cluster_id] = None
                raise failed[0]
            self._unread[cluster_id] = [] if furthest is None else [furthest.instead_of(why) for why in unread]
            self._metadata[cluster_id] = furthest
        return self._metadata[cluster_id]

    @staticmethod
    def is_in(log_dir: Location) -> bool:
        """Whether a log dir has a copy of the metadata; also where a disk does not tell: who reads it says why."""
        try:
            return (log_dir / METADATA_DIRECTORY).exists()
        except OSError:
            return True

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
                if (name := self.owner(other).cluster_id) is not None and self.is_in(other):
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
            if owner == MetaProperties() and was_formatted(log_dir) and not any(map(brokers.is_in, brokers.log_dirs)):
                without.append(log_dir)
    holders = {brokers.owner(log_dir).cluster_id: log_dir for log_dir in without if brokers.is_in(log_dir)}
    return [log_dir for log_dir in without if holders.get(brokers.owner(log_dir).cluster_id, log_dir) == log_dir]


def other_topic_id(topic_id: str, topic: str, metadata: ClusterMetadata, names: Mapping[str, str]) -> str | None:
    """How the topic id in a `partition.metadata` differs from the topic's in the cluster's metadata, in words; None if
    it is the topic's, or if the metadata knows neither.

    `metadata` is read to its end, and `names` are those of its topics by id.
    """
    expected = metadata.topics.get(topic)
    if topic_id == expected or (expected is None and topic_id not in names):
        return None
    whose = f", which is {names[topic_id]}'s" if topic_id in names else ""
    has = "no such topic" if expected is None else f"{expected} for this topic"
    return f"{topic_id}{whose}, and the cluster's metadata has {has}"


class OnlyReplicas:
    """Tells which directories hold the only replica of their partition; no answer is yes where something is unknown."""

    def __init__(self, brokers: BrokersMetadata) -> None:
        self._brokers = brokers
        self._is_stopped: dict[Location, bool] = {}

    def holds(self, directory: PartitionDirectory) -> bool:
        """Whether a directory holds the only replica by its broker's metadata, and no broker runs on its log dir."""
        log_dir, partition = directory.log_dir, directory.topic_partition
        with contextlib.suppress(OSError, KidxError):
            if log_dir not in self._is_stopped:  # nobody can tell it of a bucket
                self._is_stopped[log_dir] = isinstance(log_dir, Path) and not is_locked(log_dir)
            node_id = self._brokers.owner(log_dir).node_id
            if not self._is_stopped[log_dir] or node_id is None:
                return False
            metadata = self._brokers.metadata_of(log_dir)
            if self._brokers.unread_copies(log_dir):  # the partition may have other replicas since
                return False
            if metadata is None or read_topic_id(directory.path) != metadata.topics.get(partition.topic, ""):
                return False
            # Replicas that came or went since the last snapshot count, committed or not.
            assigned = [image.assignments.get(partition) for image in (metadata, metadata.to_end)]
            return all(replicas is not None and replicas.replicas == (node_id,) for replicas in assigned)
        return False

    def has_others(self, directory: PartitionDirectory) -> bool:
        """Whether other brokers have replicas of a partition, by the cluster's metadata."""
        with contextlib.suppress(OSError, KidxError):
            metadata = self._brokers.metadata_of(directory.log_dir)
            assigned = None if metadata is None else metadata.to_end.assignments.get(directory.topic_partition)
            return assigned is not None and len(assigned.replicas) > 1
        return False


def is_compacted(topic: str, log_dir: Location, brokers: BrokersMetadata) -> bool | None:
    """Whether a topic is compacted by its policy, as `BrokersMetadata` has it. If that is not known, whether the
    cleaner's checkpoint has the topic: it has only cleaned ones (`LogCleanerManager.updateCheckpoints`). None if there
    is no such checkpoint either.
    """
    if topic in COMPACTED_BY_BROKERS:
        return True
    with contextlib.suppress(OSError, KidxError):  # a log dir that cannot be read says nothing
        node_id, metadata = brokers.owner(log_dir).node_id, brokers.metadata_of(log_dir)
        if metadata is not None and topic in metadata.to_end.topics:
            policy = topic_config(metadata.to_end, BrokerSettings(node_id, None), topic, _POLICY)
            if policy is not None:
                return _COMPACT in {word.strip() for word in policy.value.split(",")}
    with contextlib.suppress(OSError, KidxError):
        cleaned = read_offset_checkpoint(log_dir / CLEANER_CHECKPOINT)
        if cleaned is not None:
            return any(partition.topic == topic and offset > 0 for partition, offset in cleaned.items())
    return None


class BrokersEvidence:
    """Reads what brokers' metadata and checkpoints say of logs, once for each log dir.

    `log_dirs` are those that may have the cluster's metadata, besides the one in which a log is.
    """

    def __init__(self, log_dirs: Collection[Location] = ()) -> None:
        #: The contents of checkpoint files, as `read_offset_checkpoint` returns them.
        self.offsets_in: ReadOffsets = cache(read_offset_checkpoint)
        self._log_dirs = log_dirs
        self._brokers = BrokersMetadata(log_dirs)
        self._others: dict[Location, BrokersMetadata] = {}

    def on_log(
        self, directory: Location, partition: TopicPartition, first_base: int | None, high_watermark: int | None
    ) -> LogDirEvidence:
        """What brokers' metadata, checkpoints and logs aside say of a partition's log. Files are read at the first
        question. `first_base` is the base offset of its first log; None for that of the first log that is in the
        directory now.
        """
        # Here, as most workers ask no more than whose a log dir is, and search no log.
        from kidxlib.lookup.checkpoint_evidence import evidence_of_checkpoints

        log_dir = directory.parent
        brokers = self._brokers
        if log_dir not in self._log_dirs:
            brokers = self._others.setdefault(log_dir, BrokersMetadata([log_dir, *self._log_dirs]))
        return replace(
            evidence_of_checkpoints(directory, partition, first_base, high_watermark, self.offsets_in),
            is_compacted=partial(is_compacted, partition.topic, log_dir, brokers),
            unloaded_logs_remedy=partial(LogsAside([log_dir, *self._log_dirs]).remedy, directory),
        )
