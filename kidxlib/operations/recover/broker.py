"""The log dirs of one broker that has stopped: whose they are, and how it stopped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.last_stop import LastStop, last_stops
from kidxlib.audit.startup.node import read_to_end
from kidxlib.audit.startup.simulation import HOLDS_FOR
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.log.cluster_metadata.read import ClusterMetadata
from kidxlib.log.cluster_metadata.replica import METADATA_DIRECTORY
from kidxlib.operations.recover.obstacle import Obstacle
from kidxlib.storage.log_dir import META_PROPERTIES, MetaProperties, read_meta_properties
from kidxlib.storage.store.s3 import is_object

#: Versions of `meta.properties` (`MetaPropertiesVersion`).
OF_KRAFT: Final = "1"
_OF_ZOOKEEPER: Final = "0"
#: Directories of logs that a broker loads though they are no partition's yet, or no more (`LogManager.loadLog`). Their
#: names have no offset here, and nothing of them is recovered.
_OTHER_LOGS: Final = ("-future", "-stray")


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log dir of a broker that has stopped.

    Attributes:
        meta: what its `meta.properties` says; nothing where that cannot be read.
        stop: how its broker stopped.
        partitions: names of its partitions' directories.
        directories: names of all its directories.
        other_logs: names of directories with logs that a broker loads, and that are no partition's.
    """

    path: Path
    meta: MetaProperties
    stop: LastStop
    partitions: tuple[str, ...]
    directories: frozenset[str]
    other_logs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """A broker that has stopped, and its log dirs.

    Attributes:
        log_dirs: those that can be looked at.
        obstacles: why nothing of it is made ready, all that can be seen without its logs.
        plan_only: why nothing is to be written there, while a plan serves.
        not_locked: why log dirs could not be locked.
    """

    node_id: int | None
    log_dirs: tuple[LogDir, ...]
    obstacles: tuple[Obstacle, ...]
    plan_only: tuple[str, ...] = ()
    not_locked: tuple[str, ...] = ()

    @property
    def reads_alone(self) -> tuple[str, ...]:
        """Why nothing can be written there."""
        return self.plan_only + self.not_locked

    @property
    def unclean(self) -> tuple[LogDir, ...]:
        """The log dirs without a marker: a broker recovers them."""
        return tuple(each for each in self.log_dirs if not each.stop.clean_shutdown)

    @property
    def clean(self) -> tuple[LogDir, ...]:
        """The log dirs that have a marker."""
        return tuple(each for each in self.log_dirs if each.stop.clean_shutdown)


def stopped_broker(paths: Iterable[str]) -> StoppedBroker:
    """Read whose log dirs some are, and how their broker stopped. What is wrong with one does not hide the others.

    Raises:
        UsageError: a directory is named twice or in an object store, or none of them can be looked at.
    """
    obstacles: list[Obstacle] = []
    plan_only: list[str] = []
    found: dict[Path, tuple[MetaProperties, list[str]]] = {}
    wrong: dict[Path, str] = {}
    for path in _named(paths):
        if not path.is_dir():
            obstacles.append(Obstacle(f"{path}: no such directory; expected a broker's log dir, as log.dirs names it"))
            continue
        try:
            meta = _meta_properties(path)
        except UsageError as error:
            wrong[path], meta = str(error), MetaProperties()
        if meta.version == _OF_ZOOKEEPER:
            plan_only.append(
                f"{path / META_PROPERTIES}: version {_OF_ZOOKEEPER}, of a broker with ZooKeeper: the plan holds for "
                f"Kafka {HOLDS_FOR[0]}, and the file does not say which Kafka it is; let the broker recover by itself"
            )
        try:
            found[path] = meta, sorted(os.listdir(path))
        except OSError as error:
            obstacles.append(Obstacle(f"{path}: cannot be listed: {error.strerror}; what a broker does is not known"))
    if not found:
        raise UsageError("; ".join([*wrong.values(), *(each.text for each in obstacles)]))
    stops = last_stops(list(found), None, _metadata(found))
    log_dirs = [_log_dir(path, *of_path, stops[path]) for path, of_path in found.items()]
    for path, text in wrong.items():
        if path not in stops or all(each.where != path / META_PROPERTIES for each in stops[path].obstacles):
            obstacles.append(Obstacle(text))
    for log_dir in log_dirs:
        obstacles += map(Obstacle, log_dir.stop.failures)
    node_id = next((each.meta.node_id for each in log_dirs if each.meta.node_id is not None), None)
    return StoppedBroker(node_id, tuple(log_dirs), tuple(obstacles), tuple(plan_only))


def _metadata(log_dirs: Iterable[Path]) -> ClusterMetadata | None:
    """The node's copy of the cluster's metadata, in whichever of its log dirs that is."""
    copies = (read_to_end(log_dir / METADATA_DIRECTORY) for log_dir in log_dirs)
    return next((copy for copy in copies if copy is not None), None)


def _named(paths: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for text in paths:
        if is_object(text):
            raise UsageError(f"{text}: in an object store, where no broker starts; expected a log dir of this machine")
        path = Path(os.path.realpath(text))
        if path in found:
            raise UsageError(f"{text}: named twice; name it once")
        found.append(path)
    return found


def _meta_properties(path: Path) -> MetaProperties:
    """Whose log dir it is.

    Raises:
        UsageError: its `meta.properties` does not say it.
    """
    file = path / META_PROPERTIES
    if not os.path.lexists(file):
        raise UsageError(
            f"{file}: missing; expected a broker's log dir. A broker that has none formats the directory anew, or does "
            "not start"
        )
    try:
        found = read_meta_properties(path)
    except (CheckpointError, OSError) as error:
        raise UsageError(describe_error(error)) from error
    if found.version not in (OF_KRAFT, _OF_ZOOKEEPER):
        raise UsageError(f"{file}: version {found.version}, expected {OF_KRAFT}, as a broker with KRaft writes it")
    return found


def _log_dir(path: Path, meta: MetaProperties, names: Sequence[str], stop: LastStop) -> LogDir:
    return LogDir(
        path=path,
        meta=meta,
        stop=stop,
        partitions=tuple(name for name in names if parse_partition_directory(name) is not None),
        directories=frozenset(name for name in names if (path / name).is_dir()),
        other_logs=tuple(name for name in names if name.endswith(_OTHER_LOGS)),
    )
