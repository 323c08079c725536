"""What keeps a node from starting in the `meta.properties` of its log dirs.

Source: `MetaPropertiesEnsemble.Loader`, `MetaPropertiesEnsemble.verify`, `KafkaRaftServer.initializeLogDirs`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kidxlib import java
from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.audit.startup.text_files import INT_BITS, Thrown, unreadable
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.log.cluster_metadata.read import ClusterMetadata
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from kidxlib.storage.java_properties import parse_properties
from kidxlib.storage.location import Location, entries_in
from kidxlib.storage.log_dir import META_PROPERTIES, MetaProperties, meta_properties_of
from kidxlib.storage.small_files import small_file
from kidxlib.text.quoted import quoted

#: What ZooKeeper's brokers write, and what counts where nothing is said; and what KRaft writes.
_VERSIONS: Final = {"0": "broker.id", "1": "node.id"}
_ID_BYTES: Final = 16
_ID_LENGTH_MAX: Final = 24
#: Ids below this are reserved (`DirectoryId.reserved`).
_RESERVED: Final = 100
_ITS_ID: Final = "the directory.id that the cluster's metadata has for this one"
_MEND: Final = (
    "write the file again with version=1, node.id, cluster.id and directory.id, one a line: those of the node's other "
    f"log dirs, and {_ITS_ID}. kafka-storage format makes another "
    "directory.id, with which the node does not serve what is there"
)
_TAKE_OUT: Final = "name the log dirs of one node, or take the one that is another's out of log.dirs"
_BROKER_EPOCH: Final = re.compile(rb'"brokerEpoch" *: *[0-9]')


def accepted_properties(log_dir: Location) -> MetaProperties | Obstacle | None:
    """What a node takes from a log dir's file; why it takes nothing; or None where the file is not there."""
    path = log_dir / META_PROPERTIES
    try:
        content = small_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable(path, error)
    found = parse_properties(content)
    why = _why_refused(found)
    if why is None:
        return meta_properties_of(found, str(path))
    if not any(content):
        why = f"{quoted(content) if content else 'empty'}, expected version, node.id, cluster.id and directory.id"
    if (log_dir / METADATA_DIRECTORY).exists() or _ends(found):
        return Obstacle(path, why, Effect.ENDS, str(Thrown.OTHER), _MEND)
    return Obstacle(path, why, Effect.LOG_DIR, str(Thrown.IO), _MEND)


def registered_node(metadata: ClusterMetadata | None, directory_id: str | None) -> int | None:
    """The node that last registered a log dir of this id as its own; None where none did, or nobody knows."""
    if metadata is None or directory_id is None:
        return None
    return next((node for node, of_node in metadata.log_dirs.items() if directory_id in of_node), None)


def directory_ids_of(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Mapping[Location, str]:
    """The ids by which the metadata knows log dirs whose own file says none: most of what is in one is assigned to it.

    Args:
        log_dirs: of one node.
        metadata: read to its end; None where it is not known.
    """
    accepted = {log_dir: accepted_properties(log_dir) for log_dir in log_dirs}
    known = [each for each in accepted.values() if isinstance(each, MetaProperties)]
    node_ids = {each.node_id for each in known}
    if metadata is None or len(node_ids) != 1 or (node_id := node_ids.pop()) is None:
        return {}
    left = {*metadata.log_dirs.get(node_id, ())} - {each.directory_id for each in known}
    found: dict[Location, str] = {}
    for log_dir in (each for each, of_log_dir in accepted.items() if not isinstance(of_log_dir, MetaProperties)):
        partitions = {parse_partition_directory(entry.name) for entry in entries_in(log_dir)} - {None}
        of_node = (metadata.assignments[each] for each in partitions & metadata.assignments.keys() if each is not None)
        counts = Counter(place for each in of_node for node, place in each.places if node == node_id and place in left)
        if counts:
            found[log_dir] = counts.most_common(1)[0][0]
    return found if len({*found.values()}) == len(found) else {}


def obstacles_of_meta_properties(
    log_dirs: Sequence[Location], metadata: ClusterMetadata | None = None
) -> Iterator[Obstacle]:
    """What is wrong with the files of some of a node's log dirs, each by itself and together.

    Args:
        log_dirs: one may have no such file.
        metadata: as for `directory_ids_of`.
    """
    ids = directory_ids_of(log_dirs, metadata)
    for each in _obstacles(log_dirs, metadata):
        directory_id = ids.get(each.where.parent)
        yield (
            each
            if directory_id is None
            else replace(each, remedy=each.remedy.replace(_ITS_ID, f"{_ITS_ID}, {directory_id}"))
        )


def _obstacles(log_dirs: Sequence[Location], metadata: ClusterMetadata | None) -> Iterator[Obstacle]:
    accepted: dict[Location, MetaProperties] = {}
    of_kraft = [log_dir for log_dir in log_dirs if (log_dir / METADATA_DIRECTORY).exists()]
    for log_dir in log_dirs:
        found = accepted_properties(log_dir)
        if isinstance(found, MetaProperties):
            accepted[log_dir] = found
        elif found is not None:
            yield found
        elif of_kraft or was_formatted(log_dir):
            yield Obstacle(
                log_dir / META_PROPERTIES, "missing", Effect.ENDS, f"{Thrown.OTHER} (RuntimeException)", _MEND
            )
    yield from _contradictions(accepted, metadata)


def was_formatted(log_dir: Location) -> bool:
    """Whether a node with KRaft has left something in a log dir: `kafka-storage format` makes `bootstrap.checkpoint` in
    each, and a broker with ZooKeeper has no epoch to write into `.kafka_cleanshutdown` (`KafkaServer.shutdown`).
    """
    if (log_dir / BOOTSTRAP_SNAPSHOT).exists():
        return True
    try:
        return _BROKER_EPOCH.search(small_file(log_dir / CLEAN_SHUTDOWN_FILE)) is not None
    except OSError:
        return False


def _why_refused(found: Mapping[str, str]) -> str | None:
    """Why a node does not take a file (`MetaProperties.Builder`)."""
    version = _version(found)
    if version not in _VERSIONS:
        return f"version {quoted(found['version'])}, expected 1"
    name = _VERSIONS[version]
    if name not in found:
        return f"no {name}" if version == "1" else "no version and no node.id"
    if java.parse_integer(found[name].strip(), INT_BITS) is None:
        return f"{name} is {quoted(found[name])}, expected a number"
    if "cluster.id" not in found and version == "1":  # a broker with ZooKeeper asks that for it
        return "no cluster.id"
    directory_id = found.get("directory.id")
    return None if directory_id is None else _why_no_directory_id(directory_id)


def _version(found: Mapping[str, str]) -> str:
    number = java.parse_integer(found.get("version", "0"), INT_BITS)
    return found.get("version", "0") if number is None else str(number)


def _ends(found: Mapping[str, str]) -> bool:
    """Whether a node reads the file, and ends over what it says. Of a file that it cannot read it calls the log dir
    offline, if the metadata's log is in another one.
    """
    if _version(found) == "0":
        return "broker.id" not in found
    return _why_no_directory_id(found.get("directory.id", "")) == _RESERVED_ID


_RESERVED_ID: Final = "directory.id is one of those that are reserved"


def _why_no_directory_id(text: str) -> str | None:
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
    return _RESERVED_ID if int.from_bytes(decoded) < _RESERVED else None


def _contradictions(
    accepted: Mapping[Location, MetaProperties], metadata: ClusterMetadata | None
) -> Iterator[Obstacle]:
    """What log dirs of one node may not say (`MetaPropertiesEnsemble.verify`). Where the metadata has a log dir as one
    of a node, its file is wrong, and not the log dir's place in `log.dirs`.
    """
    registered = {log_dir: registered_node(metadata, found.directory_id) for log_dir, found in accepted.items()}
    by_id: dict[str, Location] = {}
    in_order = sorted(accepted, key=lambda each: metadata is None or each != metadata.directory.parent)
    for log_dir, found in accepted.items():
        first = in_order[0]
        path, node, expected = log_dir / META_PROPERTIES, registered[log_dir], accepted[first].node_id
        if node is not None and node != found.node_id:
            yield Obstacle(
                path,
                f"node.id is {found.node_id}, and the cluster's metadata has this log dir as one of node {node}",
                Effect.ENDS,
                f"a broker with node.id={node} does not start",
                f"write node.id={node} into the file; with node.id={found.node_id} in server.properties, too, a broker "
                "starts as another node, and sets all partitions aside",
            )
        elif node is None and found.node_id != expected:
            yield _differs(path, f"node.id is {found.node_id}", f"{first} is {expected}", _TAKE_OUT)
        if found.cluster_id != (of_cluster := accepted[first].cluster_id):
            is_of_node = node is not None and node == registered[first]
            mend = f"write cluster.id={of_cluster} into the file, if that is the cluster's: its metadata has this log "
            mend = f"{mend}dir as one of node {node}" if is_of_node else _TAKE_OUT
            yield _differs(path, f"cluster.id is {found.cluster_id}", f"{first} is {of_cluster}", mend)
        if found.directory_id is not None and (other := by_id.setdefault(found.directory_id, log_dir)) != log_dir:
            yield Obstacle(
                path,
                f"directory.id {found.directory_id}, as {other} has it",
                Effect.ENDS,
                str(Thrown.OTHER),
                "one of the two is a copy: take it out of log.dirs",
            )


def _differs(path: Location, says: str, other: str, remedy: str) -> Obstacle:
    return Obstacle(path, f"{says}, that of {other}", Effect.ENDS, str(Thrown.OTHER), remedy)
