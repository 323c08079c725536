"""Partitions that the cluster's metadata gives to a broker, and of which no directory is in its log dirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from kidxlib.errors import KidxError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.read import ClusterMetadata
from kidxlib.reading.brokers_metadata import BrokersMetadata
from kidxlib.reading.left_out import LeftOut, Why
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import MetaProperties


def absent_partitions(
    log_dirs: Collection[Location],
    means: Callable[[TopicPartition], bool],
    brokers: BrokersMetadata,
    there: Collection[TopicPartition],
) -> list[LeftOut]:
    """Absent partitions that are asked for: those of a log dir that is read, and those of others of the broker.

    Args:
        log_dirs: those that are read as a whole.
        means: whether a partition is asked for.
        there: partitions that have a directory.
    """
    found: dict[TopicPartition, LeftOut] = {}
    owners = list[MetaProperties]()
    for log_dir in brokers.log_dirs:
        with contextlib.suppress(OSError, KidxError):  # of a log dir of which nothing is known nothing is told
            if log_dir in log_dirs:
                owners.append(brokers.owner(log_dir))
    for node_id, cluster_id in {(owner.node_id, owner.cluster_id) for owner in owners}:
        with contextlib.suppress(OSError, KidxError):
            metadata = None if cluster_id is None else brokers.of_cluster(cluster_id)
            if metadata is not None and node_id is not None:
                directories = {owner.directory_id for owner in owners if owner.node_id == node_id}
                for each in _absent(means, metadata.to_end, node_id, directories):
                    found.setdefault(each.partition, each)
    return [each for partition, each in sorted(found.items()) if partition not in there]


def _absent(
    means: Callable[[TopicPartition], bool],
    metadata: ClusterMetadata,
    node_id: int,
    directories: Collection[str | None],
) -> Iterator[LeftOut]:
    """All partitions of a broker, as if none were there."""
    all_are_read = set(metadata.log_dirs.get(node_id, ())) <= set(directories)
    for partition, assignment in metadata.assignments.items():
        if node_id in assignment.replicas and means(partition):
            number = assignment.replicas.index(node_id)
            directory_id = assignment.directories[number] if number < len(assignment.directories) else None
            is_problem = all_are_read or (directory_id is not None and directory_id in directories)
            yield LeftOut(
                partition=partition,
                why=Why.NO_DIRECTORY if is_problem else Why.OTHER_LOG_DIR,
                first_offset=0,
                end_offset=None,
                edge=0,
                directory_id=directory_id,
                is_problem=is_problem,
            )
