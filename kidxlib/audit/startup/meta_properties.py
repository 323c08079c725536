"""What a node takes from `meta.properties` of its log dirs as it starts, and what is wrong with these files; and whose
a log dir is, by the file and by the cluster's metadata.

Sources: `MetaPropertiesEnsemble.Loader`, `MetaPropertiesEnsemble.verify`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.obstacles import Effect, Obstacle, Thrown
from kidxlib.format.kafka_release import KafkaRelease, NodeRelease
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.java import parse_properties
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.location import Location, entries_in
from kidxlib.storage.log_dir import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
    MetaProperties,
    meta_properties_of,
    usable_meta_properties,
)
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import quoted

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
_BROKER_EPOCH: Final = re.compile(rb'"brokerEpoch" *: *[0-9]')


def obstacles_of_properties(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Iterator[Obstacle]:
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
    """What a starting node takes from a log dir's `meta.properties`; why it takes nothing; None without the file."""
    path = log_dir / META_PROPERTIES
    try:
        content = small_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Obstacle.unreadable(path, error)
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
    """The Kafka of the node that has a log dir with these `meta.properties` (`accepted_properties`). `kafka_version` is
    what the user has named.
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


def log_dirs_by_node(log_dirs: Sequence[Location], metadata: Iterable[ClusterMetadata] = ()) -> list[list[Location]]:
    """Log dirs in groups, those of one node together, by the ids in `meta.properties`. Each log dir has an id of its
    own (`directory.id`), by which the metadata (of any clusters) says whose it is; the other ids in `meta.properties`
    count where the metadata does not know that one. If two log dirs of a node have the same id, one is a copy of the
    other, and each log dir of that node is a group.
    """
    #: The number of the cluster and the id of the node, by `directory.id`.
    registered: dict[str, tuple[int, int]] = {}
    for number, copy in enumerate(metadata):
        ids = {directory_id: node for node, of_node in copy.log_dirs.items() for directory_id in of_node}
        # Copies that name the same log dir are of one cluster.
        cluster = min((registered[known][0] for known in ids.keys() & registered.keys()), default=number)
        registered |= {directory_id: (cluster, node) for directory_id, node in ids.items()}
    properties = {log_dir: usable_meta_properties(log_dir) for log_dir in log_dirs}
    # A log dir that the metadata does not know is of the node of those that say the same of themselves as it.
    node_by_name: dict[object, object] = {
        (own.cluster_id, own.node_id): node
        for own in properties.values()
        if own.directory_id is not None and (node := registered.get(own.directory_id)) and node[1] == own.node_id
    }
    nodes: defaultdict[object, dict[Location, str | None]] = defaultdict(dict)
    for log_dir, own in properties.items():
        name, registered_node = (own.cluster_id, own.node_id), registered.get(own.directory_id or "")
        is_known = None not in (*name, own.directory_id)
        key: object = registered_node or (node_by_name.get(name, name) if is_known else log_dir)
        nodes[key][log_dir] = own.directory_id
    groups: list[list[Location]] = []
    for ids_of_node in nodes.values():
        are_distinct = len(set(ids_of_node.values())) == len(ids_of_node)
        groups += [list(ids_of_node)] if are_distinct else [[log_dir] for log_dir in ids_of_node]
    return groups


def directory_ids_of(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Mapping[Location, str]:
    """The ids by which the metadata, read to its end, knows log dirs of one node whose `meta.properties` say none: most
    of what is in such a log dir is assigned to that id.
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
    """Obstacles of log dirs; remedies for `meta.properties` name the ids that `directory_ids_of` gives."""
    for obstacle in obstacles:
        directory_id = ids.get(obstacle.where.parent)
        if directory_id is not None and directory_id not in obstacle.remedy:
            remedy = obstacle.remedy.replace(_OWN_DIRECTORY_ID, f"{_OWN_DIRECTORY_ID}, {directory_id}")
            obstacle = replace(obstacle, remedy=remedy)
        yield obstacle


def was_formatted(log_dir: Location) -> bool:
    """Whether a log dir must have `meta.properties`, as a node with KRaft has left something in it: up to 4.3
    `kafka-storage format` makes `bootstrap.checkpoint` in each, and a broker with ZooKeeper has no epoch to write into
    `.kafka_cleanshutdown` (`KafkaServer.shutdown`).
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
