"""Sources, the directories of their partitions, the logs in these, and where their index files are."""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import (
    INTERNAL_TOPICS,
    TOPIC_LENGTH_MAX,
    TopicPartition,
    is_name,
    parse_partition_directory,
)
from kidxlib.indexing.remote_logs import NOT_SAID, RemoteBucket, RemoteLogs, RemoteOptions, remote_bucket
from kidxlib.storage.location import Directory, FileVersion, Location, as_text, given_location, identity_of, location
from kidxlib.storage.log_dir import is_partition_directory
from kidxlib.storage.packed import PackedPath
from kidxlib.storage.store.s3 import is_object

ANY_TOPIC: Final = re.compile(".*")


@dataclass(frozen=True, slots=True)
class Source:
    """A Kafka log dir or partition directory, and its name in the catalog.

    Attributes:
        remote: of a bucket of tiered storage, how its objects are named; None of any other.
    """

    name: str
    path: Location
    remote: RemoteBucket | None = field(default=None, compare=False)

    @property
    def log_dir(self) -> Location:
        """The source, or the log dir around it where it is a partition's directory."""
        return self.path.parent if is_partition_directory(self.path) else self.path


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A partition's directory in a source.

    Attributes:
        remote: in a bucket of tiered storage, its logs; None in any other.
    """

    source: Source
    topic_partition: TopicPartition
    path: Location
    remote: RemoteLogs | None = field(default=None, compare=False)

    def file(self, base_offset: int, suffix: str) -> Location:
        if self.remote is not None:
            return self.remote.path(base_offset, suffix)
        return self.path / segment_file(base_offset, suffix)

    @property
    def log_dir(self) -> Location:
        """The parent directory, where a broker keeps its lock and checkpoint files."""
        return self.path.parent

    @property
    def is_meant_by_name_only(self) -> bool:
        """Whether no pattern means the topic, as brokers keep it for themselves. If the source is this very directory,
        the topic is meant anyway.
        """
        return self.topic_partition.topic in INTERNAL_TOPICS and self.path != self.source.path


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """A segment's log as it was listed.

    Attributes:
        source: name of the source.
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
        return self.source, self.topic_partition.topic, self.topic_partition.partition


def parse_source(text: str, name_required: bool, remote: RemoteOptions = NOT_SAID) -> Source:
    """The source that `[NAME=]DIR` means."""
    name, path = split_name(text)
    if name_required and not name:
        raise UsageError(f"{text}: with several sources each needs a name, as in --source broker1={text}")
    return source_at(path, name, remote)


def split_name(text: str) -> tuple[str, str]:
    """The name, or "", and the place that `[NAME=]PLACE` means."""
    name, equals, path = text.partition("=")
    if equals and is_name(name):
        return name, path
    if equals and not is_object(text) and not os.path.exists(text):
        raise UsageError(
            f"{text}: the name {name!r} may hold only letters, digits, '.', '_' and '-', "
            f"{TOPIC_LENGTH_MAX} of them at most, and not be '.' or '..'"
        )
    return "", text


def source_at(path: str, name: str = "", remote: RemoteOptions = NOT_SAID) -> Source:
    """The source in a directory. Its name is the given one, else its real path or its URL."""
    if not path:
        raise UsageError("an empty name instead of a directory; expected a Kafka log dir or a partition's directory")
    try:
        directory: Location = given_location("", path) or Path(os.path.realpath(path))
        if isinstance(directory, Path):
            os.scandir(directory).close()
        elif not directory.exists():
            raise FileNotFoundError(errno.ENOENT, "no object with this prefix")
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: {why}; expected a Kafka log dir or a partition's directory") from error
    return Source(name or as_text(directory), directory, remote_bucket(directory, remote))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlace:
    """Where index files go, or are: in a directory for each partition of an index directory, below their source's name
    if `by_source`; without an index directory, beside the segments. An index directory may be the place in a catalog
    that packs the files (`PackedPath`).
    """

    index_dir: Location | None
    by_source: bool

    def directory(self, partition: PartitionDirectory) -> Directory:
        name = partition.topic_partition.directory
        if self.index_dir is None:
            return Directory(str(partition.log_dir), partition.path.name)
        if isinstance(self.index_dir, PackedPath) and self.by_source:
            return Directory(str(self.index_dir.of_source(self.index_dir.catalog, partition.source.name)), name)
        return Directory(str(self.index_dir), f"{partition.source.name}/{name}" if self.by_source else name)


def segments_directory(source: Location, topic_partition: TopicPartition, logs: Mapping[int, str]) -> Directory | None:
    """The directory of a partition's logs, below their source; None if a log's path in a table (`logs`, by base offset)
    is elsewhere.
    """
    name = topic_partition.directory
    for log_dir in (source, source.parent):  # the source may be a log dir, or this very partition's directory
        paths = (str(log_dir / name / segment_file(base_offset, LOG_SUFFIX)) for base_offset in logs)
        if all(path == recorded for path, recorded in zip(paths, logs.values(), strict=True)):
            return Directory(str(log_dir), name)
    return None


def index_directory(topic_partition: TopicPartition, recorded: Collection[str]) -> Directory | None:
    """The directory of a partition's index files; None if a table names several directories, or one of another
    partition.
    """
    path = location(min(recorded))
    if len(set(recorded)) > 1 or path.name != topic_partition.directory:
        return None
    return Directory(str(path.parent), path.name)


def ensure_distinct_directories(sources: Sequence[Source]) -> None:
    """Refuse sources whose segments would count twice: one directory under two names, as through a symlink or a bind
    mount, and a partition's directory together with its log dir.
    """
    by_directory: dict[object, Source] = {}
    for source in sources:
        other = by_directory.setdefault(identity_of(source.path), source)
        if other is source:
            continue
        if other.path != source.path:
            raise UsageError(f"{source.path}: the same directory as {other.path}; name each log dir once")
        names = "" if other.name == source.name else f", as source {other.name} and as source {source.name}"
        raise UsageError(f"{source.path}: given twice{names}; name each log dir once")
    for source in sources:
        is_partition_by_name = parse_partition_directory(source.path.name) is not None
        if is_partition_by_name and (log_dir := by_directory.get(identity_of(source.path.parent))) is not None:
            raise UsageError(f"{source.path}: it is in {log_dir.path}, which is given, too; leave out one of the two")


def parse_sources(given: Iterable[str], remote: RemoteOptions = NOT_SAID) -> tuple[Source, ...]:
    texts = tuple(given)
    sources = tuple(parse_source(text, name_required=len(texts) > 1, remote=remote) for text in texts)
    for name, count in Counter(source.name for source in sources).items():
        if count > 1:
            raise UsageError(f"--source: the name {name} is given {count} times; each source needs its own")
    ensure_distinct_directories(sources)
    return sources


def parse_topics(pattern: str, option: str = "--topics") -> re.Pattern[str]:
    """The regular expression for the names of topics; `option` is named in the error."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{option} {pattern}: not a regular expression: {error}") from error


def sources_line(sources: tuple[Source, ...]) -> str:
    return ", ".join(
        str(source.path) if source.name == str(source.path) else f"{source.name} ({source.path})" for source in sources
    )
