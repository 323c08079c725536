"""The log dirs of one broker that has stopped: whose they are, and how it stopped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.last_stop import LastStop, last_stop
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.storage.java_properties import parse_properties
from kidxlib.storage.log_dir import META_PROPERTIES, MetaProperties, read_meta_properties
from kidxlib.storage.small_files import small_file
from kidxlib.storage.store.s3 import is_object

#: Of `meta.properties` that KRaft writes (`MetaPropertiesVersion.V1`). ZooKeeper's brokers write 0.
_VERSION: Final = "1"
#: Directories of logs that a broker loads though they are no partition's yet, or no more (`LogManager.loadLog`). Their
#: names have no offset here, and nothing of them is recovered.
_OTHER_LOGS: Final = ("-future", "-stray")


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log dir of a broker that has stopped.

    Attributes:
        stop: how it stopped.
        other_logs: names of directories with logs that a broker loads, and that are no partition's.
    """

    path: Path
    stop: LastStop
    other_logs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """A broker that has stopped, and its log dirs."""

    node_id: int | None
    log_dirs: tuple[LogDir, ...]

    @property
    def stopped_cleanly(self) -> bool:
        """Whether it left its marker in all log dirs."""
        return all(log_dir.stop.clean_shutdown for log_dir in self.log_dirs)


def stopped_broker(paths: Iterable[str]) -> StoppedBroker:
    """Read whose log dirs some are, and how their broker stopped.

    Raises:
        UsageError: a directory is no log dir of a broker with KRaft, or they are of several brokers.
    """
    found: dict[Path, MetaProperties] = {}
    for text in paths:
        path = _log_dir(text)
        if path in found:
            raise UsageError(f"{text}: named twice")
        found[path] = _meta_properties(path)
    first, of_first = next(iter(found.items()))
    for path, properties in found.items():
        if properties != of_first:
            raise UsageError(
                f"{path}: of node {properties.node_id} of cluster {properties.cluster_id}, and {first} is of node "
                f"{of_first.node_id} of cluster {of_first.cluster_id}; name the log dirs of one broker"
            )
    return StoppedBroker(of_first.node_id, tuple(_read(path) for path in found))


def _log_dir(text: str) -> Path:
    if is_object(text):
        raise UsageError(f"{text}: in an object store, where no broker starts; expected a log dir of this machine")
    path = Path(os.path.realpath(text))
    if not path.is_dir():
        raise UsageError(f"{text}: no such directory; expected a broker's log dir, as log.dirs names it")
    return path


def _meta_properties(path: Path) -> MetaProperties:
    file = path / META_PROPERTIES
    try:
        version = parse_properties(small_file(file)).get("version")
        found = read_meta_properties(path)
    except FileNotFoundError as error:
        raise UsageError(
            f"{file}: missing; expected a broker's log dir. A broker that has none formats the directory anew, or does "
            "not start"
        ) from error
    except (CheckpointError, OSError) as error:
        raise UsageError(describe_error(error)) from error
    if version is None or version.strip() != _VERSION:
        raise UsageError(f"{file}: version {version}, expected {_VERSION}, as a broker with KRaft writes it")
    return found


def _read(path: Path) -> LogDir:
    try:
        stop = last_stop(path)
        names: Sequence[str] = sorted(os.listdir(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be listed: {error.strerror}") from error
    if stop.failures:
        raise UsageError(f"{stop.failures[0]}; mend that first")
    return LogDir(path, stop, tuple(name for name in names if name.endswith(_OTHER_LOGS)))
