"""All that a node meets in its log dirs as it starts, before it reads a partition's log.

A node reads, in this order: `meta.properties` of all log dirs, `bootstrap.checkpoint`, its copy of the metadata, and
then, for each log dir, checkpoints and folders. `kidx verify` and `kidx recover` both go by what is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.audit.startup.against_metadata import SET_ASIDE, NodeLogDir, obstacles_by_metadata
from kidxlib.audit.startup.log_dir_entries import directories_in, obstacles_in_log_dir
from kidxlib.audit.startup.markers import stopped_apart
from kidxlib.audit.startup.meta_properties import (
    accepted_properties,
    obstacles_of_meta_properties,
    registered_node,
)
from kidxlib.audit.startup.metadata_log import RESTORE, lost_metadata, without_it
from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.audit.startup.raft_files import obstacles_of_raft
from kidxlib.audit.startup.text_files import Thrown
from kidxlib.audit.startup.topic_ids import STRAY, is_of_kraft, obstacles_of_topic_ids
from kidxlib.errors import ClusterMetadataError
from kidxlib.format import topic_partition
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.cluster_metadata.read import ClusterMetadata, read_despite_damage
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.storage.location import Location
from kidxlib.storage.log_dir import PARTITION_METADATA, MetaProperties
from kidxlib.text.counted import counted

_NO_LIMIT: Final = 2**63 - 1
#: What a node does that has lost the log of the cluster's metadata (docs/start-files.md).
STARTS_WITHOUT_METADATA: Final = (
    "a quorum's only voter that starts without it has an empty cluster, and sets all partitions aside (-stray); any "
    "other node fetches it anew"
)


def obstacles_of_node(
    log_dirs: Sequence[Location], metadata: ClusterMetadata | None = None
) -> Mapping[Location, tuple[Obstacle, ...]]:
    """What a node meets in its log dirs, by log dir, without what is in their checkpoints and in partitions.

    Args:
        log_dirs: of one node, as `log.dirs` names them.
        metadata: what the cluster says; None where nobody knows. Ids of topics are then compared with each other alone.

    Raises:
        OSError: a log dir cannot be listed.
    """
    found = list(_found(log_dirs, metadata))
    return {
        log_dir: tuple(each for each in found if each.where == log_dir or f"{each.where}".startswith(f"{log_dir}/"))
        for log_dir in log_dirs
    }


def obstacles_of_folders(
    log_dir: Location, folders: Sequence[Location], metadata: ClusterMetadata | None
) -> tuple[Obstacle, ...]:
    """What a node meets in some folders of a log dir, where nobody asks for the others: ids and assignments."""
    properties = accepted_properties(log_dir)
    if metadata is None or not isinstance(properties, MetaProperties) or properties.node_id is None:
        return tuple(_without_metadata(log_dir, folders))
    of_node = [NodeLogDir(log_dir, properties.directory_id, folders)]
    return tuple(obstacles_by_metadata(of_node, properties.node_id, metadata, are_all=False))


def read_to_end(directory: Location) -> ClusterMetadata | None:
    """A node's copy of the cluster's metadata to its end, committed or not: of what the node has a folder it has read.
    None where it cannot be read.
    """
    try:
        return read_despite_damage(directory, _NO_LIMIT)
    except (ClusterMetadataError, OSError):
        return None


def _found(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Iterator[Obstacle]:
    yield from obstacles_of_meta_properties(log_dirs, metadata)
    yield from _two_metadata_logs(log_dirs)
    yield from stopped_apart(log_dirs)
    for log_dir in log_dirs:
        is_read = metadata is not None and metadata.directory == log_dir / METADATA_DIRECTORY and not metadata.left_out
        yield from obstacles_of_raft(log_dir, metadata_is_read=is_read)
    for log_dir in log_dirs:
        yield from obstacles_in_log_dir(log_dir)
    directories = {log_dir: directories_in(log_dir) for log_dir in log_dirs}
    yield from _duplicates(directories)
    properties = {log_dir: accepted_properties(log_dir) for log_dir in log_dirs}
    accepted = {log_dir: each for log_dir, each in properties.items() if isinstance(each, MetaProperties)}
    by_metadata = {registered_node(metadata, each.directory_id) for each in accepted.values()} - {None}
    node_ids = by_metadata or {each.node_id for each in accepted.values()}
    if metadata is not None and len(node_ids) == 1 and (node_id := node_ids.pop()) is not None:
        of_node = [
            NodeLogDir(log_dir, accepted[log_dir].directory_id, directories[log_dir])
            for log_dir in log_dirs
            if log_dir in accepted
        ]
        has_all = set(metadata.log_dirs.get(node_id, ())) <= {each.directory_id for each in of_node}
        yield from _by_metadata(
            of_node, metadata, list(obstacles_by_metadata(of_node, node_id, metadata, are_all=has_all))
        )
        return
    for log_dir in log_dirs:
        yield from _without_metadata(log_dir, directories[log_dir])


def _by_metadata(
    log_dirs: Sequence[NodeLogDir], metadata: ClusterMetadata, found: Sequence[Obstacle]
) -> Iterator[Obstacle]:
    """What is found by the metadata. Where that has lost something itself, the folders that a node would set aside for
    it are one line with the cause. Where it sets none aside, nobody knows what was lost, and it is no obstacle.
    """
    aside = [each for each in found if each.does in (STRAY, SET_ASIDE) and each.where.name == PARTITION_METADATA]
    lost = None
    if aside and any(metadata.directory == log_dir.path / METADATA_DIRECTORY for log_dir in log_dirs):
        lost = lost_metadata(metadata)
    if lost is None and aside and not metadata.topics:
        why = f"no topic is in the cluster's metadata, which ends at offset {metadata.end_offset}"
        lost = Obstacle(metadata.directory, why, Effect.HIDES, without_it(metadata), RESTORE)
    if lost is None:
        yield from found
        return
    folders = f"{counted(len(aside), 'folder')} of partitions here, of topics that it does not have"
    yield replace(lost, found=f"{lost.found}; {folders} (the first: {aside[0].where.parent.name})")
    yield from (each for each in found if each not in aside)


def _two_metadata_logs(log_dirs: Sequence[Location]) -> Iterator[Obstacle]:
    """`KafkaRaftServer.initializeLogDirs`: the metadata's log may be in one log dir alone."""
    having = [log_dir for log_dir in log_dirs if (log_dir / METADATA_DIRECTORY).exists()]
    for log_dir in having[1:]:
        yield Obstacle(
            log_dir / METADATA_DIRECTORY,
            f"the metadata's log, which {having[0]} has too",
            Effect.ENDS,
            str(Thrown.OTHER),
            "move away the one that is not in metadata.log.dir, or in the first of log.dirs",
        )


def _duplicates(directories: Mapping[Location, Sequence[Location]]) -> Iterator[Obstacle]:
    """Partitions that two log dirs have: a broker does not start with both (`LogManager.loadLog`)."""
    first: dict[TopicPartition, Location] = {}
    for log_dir, folders in directories.items():
        for folder in folders:
            partition = topic_partition.loaded_as(folder.name)
            if partition is None or topic_partition.is_moved(folder.name):
                continue
            if partition.topic == topic_partition.METADATA_TOPIC:
                continue
            other = first.setdefault(partition, folder)
            if other is not folder and str(other.parent) != str(log_dir):
                yield Obstacle(
                    folder,
                    f"{other.parent} has that partition too",
                    Effect.ENDS,
                    f"{Thrown.OTHER} (Duplicate log directories)",
                    "look which of them is whole, and move the other one away",
                )


def _without_metadata(log_dir: Location, folders: Sequence[Location]) -> Iterator[Obstacle]:
    """What can be told of folders where nobody knows what the cluster says."""
    served: dict[TopicPartition, Location] = {}
    futures: list[tuple[TopicPartition, Location]] = []
    for folder in folders:
        partition = topic_partition.loaded_as(folder.name)
        if partition is None or partition.topic == topic_partition.METADATA_TOPIC:
            continue
        if folder.name.endswith("-future"):
            futures.append((partition, folder))
        elif not topic_partition.is_moved(folder.name) and folder.name != topic_partition.REMOTE_INDEX_CACHE:
            served.setdefault(partition, folder)
    yield from obstacles_of_topic_ids(served, is_kraft=is_of_kraft(log_dir))
    for partition, folder in futures:
        yield Obstacle(
            folder,
            f"a copy of {partition.directory} on its way to this log dir",
            Effect.HIDES,
            "where the cluster's metadata has the partition here, a broker that starts takes the copy for it, and "
            "deletes the other one; where it has it elsewhere and it is not there, all records of the copy are dropped",
            "--cluster-metadata DIR tells which",
        )
