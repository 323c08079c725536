"""Lists a source, a Kafka log dir or one partition's directory: its segments, what was skipped, and why. No log is
read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import (
    OFFSET_INDEX_SUFFIX,
    NotASegment,
    parse_segment_file,
    parse_segment_log,
    why_not_a_partition,
    why_not_a_segment,
    why_not_in_a_log_dir,
)
from kidxlib.format.topic_partition import is_moved, loaded_as, parse_partition_directory
from kidxlib.indexing.listed import NO_INODE, NOT_SEEN, FoundSegment
from kidxlib.indexing.skipped import Skipped
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.storage.location import FileVersion, Location, is_directory, location, not_packed
from kidxlib.storage.store.s3 import ObjectPath

#: The last moment that 64 bits of nanoseconds hold, in the year 2262. A file may have a later time.
_LATEST_NS: Final = 2**63 - 1


def list_partitions(source: Source, skipped: Skipped) -> list[PartitionDirectory]:
    """The partitions of a source, in order. What is no partition is added to `skipped`.

    A directory that contains partitions is a log dir. If it contains none and its own name is `<topic>-<partition>`, it
    is that partition.
    """
    if source.remote is not None:
        logs = source.remote.logs()
        return [PartitionDirectory(source, partition, remote.directory, remote) for partition, remote in logs.items()]
    partitions: list[PartitionDirectory] = []
    passed_over = Skipped()
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


def list_distinct_partitions(sources: Iterable[Source], skipped: Skipped | None = None) -> list[PartitionDirectory]:
    """The partitions of log dirs of one broker, in order. What is no partition is added to `skipped`."""
    skipped = Skipped() if skipped is None else skipped
    partitions = [partition for source in sources for partition in list_partitions(source, skipped)]
    partitions.sort(key=lambda partition: partition.topic_partition)
    for one, other in pairwise(partitions):
        if one.topic_partition == other.topic_partition:
            raise UsageError(
                f"{one.topic_partition.directory} is in {one.source.path} and in {other.source.path}; expected log "
                "dirs of one broker, which has each partition once; give one of the two"
            )
    return partitions


def list_segments(directory: PartitionDirectory, skipped: Skipped) -> list[FoundSegment]:
    """The segments of one partition, in any order. What is no segment is added to `skipped`. A log that cannot be
    looked at is still listed: reading it will say why.
    """
    if directory.remote is not None:
        return list(directory.remote.files().segments)
    passed_over = Skipped()
    path = not_packed(directory.path)
    if isinstance(path, Path):
        segments = _files_of_segments(path, passed_over)
    else:
        segments = _objects_of_segments(path, passed_over)
    skipped.merge(passed_over)
    return segments


def _files_of_segments(directory: Path, skipped: Skipped) -> list[FoundSegment]:
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


def _objects_of_segments(directory: ObjectPath, skipped: Skipped) -> list[FoundSegment]:
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


def offset_indexes(directory: Location) -> set[int]:
    """The base offsets of the offset indexes in a directory; none if there is no such directory."""
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
