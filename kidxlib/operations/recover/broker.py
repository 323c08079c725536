"""The log dirs of one broker that has stopped: whose they are, and how it stopped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.audit.startup.last_stop import LastStop, last_stop
from kidxlib.errors import CheckpointError, UsageError, describe_error
from kidxlib.format.topic_partition import METADATA_TOPIC, TopicPartition, parse_partition_directory
from kidxlib.storage.log_dir import META_PROPERTIES, MetaProperties, ensure_one_broker, read_meta_properties
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
        directory_id: by which the cluster knows it (`directory.id`); None where it has none.
        stop: how it stopped.
        partitions: names of its partitions' directories.
        other_logs: names of directories with logs that a broker loads, and that are no partition's.
    """

    path: Path
    directory_id: str | None
    stop: LastStop
    partitions: tuple[str, ...]
    other_logs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """A broker that has stopped, and its log dirs."""

    node_id: int | None
    log_dirs: tuple[LogDir, ...]

    @property
    def unclean(self) -> tuple[LogDir, ...]:
        """The log dirs without a marker: a broker recovers them."""
        return tuple(each for each in self.log_dirs if not each.stop.clean_shutdown)

    @property
    def clean(self) -> tuple[LogDir, ...]:
        """The log dirs that have a marker."""
        return tuple(each for each in self.log_dirs if each.stop.clean_shutdown)


def stopped_broker(paths: Iterable[str]) -> StoppedBroker:
    """Read whose log dirs some are, and how their broker stopped.

    Raises:
        UsageError: a directory is no log dir of a broker with KRaft, or they are of several brokers.
    """
    found: dict[Path, MetaProperties] = {}
    for text in paths:
        path = _log_dir(text)
        if path in found:
            raise UsageError(f"{text}: named twice; name it once")
        found[path] = _meta_properties(path)
    ensure_one_broker(found.items())
    node_id = next(iter(found.values())).node_id
    broker = StoppedBroker(node_id, tuple(_read(path, of_path.directory_id) for path, of_path in found.items()))
    _ensure_distinct(broker)
    return broker


def _ensure_distinct(broker: StoppedBroker) -> None:
    """Refuse partitions that two log dirs have: a broker does not start with these (`LogManager.loadLog`)."""
    places: dict[TopicPartition, Path] = {}
    for log_dir in broker.log_dirs:
        for name in log_dir.partitions:
            partition = parse_partition_directory(name)
            if partition is None or partition.topic == METADATA_TOPIC:
                continue
            if (other := places.setdefault(partition, log_dir.path)) != log_dir.path:
                raise UsageError(
                    f"{log_dir.path / name}: {other} has that partition too; a broker does not start with both: look "
                    "which of them is whole, and move the other one away"
                )


def _log_dir(text: str) -> Path:
    if is_object(text):
        raise UsageError(f"{text}: in an object store, where no broker starts; expected a log dir of this machine")
    path = Path(os.path.realpath(text))
    if not path.is_dir():
        raise UsageError(f"{text}: no such directory; expected a broker's log dir, as log.dirs names it")
    return path


def _meta_properties(path: Path) -> MetaProperties:
    """Whose log dir it is."""
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
    if found.version != _VERSION:
        raise UsageError(f"{file}: version {found.version}, expected {_VERSION}, as a broker with KRaft writes it")
    return found


def _read(path: Path, directory_id: str | None) -> LogDir:
    try:
        stop = last_stop(path)
        names: Sequence[str] = sorted(os.listdir(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be listed: {error.strerror}") from error
    if stop.failures:
        raise UsageError(f"{stop.failures[0]}; mend that first")
    return LogDir(
        path=path,
        directory_id=directory_id,
        stop=stop,
        partitions=tuple(name for name in names if parse_partition_directory(name) is not None),
        other_logs=tuple(name for name in names if name.endswith(_OTHER_LOGS)),
    )
