"""What segments are there: a Kafka log dir or one partition's folder → its segments, and what was left alone and why.

This lists the source's folders and reads no log. It stands in the library, not in the jobs, because the command without
Spark lists folders too.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.names import (
    TOPIC_LENGTH_MAX,
    NotASegment,
    TopicPartition,
    is_name,
    parse_partition_folder,
    parse_segment_log,
    why_not_a_partition,
    why_not_a_segment,
)
from kidxlib.objects import Location, ObjectStatus, given_location, is_object, location
from kidxlib.storage import FileVersion

#: What an operator did not expect to find in a log dir; each gets a line of its own.
UNEXPECTED: Final = (
    NotASegment.WRONG_SEGMENT_NAME,
    NotASegment.NO_PARTITION_NUMBER,
    NotASegment.UNLISTABLE_FOLDER,
)


@dataclass(frozen=True, slots=True)
class Source:
    """A Kafka log dir or partition folder, and the name under which the catalog knows it."""

    name: str
    path: Location


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A partition's folder in a source."""

    source: Source
    topic_partition: TopicPartition
    path: Location

    @property
    def log_dir(self) -> Location:
        """The folder above, where a broker keeps its lock and checkpoint files."""
        return self.path.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A segment's log as the listing shows it.

    Attributes:
        source: name of the source.
        path: the `.log`.
        version: None where the file could not be looked at.
        active: it has the highest base offset of its partition in this source, so a broker may still be writing to it.
    """

    source: str
    topic_partition: TopicPartition
    base_offset: int
    path: str
    version: FileVersion | None
    active: bool

    @property
    def partition_key(self) -> tuple[str, str, int]:
        """Source, topic, partition."""
        return self.source, self.topic_partition.topic, self.topic_partition.partition


@dataclass(slots=True)
class LeftAlone:
    """What a listing passed over: how many of each kind, and the paths of those that nobody expects there."""

    counts: Counter[NotASegment] = field(default_factory=Counter)
    unexpected: list[tuple[str, NotASegment]] = field(default_factory=list)

    def add(self, path: str, reason: NotASegment) -> None:
        self.counts[reason] += 1
        if reason in UNEXPECTED:
            self.unexpected.append((path, reason))


def parse_source(text: str, name_required: bool) -> Source:
    """The source that `[NAME=]DIR` means; without a name it is called by its real path, or its URL.

    Raises:
        UsageError: the folder is missing or cannot be listed, or the name is missing or malformed.
    """
    name, equals, path = text.partition("=")
    if not equals or not is_name(name):
        if equals and not is_object(text) and not os.path.exists(text):
            raise UsageError(
                f"{text}: the name {name!r} may hold only letters, digits, '.', '_' and '-', "
                f"{TOPIC_LENGTH_MAX} of them at most, and not be '.' or '..'"
            )
        name, path = "", text
    if name_required and not name:
        raise UsageError(f"{text}: with several sources each needs a name, as in --source broker1={text}")
    return source_at(path, name)


def source_at(path: str, name: str = "") -> Source:
    """The source in a folder; without a name it is called by its real path, or its URL.

    Raises:
        UsageError: the folder is missing or cannot be listed.
    """
    if not path:
        raise UsageError("an empty name instead of a folder; expected a Kafka log dir or a partition's folder")
    try:
        folder: Location = given_location("", path) or Path(os.path.realpath(path))
        if isinstance(folder, Path):
            os.scandir(folder).close()
        elif not folder.exists():
            raise FileNotFoundError(errno.ENOENT, "no object with this prefix")
    except (OSError, ValueError) as error:  # the latter of a NUL
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {why}; expected a Kafka log dir or a partition's folder") from error
    return Source(name or str(folder), folder)


def list_partitions(source: Source, left_alone: LeftAlone) -> list[PartitionFolder]:
    """The partitions of a source, in order; what is not one is added to `left_alone`.

    A folder that holds partitions is a log dir; else, if its own name is `<topic>-<partition>`, it is that partition.

    Raises:
        UsageError: the folder holds segments itself, but its name does not say of which partition.
    """
    partitions: list[PartitionFolder] = []
    passed_over = LeftAlone()
    holds_segments = False
    for entry in _entries(source.path):
        if not entry.is_folder:
            holds_segments = holds_segments or parse_segment_log(entry.name) is not None
            passed_over.add(entry.path, why_not_a_segment(entry.name))
        elif (partition := parse_partition_folder(entry.name)) is not None:
            partitions.append(PartitionFolder(source, partition, location(entry.path)))
        else:
            passed_over.add(entry.path, why_not_a_partition(entry.name))
    if not partitions and (partition := parse_partition_folder(source.path.name)) is not None:
        return [PartitionFolder(source, partition, source.path)]
    if not partitions and holds_segments:
        raise UsageError(
            f"{source.path}: it holds segments, but its name is not <topic>-<partition>; rename the folder, "
            "or give the log dir above it"
        )
    left_alone.counts.update(passed_over.counts)
    left_alone.unexpected.extend(passed_over.unexpected)
    return sorted(partitions, key=lambda folder: folder.topic_partition)


def list_segments(folder: PartitionFolder, left_alone: LeftAlone) -> list[SegmentFile] | None:
    """The segments of one partition by base offset; what is not one is added to `left_alone`.

    A log that cannot be looked at is listed all the same: reading it will say why.

    Returns:
        None where the folder itself cannot be listed.
    """
    try:
        entries = list(_entries(folder.path))
    except OSError:
        left_alone.add(str(folder.path), NotASegment.UNLISTABLE_FOLDER)
        return None
    logs: list[tuple[int, _Entry]] = []
    for entry in entries:
        base_offset = parse_segment_log(entry.name)
        if base_offset is not None:
            logs.append((base_offset, entry))
        elif entry.is_folder:
            left_alone.add(entry.path, NotASegment.OTHER)
        else:
            left_alone.add(entry.path, why_not_a_segment(entry.name))
    logs.sort(key=lambda log: log[0])
    return [
        SegmentFile(
            source=folder.source.name,
            topic_partition=folder.topic_partition,
            base_offset=base_offset,
            path=entry.path,
            version=_version(entry),
            active=base_offset == logs[-1][0],
        )
        for base_offset, entry in logs
    ]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What lies in a folder; `listed` is what a store's listing says of an object, None of all else."""

    name: str
    path: str
    is_folder: bool
    listed: ObjectStatus | None = None


def _entries(folder: Location) -> Iterator[_Entry]:
    if isinstance(folder, Path):
        with os.scandir(folder) as entries:
            yield from (_Entry(entry.name, entry.path, _is_folder(entry)) for entry in entries)
    else:
        for path in folder.iterdir():
            yield _Entry(path.name, str(path), path.listed is None, path.listed)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _version(entry: _Entry) -> FileVersion | None:
    if entry.listed is not None:
        return FileVersion.of_object(entry.listed)
    try:
        return FileVersion.of(os.stat(entry.path))
    except OSError:
        return None
