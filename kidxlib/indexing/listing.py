"""Lists a source, a Kafka log dir or one partition's directory: its segments, what was skipped, and why.
`settled_segments` waits for a swap of the cleaner, and `IndexDirectoryListings` has the names in index directories. No
log is read.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, Self

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import (
    INDEX_SUFFIXES,
    OFFSET_INDEX_SUFFIX,
    NotASegment,
    parse_segment_file,
    parse_segment_log,
    why_not_a_partition,
    why_not_a_segment,
    why_not_in_a_log_dir,
)
from kidxlib.format.topic_partition import is_moved, loaded_as, parse_partition_directory
from kidxlib.indexing.source import NO_INODE, NOT_SEEN, FoundSegment, PartitionDirectory, Source
from kidxlib.storage.location import (
    Directory,
    FileVersion,
    Location,
    is_directory,
    list_directory,
    location,
    not_packed,
)
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import ObjectPath, is_object

#: The last moment that 64 bits of nanoseconds hold, in the year 2262. A file may have a later time.
_LATEST_NS: Final = 2**63 - 1


#: How long to wait for the cleaner: a running broker takes some milliseconds to rename files, and a broker that was
#: killed in between never ends it.
_TRIES: Final = 20
_PAUSE_SECONDS: Final = 0.05


def list_source_partitions(source: Source, skipped: SkippedEntries) -> list[PartitionDirectory]:
    """The partitions of a source, in order. What is no partition is added to `skipped`.

    A directory that contains partitions is a log dir. If it contains none and its own name is `<topic>-<partition>`, it
    is that partition.
    """
    if source.remote is not None:
        logs = source.remote.logs()
        return [PartitionDirectory(source, partition, remote.directory, remote) for partition, remote in logs.items()]
    partitions: list[PartitionDirectory] = []
    passed_over = SkippedEntries()
    holds_segments = False
    for entry in listed_entries(source.path):
        if not entry.is_directory:
            holds_segments = holds_segments or parse_segment_log(entry.name) is not None
            passed_over.add(entry.path, why_not_in_a_log_dir(entry.name))
        elif (partition := parse_partition_directory(entry.name)) is not None:
            partitions.append(PartitionDirectory(source, partition, location(entry.path)))
        else:
            passed_over.add(entry.path, why_not_a_partition(entry.name))
    if not partitions and (partition := parse_partition_directory(source.path.name)) is not None:
        return [PartitionDirectory(source, partition, source.path)]
    if not partitions and holds_segments and is_moved(source.path.name) and (of := loaded_as(source.path.name)):
        raise UsageError(
            f"{source.path}: a {why_not_a_partition(source.path.name).in_words}; to look at it, copy it to a directory "
            f"called {of.directory}, and give that"
        )
    if not partitions and holds_segments:
        raise UsageError(
            f"{source.path}: it holds segments, but its name is not <topic>-<partition>; rename the directory, "
            "or give the log dir above it"
        )
    skipped.merge(passed_over)
    return sorted(partitions, key=lambda directory: directory.topic_partition)


def list_distinct_partitions(
    sources: Iterable[Source], skipped: SkippedEntries | None = None
) -> list[PartitionDirectory]:
    """The partitions of log dirs of one broker, in order. What is no partition is added to `skipped`."""
    skipped = SkippedEntries() if skipped is None else skipped
    partitions = [partition for source in sources for partition in list_source_partitions(source, skipped)]
    partitions.sort(key=lambda partition: partition.topic_partition)
    for one, other in pairwise(partitions):
        if one.topic_partition == other.topic_partition:
            raise UsageError(
                f"{one.topic_partition.directory} is in {one.source.path} and in {other.source.path}; expected log "
                "dirs of one broker, which has each partition once; give one of the two"
            )
    return partitions


def list_segments(directory: PartitionDirectory, skipped: SkippedEntries) -> list[FoundSegment]:
    """The segments of one partition, in any order. What is no segment is added to `skipped`. A log that cannot be
    looked at is still listed: reading it will say why.
    """
    if directory.remote is not None:
        return list(directory.remote.files().segments)
    passed_over = SkippedEntries()
    path = not_packed(directory.path)
    if isinstance(path, Path):
        segments = _files_of_segments(path, passed_over)
    else:
        segments = _objects_of_segments(path, passed_over)
    skipped.merge(passed_over)
    return segments


def _files_of_segments(directory: Path, skipped: SkippedEntries) -> list[FoundSegment]:
    segments: list[FoundSegment] = []
    name = str(directory)
    with os.scandir(directory) as entries:
        for entry in entries:
            base_offset = parse_segment_log(entry.name)
            if base_offset is None:
                why = NotASegment.OTHER if is_directory(entry) else why_not_a_segment(entry.name)
                skipped.add(entry.path, why, name)
                continue
            try:
                status = entry.stat()
            except OSError as error:
                if isinstance(error, PermissionError) and not entry.is_symlink():
                    raise  # the directory may be listed, and nothing in it looked at
                segments.append((base_offset, NOT_SEEN, 0, NO_INODE))
            else:
                segments.append((base_offset, status.st_size, min(status.st_mtime_ns, _LATEST_NS), status.st_ino))
    return segments


def _objects_of_segments(directory: ObjectPath, skipped: SkippedEntries) -> list[FoundSegment]:
    segments: list[FoundSegment] = []
    for path in directory.iterdir():
        base_offset = parse_segment_log(path.name)
        if base_offset is not None:
            version = None if path.listed is None else FileVersion.of_object(path.listed)
            if version is None:
                segments.append((base_offset, NOT_SEEN, 0, NO_INODE))
            else:
                segments.append((base_offset, version.size, version.mtime_ns, NO_INODE))
        elif path.listed is None:
            skipped.add(str(path), NotASegment.OTHER)
        else:
            skipped.add(str(path), why_not_a_segment(path.name), str(directory))
    return segments


def settled_segments(directory: PartitionDirectory) -> list[FoundSegment]:
    """List the segments of a partition in order.

    When the cleaner has compacted some, it renames these to `.deleted`, and then its own from `.log.swap` to `.log`
    (`LocalLog.replaceSegments`). Whoever lists them in between sees neither, so this waits a moment.
    """
    for _ in range(_TRIES):
        skipped = SkippedEntries()
        segments = sorted(list_segments(directory, skipped))
        if not skipped.counts[NotASegment.SWAP]:
            break
        time.sleep(_PAUSE_SECONDS)
    return segments


def list_offset_indexes(directory: Location) -> set[int]:
    """List the offset indexes in an index directory, by their base offsets; none if there is no such directory."""
    files = (parse_segment_file(path.name) for path in directory.glob(f"*{OFFSET_INDEX_SUFFIX}"))
    return {file[0] for file in files if file is not None}


@dataclass(frozen=True, slots=True)
class ListedEntry:
    name: str
    path: str
    is_directory: bool


def listed_entries(directory: Location) -> Iterator[ListedEntry]:
    if isinstance(directory, Path):
        with os.scandir(directory) as entries:
            yield from (ListedEntry(entry.name, entry.path, _is_to_be_listed(entry)) for entry in entries)
    else:
        for path in directory.iterdir():
            yield ListedEntry(path.name, str(path), path.listed is None)


def _is_to_be_listed(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory, or has a partition's name and cannot be looked at, as on a disk that is not
    mounted: to list it says why.
    """
    if is_directory(entry):
        return True
    if parse_partition_directory(entry.name) is None:
        return False
    try:
        entry.stat()
    except OSError:
        return True
    return False


#: Entries that an operator does not expect in a log dir; each gets a line of its own.
_UNEXPECTED: Final = (NotASegment.WRONG_SEGMENT_NAME, NotASegment.LOOSE_LOG, NotASegment.NO_PARTITION_NUMBER)

#: How many directories that cannot be listed are named. All are counted: a disk that fails may have 100,000.
_NAMED: Final = 100


@dataclass(slots=True)
class SkippedEntries:
    """Entries that a listing skipped, counted by kind, and the paths of unexpected ones.

    Attributes:
        indexes: how many index files lie beside logs, by the partition's directory and the suffix.
    """

    counts: Counter[NotASegment] = field(default_factory=Counter)
    unexpected: list[tuple[str, NotASegment]] = field(default_factory=list)
    indexes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, path: str, reason: NotASegment, directory: str | None = None) -> None:
        """Add an entry, with the partition's directory that it is in."""
        self.counts[reason] += 1
        if reason in _UNEXPECTED:
            self.unexpected.append((path, reason))
        if directory is not None and reason is NotASegment.AUXILIARY and path.endswith(INDEX_SUFFIXES):
            self.indexes[directory, path[path.rindex(".") :]] += 1

    def merge(self, other: SkippedEntries) -> None:
        self.counts.update(other.counts)
        self.unexpected.extend(other.unexpected)
        self.indexes.update(other.indexes)


@dataclass(frozen=True, slots=True)
class UnlistableDirectory:
    """A partition's directory that cannot be listed, so nothing is known of its segments.

    Attributes:
        directory: its path.
        reason: what the system says, as "Permission denied".
    """

    directory: str
    reason: str


def warnings_of_unlistable(unlistable: Collection[UnlistableDirectory]) -> list[str]:
    """A line for each of the first directories, and one that counts the others."""
    lines = [
        f"{unlisted.directory}: skipped: it cannot be listed: {unlisted.reason}"
        for unlisted in islice(unlistable, _NAMED)
    ]
    if len(unlistable) > _NAMED:
        lines.append(f"{len(unlistable) - _NAMED:,} more directories of partitions cannot be listed")
    return lines


def unlistable_as_json(unlistable: Collection[UnlistableDirectory]) -> dict[str, Any]:
    """The directories that could not be listed, for the JSON objects of builds and audits."""
    return {
        "unlistable_count": len(unlistable),
        "unlistable": [asdict(directory) for directory in islice(unlistable, _NAMED)],
    }


class IndexDirectoryListings:
    """The names in index directories; those in an object store are listed ahead of the one that is asked for. Use as a
    context. `coming` are the directories that will be asked for, in that order; some may be left out, others added.
    """

    def __init__(self, coming: Sequence[Directory] = ()) -> None:
        in_store = [directory for directory in coming if is_object(directory.root)]
        self._names = in_order(list_directory, in_store)
        self._coming: Iterator[tuple[Directory, list[str]]] = zip(in_store, self._names, strict=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._names.close()

    def names_in(self, directory: Directory) -> list[str]:
        """List one index directory: the names in it; none where it does not exist."""
        if is_object(directory.root):
            for listed, names in self._coming:
                if listed == directory:
                    return names
        return list_directory(directory)
