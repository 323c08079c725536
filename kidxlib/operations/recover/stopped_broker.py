"""The log dirs of one broker that has stopped: which broker it is, how it stopped, and why it cannot be made ready."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.last_stop import LastStop, last_stops
from kidxlib.audit.startup.metadata_log import metadata_at_start
from kidxlib.audit.startup.obstacles import obstacles_in_partition
from kidxlib.audit.startup.simulation import HOLDS_FOR
from kidxlib.errors import UsageError
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.indexing.source import Source
from kidxlib.log.metadata_image import ClusterMetadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.location import identity_of, location, names_in
from kidxlib.storage.log_dir import (
    META_PROPERTIES,
    MetaProperties,
    is_partition_directory,
    looks_unmounted,
    usable_meta_properties,
)
from kidxlib.storage.store.s3 import is_object

#: The version of `meta.properties` (`MetaPropertiesVersion`) of a broker with ZooKeeper.
_VERSION_OF_ZOOKEEPER: Final = "0"
#: Suffixes of directories with logs that a broker loads though they are no partition's yet, or no more
#: (`LogManager.loadLog`). Such a log is not recovered here.
_SUFFIXES_OF_OTHER_LOGS: Final = ("-future", "-stray")


@dataclass(frozen=True, slots=True)
class StoppedLogDir:
    """A log dir of a broker that has stopped.

    Attributes:
        meta: its `meta.properties`; empty where that cannot be read.
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

    @property
    def is_known(self) -> bool:
        """Whether `meta.properties` says whose it is."""
        return self.meta != MetaProperties()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a recovery cannot be applied, and what to do.

    Attributes:
        text: the line that a person reads.
        recovers: a broker that starts recovers by itself, as after any crash. Else the line says what the broker does,
            or that nobody knows.
        is_loss: --accept-loss goes on without the records that the line names.
        is_link: nothing is written through a symbolic link, and what it leads to was read.
    """

    text: str
    recovers: bool = False
    is_loss: bool = False
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """A broker that has stopped, and its log dirs.

    Attributes:
        log_dirs: the log dirs that can be looked at.
        refusals: why the broker cannot be made ready, as far as that is seen without its logs.
        reads_alone: why nothing can be written there, though a plan serves.
    """

    node_id: int | None
    log_dirs: tuple[StoppedLogDir, ...]
    refusals: tuple[Refusal, ...]
    reads_alone: tuple[str, ...] = ()

    @property
    def unclean(self) -> tuple[StoppedLogDir, ...]:
        """The log dirs without a marker, which a broker recovers."""
        return tuple(log_dir for log_dir in self.log_dirs if not log_dir.stop.clean_shutdown)

    @property
    def clean(self) -> tuple[StoppedLogDir, ...]:
        """The log dirs with a marker."""
        return tuple(log_dir for log_dir in self.log_dirs if log_dir.stop.clean_shutdown)


def stopped_broker(
    paths: Iterable[str], cluster_metadata: str | None = None, kafka_version: KafkaRelease | None = None
) -> StoppedBroker:
    """Read which broker some log dirs belong to, how it stopped, and what it meets as it starts. A wrong log dir does
    not hide the others. `cluster_metadata`: a directory with the cluster's metadata; None for that of a log dir.
    `kafka_version`: the broker's Kafka; None for what it has registered.
    """
    listed, refusals = _list_log_dirs(paths)
    if not listed:
        raise UsageError("; ".join(refusal.text for refusal in refusals))
    stops = last_stops(list(listed), None, _first_readable_metadata(listed, cluster_metadata), kafka_version)
    log_dirs = [_read_log_dir(path, names, stops[path]) for path, names in listed.items()]
    for log_dir in log_dirs:
        refusals += (Refusal(str(obstacle), is_loss=obstacle.is_loss) for obstacle in log_dir.stop.obstacles)
        # The metadata's log is no partition of the plan: a node recovers all of it, whatever checkpoints say.
        refusals += (Refusal(str(failure)) for failure in obstacles_in_partition(log_dir.path / METADATA_DIRECTORY))
        if not log_dir.is_known and not any(
            f"{log_dir.path / META_PROPERTIES}:" in refusal.text for refusal in refusals
        ):
            refusals.append(_missing_properties_refusal(log_dir.path))
    node_id = next((log_dir.meta.node_id for log_dir in log_dirs if log_dir.meta.node_id is not None), None)
    of_zookeeper = (log_dir for log_dir in log_dirs if log_dir.meta.version == _VERSION_OF_ZOOKEEPER)
    return StoppedBroker(node_id, tuple(log_dirs), tuple(refusals), tuple(map(_zookeeper_refusal, of_zookeeper)))


def log_dirs_at(paths: Iterable[str]) -> list[Path]:
    """The log dirs that `stopped_broker` can look at, of which nothing is read here."""
    return list(_list_log_dirs(paths)[0])


def log_dir_as_source(log_dir: StoppedLogDir) -> Source:
    """A stopped broker's log dir as a source, by which metadata knows it."""
    return Source(str(log_dir.path), location(str(log_dir.path)))


def _list_log_dirs(paths: Iterable[str]) -> tuple[dict[Path, list[str]], list[Refusal]]:
    """The names in each log dir that can be listed, and why others are none, or cannot."""
    refusals: list[Refusal] = []
    listed: dict[Path, list[str]] = {}
    for path in _distinct_paths(paths):
        try:
            names = names_in(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            what = "no such directory" if isinstance(error, FileNotFoundError) else "not a directory"
            refusals.append(Refusal(f"{path}: {what}; expected a broker's log dir, as log.dirs names it"))
        except OSError as error:
            refusals.append(Refusal(f"{path}: cannot be listed: {error.strerror}; what a broker does is not known"))
        else:
            if is_partition_directory(path):
                text = f"{path}: the directory of one partition; expected a broker's log dir: name {path.parent}"
                refusals.append(Refusal(text))
            else:
                listed[path] = names
    return listed, refusals


def _missing_properties_refusal(log_dir: Path) -> Refusal:
    does = "A broker that has none formats the directory anew, or does not start"
    if looks_unmounted(log_dir):
        return Refusal(
            f"{log_dir}: nothing is in it: is the disk mounted? Mount it, and run this again. {does}; if the disk is "
            "lost, leave the directory out, with --this-dir-alone"
        )
    return Refusal(f"{log_dir / META_PROPERTIES}: missing; expected a broker's log dir. {does}")


def _first_readable_metadata(log_dirs: Iterable[Path], given: str | None) -> ClusterMetadata | None:
    places = [path / METADATA_DIRECTORY for path in log_dirs]
    if given is not None and not is_object(given):
        places = [Path(given) / METADATA_DIRECTORY, Path(given)]
    images = (metadata_at_start(place) for place in places if place.is_dir())
    return next((image for image in images if image is not None), None)


def _zookeeper_refusal(log_dir: StoppedLogDir) -> str:
    return (
        f"{log_dir.path / META_PROPERTIES}: version {_VERSION_OF_ZOOKEEPER}, of a broker with ZooKeeper: the plan "
        f"holds for Kafka {HOLDS_FOR[0]}, and the file does not say which Kafka it is; let the broker recover by itself"
    )


def _distinct_paths(paths: Iterable[str]) -> list[Path]:
    named: list[Path] = []
    for text in paths:
        if is_object(text):
            raise UsageError(f"{text}: in an object store, where no broker starts; expected a log dir of this machine")
        path = Path(os.path.realpath(text))
        if identity_of(path) in map(identity_of, named):
            raise UsageError(f"{text}: named twice; name it once")
        named.append(path)
    return named


def _read_log_dir(path: Path, names: Sequence[str], stop: LastStop) -> StoppedLogDir:
    directories = [name for name in names if (path / name).is_dir()]  # a broker passes over files of such names
    return StoppedLogDir(
        path=path,
        meta=usable_meta_properties(path),  # one that cannot be read is among what the broker meets
        stop=stop,
        partitions=tuple(name for name in directories if parse_partition_directory(name) is not None),
        directories=frozenset(directories),
        other_logs=tuple(name for name in directories if name.endswith(_SUFFIXES_OF_OTHER_LOGS)),
    )
