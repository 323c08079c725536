"""A broker's log dir: how to recognize it, `meta.properties`, the topic id in `partition.metadata`, and where kidx
makes no files.

Source: `PartitionMetadataFile`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kidxlib.errors import CheckpointError, UsageError
from kidxlib.format import segment_files, topic_partition
from kidxlib.java import parse_integer
from kidxlib.storage.location import Location, entries_in
from kidxlib.storage.small_files import lines_of, parse_properties, small_file
from kidxlib.text.words import quoted

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"


def read_topic_id(partition_directory: Location) -> str | None:
    """The topic id in a partition's `partition.metadata`; None where the file is absent."""
    path = partition_directory / PARTITION_METADATA
    try:
        lines = lines_of(path)
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "topic_id" not in fields:
        raise CheckpointError(f"{path}: no line 'topic_id: …' in it, expected 'version: 0' and 'topic_id: <id>'")
    return fields["topic_id"]


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """A log dir's `meta.properties`; each attribute is None if the setting or the file is missing.

    Attributes:
        directory_id: the id of this log dir (`directory.id`, KIP-858), since Kafka 3.7.
        version: 1 is KRaft's, 0 ZooKeeper's (`MetaPropertiesVersion`).
    """

    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    version: str | None = None

    @property
    def is_kraft(self) -> bool:
        """Whether the node runs with KRaft, as far as the file says it."""
        return self.version == "1"


#: All that is in a directory on which nothing is mounted, or a new file system.
UNMOUNTED: Final = frozenset({"lost+found"})


def read_meta_properties(log_dir: Location) -> MetaProperties:
    """Read a log dir's `meta.properties`; empty if the file is missing."""
    path = log_dir / META_PROPERTIES
    try:
        properties = parse_properties(small_file(path))
    except FileNotFoundError:
        return MetaProperties()
    return meta_properties_of(properties, str(path))


def meta_properties_of(settings: Mapping[str, str], where: str) -> MetaProperties:
    version = settings.get("version")
    return MetaProperties(
        node_id=node_id_of(settings, where),
        cluster_id=settings.get("cluster.id"),
        directory_id=settings.get("directory.id"),
        version=None if version is None else version.strip(),
    )


def ensure_one_broker(log_dirs: Collection[tuple[Location, MetaProperties]]) -> None:
    """Refuse log dirs of several brokers, and copies of one log dir. There is at least one log dir."""
    first, first_properties = next(iter(log_dirs))
    for path, properties in log_dirs:
        if (properties.node_id, properties.cluster_id) != (first_properties.node_id, first_properties.cluster_id):
            raise UsageError(
                f"{path}: of node {properties.node_id} of cluster {properties.cluster_id}, and {first} is of node "
                f"{first_properties.node_id} of cluster {first_properties.cluster_id}; name the log dirs of one broker"
            )
    ensure_no_copies(log_dirs)


def ensure_no_copies(log_dirs: Iterable[tuple[Location, MetaProperties]]) -> None:
    """Refuse two copies of one log dir, which have the same `directory.id`. Log dirs without an id pass."""
    by_id: dict[str, Location] = {}
    for path, properties in log_dirs:
        if properties.directory_id is not None and (other := by_id.setdefault(properties.directory_id, path)) != path:
            raise UsageError(
                f"{path}: directory.id {properties.directory_id}, as {other} has it; one of the two is a copy; leave "
                "it out"
            )


def node_id_of(properties: Mapping[str, str], where: str) -> int | None:
    """The id of a node in `meta.properties` or `server.properties`; None if there is none."""
    text = properties.get("node.id", properties.get("broker.id"))
    if text is None:
        return None
    node_id = parse_integer(text.strip(), 32)
    if node_id is None:
        raise CheckpointError(f"{where}: node.id is {quoted(text)}, expected a number")
    return node_id


def why_not_to_build_in(directory: Path) -> str | None:
    """Why kidx must not make a directory in this one: it is a log dir, or index files are in it. None: it is neither.

    A broker does not start if its log dir has a directory that is not a partition's (`LogManager.loadLogs`,
    `UnifiedLog.parseTopicPartitionName`).
    """
    if is_brokers(directory):
        return f"{directory} is a broker's log dir: it holds {META_PROPERTIES}"
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if topic_partition.parse_partition_directory(entry.name) is not None and _holds_segment_files(entry.path):
                return f"{directory} holds segments or index files, in {entry.name}"
    if topic_partition.parse_partition_directory(directory.name) is not None and _holds_segment_files(directory):
        return f"{directory} is a partition's directory"
    return None


def names_in(directory: Path) -> list[str]:
    """The names in a directory, in order.

    Raises:
        OSError: it cannot be listed, or nothing in it can be looked at.
    """
    os.stat(os.path.join(directory, os.curdir))  # which takes the right to search it
    return sorted(os.listdir(directory))


def looks_unmounted(directory: Location) -> bool:
    """Whether a directory is empty, or has only what a new file system has: its disk may not be mounted."""
    try:
        return isinstance(directory, Path) and {entry.name for entry in entries_in(directory)} <= UNMOUNTED
    except OSError:
        return False


def is_partition(directory: Location) -> bool:
    """Whether a directory is a partition's: it has the name of one, holds a partition's files, and is no log dir. A log
    dir may be called `kafka-0`, too, and so may a directory on which no disk is mounted.
    """
    if topic_partition.parse_partition_directory(directory.name) is None:
        return False
    try:
        entries = entries_in(directory)
        is_log_dir = any(
            entry.name == META_PROPERTIES
            or (topic_partition.parse_partition_directory(entry.name) is not None and not entry.is_file())
            for entry in entries
        )
    except OSError:
        return False
    return not is_log_dir and any(segment_files.parse_segment_file(entry.name) is not None for entry in entries)


def is_brokers(directory: Path) -> bool:
    """Whether a directory is a broker's log dir: a broker writes `meta.properties` before anything else."""
    return os.path.lexists(directory / META_PROPERTIES)


def why_no_partitions(directory: Location) -> str:
    """Why a directory may hold no partition, as the end of a message: its disk is not mounted, or somebody has named
    the directory above log dirs. Empty where neither is so.
    """
    if looks_unmounted(directory):
        return "; nothing is in it: is the disk mounted?"
    below: list[Location] = []
    if isinstance(directory, Path):
        with contextlib.suppress(OSError):
            below = [entry for entry in entries_in(directory) if _holds_partitions(entry)]
    if not below:
        return ""
    more = f", and {len(below) - 1} more" if len(below) > 1 else ""
    return f"; {below[0]} has some{more}: name {'these' if more else 'that one'}"


def _holds_partitions(directory: Location) -> bool:
    try:
        return any(is_partition(entry) for entry in entries_in(directory))
    except OSError:
        return False


def _holds_segment_files(directory: str | Path) -> bool:
    try:
        return any(segment_files.parse_segment_file(name) is not None for name in os.listdir(directory))
    except OSError:
        return False
