"""Reads what a node has of the cluster's metadata: topics, their ids and configs, and as of when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kidxlib.errors import ClusterMetadataError
from kidxlib.format import segment_files
from kidxlib.format.segment_files import SnapshotId
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.image import Assignment, BrokerRegistration, Image, is_wanted
from kidxlib.log.cluster_metadata.replica import Endpoint, MetadataBatch, Replica, read_replica
from kidxlib.storage.location import Location, files_in
from kidxlib.text.times import show_time


@dataclass(frozen=True, slots=True)
class AsOf:
    """How far metadata was read.

    Attributes:
        offset: the first that was not read: all below it counts, and is committed.
        timestamp_ms: of the last record below it, in ms since the epoch; None where there is none.
    """

    offset: int
    timestamp_ms: int | None

    def __str__(self) -> str:
        time = "no time" if self.timestamp_ms is None else show_time(self.timestamp_ms)
        return f"offset {self.offset}, {time}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """What a cluster says of its topics and brokers.

    Attributes:
        directory: that of the copy that was read.
        as_of: how far.
        end_offset: where the copy ends; what lies from `as_of` on may not be committed.
        topics: by name, the id, as `partition.metadata` has it.
        topic_configs: by topic, what was set for it.
        assignments: where the replicas of each partition are.
        broker_configs: by node id, what was set for it while brokers ran; by "", what was so set for all of them.
        log_dirs: by node id, the ids of its broker's log dirs (`directory.id`), as `Image` has them.
        brokers, controllers: by node id, what the node registered, as `Image` has it.
        static_voters, dynamic_voters, only_voter: as `Replica` has them.
        at_end: what it says if all of the copy is committed; None where all is known to be.
        left_out: the name of the latest snapshot, if that is damaged and was not read.
    """

    directory: Location
    as_of: AsOf
    end_offset: int
    topics: Mapping[str, str]
    topic_configs: Mapping[str, Mapping[str, str]]
    assignments: Mapping[TopicPartition, Assignment]
    broker_configs: Mapping[str, Mapping[str, str]]
    log_dirs: Mapping[int, tuple[str, ...]]
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, tuple[Endpoint, ...]] = field(default_factory=dict)
    static_voters: frozenset[int] | None = None
    dynamic_voters: Mapping[int, tuple[Endpoint, ...]] | None = None
    only_voter: int | None = None
    at_end: ClusterMetadata | None = None
    left_out: str | None = None

    @property
    def to_end(self) -> ClusterMetadata:
        """What it says to its end. A broker has folders by what was committed when it stopped, and a snapshot, up to
        which a quorum of several voters is known to have committed, may be an hour older.
        """
        return self.at_end or self


def read_cluster_metadata(directory: Location, high_watermark: int | None = None) -> ClusterMetadata:
    """Read a copy of `__cluster_metadata` up to where it is known to be committed: to the end of its snapshot; to the
    end of the log where the quorum has one voter, who commits what it writes; and to a high watermark that is given.

    Args:
        directory: that of `__cluster_metadata-0`.
        high_watermark: the quorum's, as `kafka-metadata-quorum describe --status` prints it. No file holds it.

    Raises:
        ClusterMetadataError: the files are not what a node writes.
        OSError: one cannot be read.
    """
    return _of_replica(directory, read_replica(directory, is_wanted), high_watermark)


def read_despite_damage(directory: Location, high_watermark: int | None = None) -> ClusterMetadata:
    """What `read_cluster_metadata` reads. A damaged latest snapshot is left out, if the one before it and the log lead
    to its end: a node makes snapshots of what it has read in its log, and of what is committed (`SnapshotGenerator`,
    `KafkaRaftClient.createSnapshot`).

    Raises:
        ClusterMetadataError, OSError: as `read_cluster_metadata`, of the files as they are.
    """
    try:
        return read_cluster_metadata(directory, high_watermark)
    except ClusterMetadataError:
        latest = max(filter(None, map(segment_files.parse_kraft_snapshot, files_in(directory))), default=None)
        found = None if latest is None else _without(directory, latest, high_watermark)
        if found is None:
            raise
        return found


def _without(directory: Location, latest: SnapshotId, high_watermark: int | None) -> ClusterMetadata | None:
    """What a copy says without its latest snapshot; None where that is less."""
    left_out = segment_files.kraft_snapshot_file(latest)
    try:
        replica = read_replica(directory, is_wanted, left_out=left_out)
    except (ClusterMetadataError, OSError):
        return None
    if replica.end_offset < latest.end_offset:
        return None
    found = _of_replica(directory, replica, max(high_watermark or 0, latest.end_offset))
    at_end = found.at_end and replace(found.at_end, left_out=left_out)
    return replace(found, left_out=left_out, at_end=at_end)


def _of_replica(directory: Location, replica: Replica, high_watermark: int | None) -> ClusterMetadata:
    end = _committed(replica, high_watermark)
    committed = [batch for batch in replica.log if batch.last_offset < end]
    found = _metadata(directory, replica, committed)
    if len(committed) == len(replica.log):
        return found
    return replace(found, at_end=_metadata(directory, replica, replica.log))


def _metadata(directory: Location, replica: Replica, log: Sequence[MetadataBatch]) -> ClusterMetadata:
    """What a copy says with so much of its log."""
    image = Image()
    image.apply(replica.snapshot)
    image.apply(log)
    offset, timestamp_ms = replica.snapshot_end, replica.snapshot_ms
    if log:
        offset = log[-1].last_offset + 1
        timestamp_ms = max(batch.timestamp_ms for batch in log)
    return ClusterMetadata(
        directory=directory,
        as_of=AsOf(offset, timestamp_ms),
        end_offset=replica.end_offset,
        topics=image.topics,
        topic_configs=dict(image.topic_configs),
        assignments=image.assignments,
        broker_configs=dict(image.broker_configs),
        log_dirs=dict(image.log_dirs),
        brokers=dict(image.brokers),
        controllers=dict(image.controllers),
        dynamic_voters=replica.dynamic_voters,
        static_voters=replica.static_voters,
        only_voter=replica.only_voter,
    )


def _committed(replica: Replica, high_watermark: int | None) -> int:
    """The offset below which all is committed."""
    if replica.only_voter is not None:
        return replica.end_offset
    return max(replica.snapshot_end, high_watermark or 0)
