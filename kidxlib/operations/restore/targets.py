"""The new brokers of a restore: their log dirs, which `kafka-storage format` has made, and why nothing may be restored
into them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT
from kidxlib.java import parse_integer
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.operations.restore.formatted import FormattedController
from kidxlib.operations.restore.inventory import OldBroker
from kidxlib.storage.location import ensure_text, identity_of, place_on_file_system
from kidxlib.storage.lock import LOCK_FILE
from kidxlib.storage.log_dir import META_PROPERTIES, UNMOUNTED, MetaProperties, read_meta_properties
from kidxlib.storage.store.s3 import is_object

#: What may be in a log dir that was just formatted. `METADATA_DIRECTORY` is looked at where metadata is written.
_FILES_OF_FORMATTED: Final = frozenset({META_PROPERTIES, BOOTSTRAP_SNAPSHOT, METADATA_DIRECTORY, LOCK_FILE}) | UNMOUNTED
#: A file that an unfinished restore leaves in each log dir.
UNFINISHED: Final = ".kidx-restore"
_FORMAT_FIRST: Final = "format it first: kafka-storage format --cluster-id ID --config server.properties"


@dataclass(frozen=True, slots=True)
class NewBroker:
    """
    Attributes:
        log_dirs: real paths.
        properties: what each `meta.properties` says; empty where there is none, or it cannot be read.
    """

    node_id: int
    log_dirs: tuple[Path, ...]
    properties: Mapping[Path, MetaProperties]

    @property
    def clusters(self) -> set[str]:
        return {meta.cluster_id for meta in self.properties.values() if meta.cluster_id is not None}

    @property
    def directory_ids(self) -> dict[str, str]:
        """The id of each log dir (`directory.id`), by path."""
        return {str(path): meta.directory_id for path, meta in self.properties.items() if meta.directory_id is not None}


def new_brokers(options: Sequence[str]) -> list[NewBroker]:
    """The brokers of `--broker ID=DIR[,DIR]` options, in the order of their ids."""
    brokers: dict[int, NewBroker] = {}
    for text in options:
        number, equals, names = text.partition("=")
        node_id = parse_integer(number, 32)
        if not equals or node_id is None or node_id < 0 or not all(names.split(",")):
            raise UsageError(f"--broker {text}: expected ID=DIR[,DIR], as in 1=/new/data1,/new/data2")
        if node_id in brokers:
            raise UsageError(f"--broker {text}: node {node_id} is given twice; name all of its log dirs in one option")
        if any(is_object(name) for name in names.split(",")):
            raise UsageError(f"--broker {text}: in an object store, where no broker starts; name a directory")
        paths = tuple(Path(os.path.realpath(name)) for name in names.split(","))
        for path in paths:
            ensure_text("--broker ", path)
        brokers[node_id] = NewBroker(node_id, paths, {path: _meta_properties_or_none(path) for path in paths})
    return [brokers[node_id] for node_id in sorted(brokers)]


def _meta_properties_or_none(path: Path) -> MetaProperties:
    try:
        return read_meta_properties(path)
    except (CheckpointError, OSError):
        return MetaProperties()  # `why_not_into` says why


def why_not_into(
    brokers: Sequence[NewBroker], sources: Sequence[OldBroker], *, keeps_cluster_id: bool
) -> Iterator[str]:
    """Why nothing may be restored into the log dirs of new brokers, each with what to do."""
    seen: dict[object, Path] = {}
    for broker in brokers:
        for path in broker.log_dirs:
            if not path.is_dir():
                yield f"{path}: no such directory; make it, and {_FORMAT_FIRST}"
                continue
            if (other := seen.setdefault(identity_of(path), path)) is not path:
                yield f"{path}: the same directory as {other}; give each log dir a directory of its own"
            if (why := why_not_in_sources(path, sources)) is not None:
                yield why
                continue
            yield from _why_not_into_log_dir(broker, path)
    yield from _why_not_this_cluster(brokers, sources, keeps_cluster_id=keeps_cluster_id)


def why_not_into_controllers(
    controllers: Sequence[FormattedController], brokers: Sequence[NewBroker], sources: Sequence[OldBroker]
) -> Iterator[str]:
    """Why no metadata may be written into the directories of new controllers, each with what to do. A node that is a
    controller and a broker has its metadata in a log dir of its own, or in one of the broker's.
    """
    clusters = {cluster for broker in brokers for cluster in broker.clusters}
    for controller in controllers:
        if (why := why_not_in_sources(controller.log_dir, sources)) is not None:
            yield why
        if controller.properties.cluster_id not in clusters:
            yield (
                f"--controller {controller.log_dir}: formatted for cluster {controller.properties.cluster_id}, and the "
                f"brokers for {', '.join(sorted(clusters)) or 'none'}; format all nodes with one --cluster-id"
            )
    yield from _why_not_one_controller_each(controllers)
    yield from _directory_ids_of_two(controllers, brokers)


def _why_not_one_controller_each(controllers: Iterable[FormattedController]) -> Iterator[str]:
    """Refusals of a controller that is named twice: by two paths of its directory, or by a copy of it."""
    by_directory: dict[object, FormattedController] = {}
    by_node: dict[int | None, FormattedController] = {}
    for controller in controllers:
        path, node_id = controller.log_dir, controller.properties.node_id
        if (other := by_directory.setdefault(identity_of(path), controller)) is not controller:
            also = "" if path == other.log_dir else f", also as {other.log_dir}"
            yield f"--controller {path}: named twice{also}; name each controller's directory once"
        elif (other := by_node.setdefault(node_id, controller)) is not controller:
            yield (
                f"--controller {path}: node.id is {node_id}, as in {other.log_dir}: one of the two is a copy, or a "
                "controller was formatted with the node.id of another; name one directory of each controller, and "
                "format each with a node.id of its own"
            )


def _directory_ids_of_two(controllers: Iterable[FormattedController], brokers: Iterable[NewBroker]) -> Iterator[str]:
    """Refusals of new directories that have one id: a node does not start with both (`MetaPropertiesEnsemble.verify`),
    and of two brokers a cluster registers the first alone (`ClusterControlManager.registerBroker`).
    """
    ids = [(path, id_) for broker in brokers for path, id_ in broker.directory_ids.items()]
    ids += [(str(each.log_dir), each.properties.directory_id or "") for each in controllers]
    by_id: dict[str, str] = {}
    for path, id_ in dict(ids).items():
        other = by_id.setdefault(id_, path) if id_ else path
        if identity_of(Path(other)) != identity_of(Path(path)):
            yield f"{path}: directory.id {id_}, as {other} has it: a copied {META_PROPERTIES}; {_FORMAT_FIRST}"


def overlapping(path: Path, others: Iterable[Path]) -> Path | None:
    """The directory that is the same as another, is below it, or is above it; None: there is none. Directories are told
    apart by their identities and by their places on file systems, as a bind mount has another path.
    """
    of_path, place = {identity_of(directory) for directory in (path, *path.parents)}, place_on_file_system(path)
    for other in others:
        of_other = {identity_of(directory) for directory in (other, *other.parents)}
        if identity_of(other) in of_path or identity_of(path) in of_other:
            return other
        if place is not None and _is_in_or_around(place, place_on_file_system(other)):
            return other
    return None


def _is_in_or_around(one: tuple[bytes, Path], other: tuple[bytes, Path] | None) -> bool:
    if other is None or one[0] != other[0]:
        return False
    return one[1].is_relative_to(other[1]) or other[1].is_relative_to(one[1])


def why_not_in_sources(path: Path, sources: Iterable[OldBroker]) -> str | None:
    """Why nothing may be written into a new directory, as a source is there; None: no source is."""
    found = overlapping(path, (log_dir.path for source in sources for log_dir in source.log_dirs))
    if found is None:
        return None
    return f"{path}: it is, holds or lies in {found}, a source, where nothing is written; name a new directory"


def _why_not_into_log_dir(broker: NewBroker, path: Path) -> Iterator[str]:
    names = sorted(os.listdir(path))
    if UNFINISHED in names:
        yield (
            f"{path}: a restore into it was broken off; nothing in it is needed: remove all that is in it, and "
            f"{_FORMAT_FIRST}"
        )
        return
    if others := [name for name in names if name not in _FILES_OF_FORMATTED]:
        yield (
            f"{path}: it is not empty ({others[0]} is in it); name a new directory, or an empty one, and "
            f"{_FORMAT_FIRST}"
        )
    try:
        meta = read_meta_properties(path)
    except (CheckpointError, OSError) as error:
        yield f"{path / META_PROPERTIES}: {describe_error(error)}; {_FORMAT_FIRST}"
        return
    if meta == MetaProperties():
        yield f"{path}: not formatted, as it has no {META_PROPERTIES}; {_FORMAT_FIRST}"
    elif meta.node_id != broker.node_id:
        yield (
            f"{path / META_PROPERTIES}: node.id is {meta.node_id}, and --broker says {broker.node_id}; give the node "
            "that it was formatted for"
        )
    elif meta.cluster_id is None:
        yield f"{path / META_PROPERTIES}: no cluster.id in it, without which no node starts; {_FORMAT_FIRST}"
    elif meta.directory_id is None:
        yield f"{path / META_PROPERTIES}: no directory.id in it; format it with Kafka 3.7 or newer"


def _why_not_this_cluster(
    brokers: Sequence[NewBroker], sources: Sequence[OldBroker], *, keeps_cluster_id: bool
) -> Iterator[str]:
    clusters = sorted({cluster for broker in brokers for cluster in broker.clusters})
    if len(clusters) > 1:
        names = ", ".join(clusters)
        yield f"--broker: the log dirs are of several clusters ({names}); format all with one --cluster-id"
    old = {source.cluster_id for source in sources if source.cluster_id is not None}
    if old & set(clusters) and not keeps_cluster_id:
        yield (
            f"--broker: formatted with {clusters[0]}, the id of the old cluster: nodes of both would join each other. "
            "Format with a new id (kafka-storage random-uuid); or give --keep-cluster-id, once no node of the old "
            "cluster lives or will be started again"
        )
    of_sources = {
        log_dir.meta.directory_id: log_dir.path
        for source in sources
        for log_dir in source.log_dirs
        if log_dir.meta.directory_id is not None
    }
    for broker in brokers:
        for path, directory_id in broker.directory_ids.items():
            if directory_id in of_sources:
                yield (
                    f"{path}: directory.id {directory_id}, as {of_sources[directory_id]} has it: a copied "
                    f"{META_PROPERTIES}; {_FORMAT_FIRST}"
                )
