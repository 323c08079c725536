"""All that a node meets in its log dirs as it starts, before it reads a partition's log; and what it takes from
`meta.properties`.

A node reads, in this order: `meta.properties` of all log dirs, `bootstrap.checkpoint`, its copy of the metadata
(`metadata_log`), and then, for each log dir, checkpoints and directories (`directories`). `kidx verify` and `kidx
recover` both go by this module.

Sources: `MetaPropertiesEnsemble.Loader`, `MetaPropertiesEnsemble.verify`, `KafkaRaftServer.initializeLogDirs`. A broker
without a controller reads the same files.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.directories import (
    SET_ASIDE,
    STRAY,
    NodeLogDir,
    directories_in,
    obstacles_by_metadata,
    obstacles_in_log_dir,
    obstacles_of_topic_ids,
)
from kidxlib.audit.startup.metadata_log import (
    RESTORE,
    loses_at_start,
    lost_metadata,
    obstacles_of_newer_records,
    obstacles_of_raft,
)
from kidxlib.audit.startup.obstacles import (
    Effect,
    Obstacle,
    Thrown,
    unreadable,
)
from kidxlib.format import topic_partition
from kidxlib.format.kafka_release import KafkaRelease, NodeRelease
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.java import parse_properties
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import (
    METADATA_DIRECTORY,
)
from kidxlib.storage.location import Location, entries_in, is_inside
from kidxlib.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    PARTITION_METADATA,
    MetaProperties,
    meta_properties_of,
)
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import counted, quoted

_RESERVED_ID: Final = "directory.id is one of those that are reserved"

#: What ZooKeeper's brokers write, which is the default, too; and what KRaft writes.
_NODE_ID_BY_VERSION: Final = {"0": "broker.id", "1": "node.id"}
_ID_BYTES: Final = 16
_ID_LENGTH_MAX: Final = 24
#: Ids below this number are reserved (`DirectoryId.reserved`).
_RESERVED_IDS_END: Final = 100
_OWN_DIRECTORY_ID: Final = "the directory.id that the cluster's metadata has for this one"
_HOW_TO_MEND_PROPERTIES: Final = (
    "write the file again with version=1, node.id, cluster.id and directory.id, one a line: those of the node's other "
    f"log dirs, and {_OWN_DIRECTORY_ID}. kafka-storage format makes another "
    "directory.id, with which the node does not serve what is there"
)
_TAKE_OUT_OTHER_NODES: Final = "name the log dirs of one node, or take the one that is another's out of log.dirs"
#: What a broker does with a log dir that is an older copy, and what to do.
_SERVES_OLDER: Final = "a broker that starts serves it as it is, without what was written since"
_PUT_BACK: Final = (
    "put the log dir of the last stop in its place; where its partitions have other replicas, take what is in it away, "
    "and they come back from those"
)
_BROKER_EPOCH: Final = re.compile(rb'"brokerEpoch" *: *[0-9]')

#: `meta.properties` of a broker with KRaft (`MetaPropertiesVersion.V1`).
_OF_KRAFT: Final = re.compile(r"^version\s*[=:]\s*1\s*$", re.MULTILINE)


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


def obstacles_of_folders(
    log_dir: Location, folders: Sequence[Location], metadata: ClusterMetadata | None
) -> tuple[Obstacle, ...]:
    """What a node meets in some directories of a log dir, without a look at the others: ids and assignments."""
    properties = accepted_properties(log_dir)
    if metadata is None or not isinstance(properties, MetaProperties) or properties.node_id is None:
        return tuple(_obstacles_without_metadata(log_dir, folders))
    of_node = [NodeLogDir(log_dir, properties.directory_id, folders)]
    return tuple(obstacles_by_metadata(of_node, properties.node_id, metadata, are_all=False))


def _obstacles_of_node(
    log_dirs: Sequence[Location], metadata: ClusterMetadata | None, kafka_version: KafkaRelease | None
) -> Iterator[Obstacle]:
    yield from with_directory_ids(_obstacles_of_properties(log_dirs, metadata), directory_ids_of(log_dirs, metadata))
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
            NodeLogDir(log_dir, accepted[log_dir].directory_id, directories[log_dir])
            for log_dir in log_dirs
            if log_dir in accepted
        ]
        has_all = set(metadata.log_dirs.get(node_id, ())) <= {log_dir.directory_id for log_dir in of_node}
        yield from _obstacles_by_metadata(
            of_node, metadata, list(obstacles_by_metadata(of_node, node_id, metadata, are_all=has_all))
        )
        return
    for log_dir in log_dirs:
        yield from _obstacles_without_metadata(log_dir, directories[log_dir])


def _obstacles_by_metadata(
    log_dirs: Sequence[NodeLogDir], metadata: ClusterMetadata, obstacles: Sequence[Obstacle]
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
        lost = Obstacle(metadata.directory, why, Effect.HIDES, loses_at_start(metadata), RESTORE)
    if lost is None:
        yield from obstacles
        return
    folders = f"{counted(len(aside), 'directory', 'directories')} of partitions here, of topics that it does not have"
    found_there = f"{lost.found}; {folders} (the first: {aside[0].where.parent.name})"
    yield replace(lost, found=found_there, is_loss=False)  # nobody accepts that all is set aside
    in_one_line = set(map(id, aside))
    yield from (obstacle for obstacle in obstacles if id(obstacle) not in in_one_line)


def _obstacles_without_metadata(log_dir: Location, folders: Sequence[Location]) -> Iterator[Obstacle]:
    """What directories tell by themselves, where nobody knows the cluster's metadata."""
    served: dict[TopicPartition, Location] = {}
    futures: list[tuple[TopicPartition, Location]] = []
    for folder in folders:
        partition = topic_partition.loaded_as(folder.name)
        if partition is None or partition.topic == topic_partition.METADATA_TOPIC:
            continue
        if folder.name.endswith("-future"):
            futures.append((partition, folder))
        elif not topic_partition.is_moved(folder.name):
            served.setdefault(partition, folder)
    yield from obstacles_of_topic_ids(served, is_kraft=_is_of_kraft(log_dir))
    for partition, folder in futures:
        yield Obstacle(
            folder,
            f"a copy of {partition.directory} on its way to this log dir",
            Effect.HIDES,
            "where the cluster's metadata has the partition here, a broker that starts takes the copy for it, and "
            "deletes the other one; where it has it elsewhere and it is not there, all records of the copy are dropped",
            "--cluster-metadata DIR tells which",
        )


def _is_of_kraft(log_dir: Location) -> bool:
    try:
        return _OF_KRAFT.search(small_file(log_dir / META_PROPERTIES).decode(errors="replace")) is not None
    except OSError:
        return False


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


def _obstacles_of_properties(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Iterator[Obstacle]:
    """What is wrong with `meta.properties` of a node's log dirs, by themselves and together."""
    accepted: dict[Location, MetaProperties] = {}
    of_kraft = [log_dir for log_dir in log_dirs if (log_dir / METADATA_DIRECTORY).exists()]
    for log_dir in log_dirs:
        properties = accepted_properties(log_dir)
        if isinstance(properties, MetaProperties):
            accepted[log_dir] = properties
        elif properties is not None:
            yield properties
        elif of_kraft or was_formatted(log_dir):
            yield Obstacle(
                log_dir / META_PROPERTIES,
                "missing",
                Effect.ENDS,
                f"{Thrown.OTHER} (RuntimeException)",
                _HOW_TO_MEND_PROPERTIES,
            )
    yield from _contradicting_properties(accepted, metadata)


def _contradicting_properties(
    accepted: Mapping[Location, MetaProperties], metadata: ClusterMetadata | None
) -> Iterator[Obstacle]:
    """What log dirs of one node may not say (`MetaPropertiesEnsemble.verify`). If the metadata has a log dir as one of
    a node, its file is wrong, and not the log dir's place in `log.dirs`.
    """
    registered = {log_dir: registered_node(metadata, own.directory_id) for log_dir, own in accepted.items()}
    by_id: dict[str, Location] = {}
    in_order = sorted(accepted, key=lambda log_dir: metadata is None or log_dir != metadata.directory.parent)
    for log_dir, own in accepted.items():
        first = in_order[0]
        path, node, expected = log_dir / META_PROPERTIES, registered[log_dir], accepted[first].node_id
        if node is not None and node != own.node_id:
            yield Obstacle(
                path,
                f"node.id is {own.node_id}, and the cluster's metadata has this log dir as one of node {node}",
                Effect.ENDS,
                f"a broker with node.id={node} does not start",
                f"write node.id={node} into the file; with node.id={own.node_id} in server.properties, too, a broker "
                "starts as another node, and sets all partitions aside",
            )
        elif node is None and own.node_id != expected:
            yield _contradiction(path, f"node.id is {own.node_id}", f"{first} is {expected}", _TAKE_OUT_OTHER_NODES)
        if own.cluster_id != (of_cluster := accepted[first].cluster_id):
            is_of_node = node is not None and node == registered[first]
            mend = f"write cluster.id={of_cluster} into the file, if that is the cluster's: its metadata has this log "
            mend = f"{mend}dir as one of node {node}" if is_of_node else _TAKE_OUT_OTHER_NODES
            yield _contradiction(path, f"cluster.id is {own.cluster_id}", f"{first} is {of_cluster}", mend)
        if own.directory_id is not None and (other := by_id.setdefault(own.directory_id, log_dir)) != log_dir:
            yield Obstacle(
                path,
                f"directory.id {own.directory_id}, as {other} has it",
                Effect.ENDS,
                str(Thrown.OTHER),
                "one of the two is a copy: take it out of log.dirs",
            )


def _contradiction(path: Location, says: str, other: str, remedy: str) -> Obstacle:
    return Obstacle(path, f"{says}, that of {other}", Effect.ENDS, str(Thrown.OTHER), remedy)


def accepted_properties(log_dir: Location) -> MetaProperties | Obstacle | None:
    """What a node takes from a log dir's file; why it takes nothing; or None where the file is not there."""
    path = log_dir / META_PROPERTIES
    try:
        content = small_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable(path, error)
    properties = parse_properties(content)
    why = _why_properties_refused(properties)
    if why is None:
        return meta_properties_of(properties, str(path))
    if not any(content):
        why = f"{quoted(content) if content else 'empty'}, expected version, node.id, cluster.id and directory.id"
    if (log_dir / METADATA_DIRECTORY).exists() or _ends_over_properties(properties):
        return Obstacle(path, why, Effect.ENDS, str(Thrown.OTHER), _HOW_TO_MEND_PROPERTIES)
    return Obstacle(path, why, Effect.LOG_DIR, str(Thrown.IO), _HOW_TO_MEND_PROPERTIES)


def kafka_of(
    properties: MetaProperties | Obstacle | None, metadata: ClusterMetadata | None, kafka_version: KafkaRelease | None
) -> NodeRelease:
    """The Kafka of the node that has a log dir with these `accepted_properties`. `kafka_version` is what the user has
    named.
    """
    if metadata is None or not isinstance(properties, MetaProperties) or properties.node_id is None:
        return NodeRelease(kafka_version)
    return NodeRelease(kafka_version, metadata.releases.get(properties.node_id))


def registered_node(metadata: ClusterMetadata | None, directory_id: str | None) -> int | None:
    """The node that last registered the log dir with this directory id of a `meta.properties`, by the cluster's
    metadata; None where none did, or nobody knows.
    """
    if metadata is None or directory_id is None:
        return None
    return next((node for node, of_node in metadata.log_dirs.items() if directory_id in of_node), None)


def directory_ids_of(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Mapping[Location, str]:
    """The ids by which the metadata, read to its end, knows log dirs of one node whose own file says none: most of what
    is in such a log dir is assigned to that id.
    """
    accepted = {log_dir: accepted_properties(log_dir) for log_dir in log_dirs}
    known = [properties for properties in accepted.values() if isinstance(properties, MetaProperties)]
    node_ids = {properties.node_id for properties in known}
    if metadata is None or len(node_ids) != 1 or (node_id := node_ids.pop()) is None:
        return {}
    left = {*metadata.log_dirs.get(node_id, ())} - {properties.directory_id for properties in known}
    ids: dict[Location, str] = {}
    for log_dir, properties in accepted.items():
        if isinstance(properties, MetaProperties):
            continue
        partitions = {parse_partition_directory(entry.name) for entry in entries_in(log_dir)}
        counts = Counter(
            directory_id
            for partition in partitions & metadata.assignments.keys()
            if partition is not None
            for node, directory_id in metadata.assignments[partition].places
            if node == node_id and directory_id in left
        )
        if counts:
            ids[log_dir] = counts.most_common(1)[0][0]
    return ids if len({*ids.values()}) == len(ids) else {}


def with_directory_ids(obstacles: Iterable[Obstacle], ids: Mapping[Location, str]) -> Iterator[Obstacle]:
    """Obstacles whose remedies name the ids of log dirs that `directory_ids_of` gives."""
    for obstacle in obstacles:
        directory_id = ids.get(obstacle.where.parent)
        if directory_id is not None and directory_id not in obstacle.remedy:
            remedy = obstacle.remedy.replace(_OWN_DIRECTORY_ID, f"{_OWN_DIRECTORY_ID}, {directory_id}")
            obstacle = replace(obstacle, remedy=remedy)
        yield obstacle


def was_formatted(log_dir: Location) -> bool:
    """Whether a node with KRaft has left something in a log dir: up to 4.3 `kafka-storage format` makes
    `bootstrap.checkpoint` in each, and a broker with ZooKeeper has no epoch to write into `.kafka_cleanshutdown`
    (`KafkaServer.shutdown`).
    """
    if (log_dir / BOOTSTRAP_SNAPSHOT).exists():
        return True
    try:
        return _BROKER_EPOCH.search(small_file(log_dir / CLEAN_SHUTDOWN_FILE)) is not None
    except OSError:
        return False


def _why_properties_refused(properties: Mapping[str, str]) -> str | None:
    """Why a node does not take a file (`MetaProperties.Builder`)."""
    version = _properties_version(properties)
    if version not in _NODE_ID_BY_VERSION:
        return f"version {quoted(properties['version'])}, expected 1"
    name = _NODE_ID_BY_VERSION[version]
    if name not in properties:
        return f"no {name}" if version == "1" else "no version and no node.id"
    if java.parse_int(properties[name].strip()) is None:
        return f"{name} is {quoted(properties[name])}, expected a number"
    if "cluster.id" not in properties and version == "1":  # a broker with ZooKeeper asks that for it
        return "no cluster.id"
    directory_id = properties.get("directory.id")
    return None if directory_id is None else _why_not_directory_id(directory_id)


def _properties_version(properties: Mapping[str, str]) -> str:
    number = java.parse_int(properties.get("version", "0"))
    return properties.get("version", "0") if number is None else str(number)


def _ends_over_properties(properties: Mapping[str, str]) -> bool:
    """Whether a node reads the file, and ends over what it says. If it cannot read the file, it calls the log dir
    offline, as long as the metadata's log is in another one.
    """
    if _properties_version(properties) == "0":
        return "broker.id" not in properties
    return _why_not_directory_id(properties.get("directory.id", "")) == _RESERVED_ID


def _why_not_directory_id(text: str) -> str | None:
    """`Uuid.fromString`, `DirectoryId.reserved`."""
    expected = f"directory.id is {quoted(text)}, expected an id of 22 characters"
    if len(text) > _ID_LENGTH_MAX:
        return expected
    try:
        decoded = base64.urlsafe_b64decode(f"{text.rstrip('=')}==")
    except (ValueError, binascii.Error):
        return expected
    if len(decoded) != _ID_BYTES:
        return expected
    return _RESERVED_ID if int.from_bytes(decoded) < _RESERVED_IDS_END else None
