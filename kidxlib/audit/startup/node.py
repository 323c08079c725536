"""All that a node meets in its log dirs as it starts, before it reads a partition's log.

A node reads, in this order: `meta.properties` of all log dirs (`meta_properties`), `bootstrap.checkpoint`, its copy of
the metadata (`metadata_log`), and then, for each log dir, checkpoints and directories (`directories`). `kidx verify`
and `kidx recover` both go by this module.

Source: `KafkaRaftServer.initializeLogDirs`. A broker without a controller reads the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.audit.startup.directories import (
    SET_ASIDE,
    STRAY,
    DirectoriesInLogDir,
    obstacles_by_metadata,
    obstacles_in_log_dir,
    obstacles_without_metadata,
)
from kidxlib.audit.startup.meta_properties import (
    accepted_properties,
    directory_ids_of,
    kafka_of,
    obstacles_of_properties,
    registered_node,
    with_directory_ids,
)
from kidxlib.audit.startup.metadata_log import (
    RESTORE,
    lost_metadata,
    metadata_lost_at_start,
    obstacles_of_newer_records,
    obstacles_of_raft,
)
from kidxlib.audit.startup.obstacles import (
    Effect,
    Obstacle,
    Thrown,
)
from kidxlib.format import topic_partition
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import (
    METADATA_DIRECTORY,
)
from kidxlib.storage.location import Location, is_inside
from kidxlib.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    PARTITION_METADATA,
    MetaProperties,
    directories_in,
)
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import counted

#: What a broker does with a log dir that is an older copy, and what to do.
_SERVES_OLDER: Final = "a broker that starts serves it as it is, without what was written since"
_PUT_BACK: Final = (
    "put the log dir of the last stop in its place; where its partitions have other replicas, take what is in it away, "
    "and they come back from those"
)


def obstacles_of_node(
    log_dirs: Sequence[Location], metadata: ClusterMetadata | None, kafka_version: KafkaRelease | None
) -> Mapping[Location, tuple[Obstacle, ...]]:
    """What a node meets in its log dirs (as `log.dirs` names them), by log dir, without their checkpoints and
    partitions. Without `metadata` ids of topics are compared with each other alone. `kafka_version` is the node's; None
    for what it has registered.
    """
    obstacles = list(_obstacles_of_node(log_dirs, metadata, kafka_version))
    return {
        log_dir: tuple(obstacle for obstacle in obstacles if is_inside(obstacle.where, log_dir)) for log_dir in log_dirs
    }


def _obstacles_of_node(
    log_dirs: Sequence[Location], metadata: ClusterMetadata | None, kafka_version: KafkaRelease | None
) -> Iterator[Obstacle]:
    yield from with_directory_ids(obstacles_of_properties(log_dirs, metadata), directory_ids_of(log_dirs, metadata))
    yield from _obstacles_of_two_metadata_logs(log_dirs)
    yield from obstacles_of_older_log_dirs(log_dirs)
    for log_dir in log_dirs:
        own = metadata if metadata is not None and metadata.directory == log_dir / METADATA_DIRECTORY else None
        kafka = kafka_of(accepted_properties(log_dir), metadata, kafka_version)
        yield from obstacles_of_raft(log_dir, kafka, metadata_is_read=own is not None and not own.left_out)
        if own is not None:
            yield from obstacles_of_newer_records(own, kafka)
    for log_dir in log_dirs:
        yield from obstacles_in_log_dir(log_dir)
    directories = {log_dir: directories_in(log_dir) for log_dir in log_dirs}
    yield from _obstacles_of_duplicates(directories)
    properties = {log_dir: accepted_properties(log_dir) for log_dir in log_dirs}
    accepted = {log_dir: own for log_dir, own in properties.items() if isinstance(own, MetaProperties)}
    by_metadata = {registered_node(metadata, own.directory_id) for own in accepted.values()} - {None}
    node_ids = by_metadata or {own.node_id for own in accepted.values()}
    if metadata is not None and len(node_ids) == 1 and (node_id := node_ids.pop()) is not None:
        of_node = [
            DirectoriesInLogDir(log_dir, accepted[log_dir].directory_id, directories[log_dir])
            for log_dir in log_dirs
            if log_dir in accepted
        ]
        has_all = set(metadata.log_dirs.get(node_id, ())) <= {log_dir.directory_id for log_dir in of_node}
        yield from _obstacles_by_metadata(
            of_node, metadata, list(obstacles_by_metadata(of_node, node_id, metadata, are_all=has_all))
        )
        return
    for log_dir in log_dirs:
        yield from obstacles_without_metadata(log_dir, directories[log_dir])


def _obstacles_by_metadata(
    log_dirs: Sequence[DirectoriesInLogDir], metadata: ClusterMetadata, obstacles: Sequence[Obstacle]
) -> Iterator[Obstacle]:
    """The obstacles that were found by the metadata. If that has lost something itself, the directories that a node
    would set aside because of it are one line, with the cause. If the node sets none aside, nobody knows what was lost,
    and it is no obstacle.
    """
    aside = [
        obstacle
        for obstacle in obstacles
        if obstacle.does in (STRAY, SET_ASIDE) and obstacle.where.name == PARTITION_METADATA
    ]
    lost = None
    if aside and any(metadata.directory == log_dir.path / METADATA_DIRECTORY for log_dir in log_dirs):
        lost = lost_metadata(metadata)
    if lost is None and aside and not metadata.topics:
        why = f"no topic is in the cluster's metadata, which ends at offset {metadata.end_offset}"
        lost = Obstacle(metadata.directory, why, Effect.HIDES, metadata_lost_at_start(metadata), RESTORE)
    if lost is None:
        yield from obstacles
        return
    folders = f"{counted(len(aside), 'directory', 'directories')} of partitions here, of topics that it does not have"
    found_there = f"{lost.found}; {folders} (the first: {aside[0].where.parent.name})"
    yield replace(lost, found=found_there, is_loss=False)  # nobody accepts that all is set aside
    in_one_line = set(map(id, aside))
    yield from (obstacle for obstacle in obstacles if id(obstacle) not in in_one_line)


def _obstacles_of_two_metadata_logs(log_dirs: Sequence[Location]) -> Iterator[Obstacle]:
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


def _obstacles_of_duplicates(directories: Mapping[Location, Sequence[Location]]) -> Iterator[Obstacle]:
    """Partitions that two log dirs have: a broker does not start with both (`LogManager.loadLog`)."""
    first: dict[TopicPartition, Location] = {}
    for log_dir, folders in directories.items():
        for folder in folders:
            partition = topic_partition.served_as(folder.name)
            if partition is None:
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


def obstacles_of_older_log_dirs(log_dirs: Iterable[Location]) -> Iterator[Obstacle]:
    """The log dirs of one node whose markers are of an earlier stop than another one's. An epoch is an offset of the
    cluster's metadata, and grows with each start of the broker; −1 is none, and tells nothing.
    """
    epochs = {log_dir: epoch for log_dir in log_dirs if (epoch := _broker_epoch_in_marker(log_dir)) is not None}
    latest = max(epochs, key=lambda log_dir: epochs[log_dir], default=None)
    for log_dir, epoch in epochs.items():
        if latest is not None and epoch < epochs[latest]:
            yield Obstacle(
                log_dir / CLEAN_SHUTDOWN_FILE,
                f"brokerEpoch {epoch}, and that of {latest} is {epochs[latest]}: the broker did not stop with the two "
                "at one time, so this log dir is an older copy, or was not in use at the last stop",
                Effect.HIDES,
                _SERVES_OLDER,
                _PUT_BACK,
                is_loss=True,
            )


def _broker_epoch_in_marker(log_dir: Location) -> int | None:
    """`CleanShutdownFileHandler.read`; None where there is no marker, or none with an epoch."""
    try:
        content = json.loads(small_file(log_dir / CLEAN_SHUTDOWN_FILE))
    except (OSError, ValueError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) and content.get("version") == 0 else None
    return epoch if isinstance(epoch, int) and epoch >= 0 else None
