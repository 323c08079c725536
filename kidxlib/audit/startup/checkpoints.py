"""Offset and leader epoch checkpoints as a starting broker reads them, and what keeps it from loading a partition
before it reads a log: the names of its files, and small files.

Names are parsed as Kafka parses them (`LogFileUtils.offsetFromFileName`). Only what Kafka fails on is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from kidxlib import java
from kidxlib.audit.startup.against_metadata import read_topic_id
from kidxlib.audit.startup.obstacles import (
    INT_BITS,
    LONG_BITS,
    Effect,
    KafkaThrows,
    Obstacle,
    Thrown,
    read_lines,
    thrown_at,
    unreadable,
)
from kidxlib.format import segment_files
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.storage.location import Listed, Location, as_location, listed_in
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.text.words import quoted

#: Java's `\s`, which is ASCII's alone.
_SPACES: Final = re.compile(r"[ \t\n\x0b\f\r]+")

_Entry = TypeVar("_Entry")

#: A simulated start looks at a name several times, in each of its passes.
_NAMES_KEPT: Final = 4096


#: What comes of an offset checkpoint on which Kafka throws no `IOException`, with a number in it that is none.
_WITHOUT_CHECKPOINT: Final = {
    RECOVERY_POINT_CHECKPOINT: "a broker takes 0 for all partitions of the log dir",  # `LogManager.loadLogs`
    LOG_START_OFFSET_CHECKPOINT: "a broker takes 0 for all partitions of the log dir",
    CLEANER_CHECKPOINT: "a broker's log cleaner ends, and nothing is compacted",  # `LogCleaner.CleanerThread`
    HIGH_WATERMARK_CHECKPOINT: "a broker that starts does not get the log dir's partitions into service",
}
#: What it costs to remove the file.
_REMEDIES_OF_CHECKPOINTS: Final = {
    RECOVERY_POINT_CHECKPOINT: "remove the file: after an unclean stop the broker then reads all logs of the log dir",
    LOG_START_OFFSET_CHECKPOINT: "remove the file: records that were deleted are served again where their segments are "
    "left",
    HIGH_WATERMARK_CHECKPOINT: "remove the file: high watermarks begin at the log start, and come back with the "
    "replicas in sync",
    CLEANER_CHECKPOINT: "remove the file: the cleaner begins anew at the start of each log",
}
#: The files for which that is a failure: `ReplicaManager.applyDelta` ends over it.
_FAILS_ON_OTHER_EXCEPTIONS: Final = (HIGH_WATERMARK_CHECKPOINT,)

#: Files whose names have to begin with an offset. Those that end with `.deleted` go by that alone.
_NAMED_BY_OFFSET: Final = (
    segment_files.LOG_SUFFIX,
    *segment_files.AUXILIARY_SUFFIXES,
    segment_files.CLEANED_SUFFIX,
    segment_files.SWAP_SUFFIX,
)


#: What it costs to do without a small file, or how it is made again.
_REMEDIES_OF_FILES: Final = {
    LEADER_EPOCH_CHECKPOINT: "kidx build --in-place --epochs --repair makes the file again from the log; of a tiered "
    "partition the log alone does not tell all of it",
    PARTITION_METADATA: "write the topic's id into it, in two lines: 'version: 0' and 'topic_id: ID'; without the file "
    "the broker sets the directory aside",
}
#: The same for the metadata's log, whose topic id is always one, and whose epochs are read from its batches.
_METADATA_REMEDY: Final = "remove the file: the node makes it again from the metadata's log"
_REMEDY_OF_MISNAMED: Final = "move the file out of the directory"


@dataclass(frozen=True, slots=True)
class Offsets:
    """What a broker takes from an offset checkpoint; why it does not start with that (`failure`), or a remark for a
    person on a file that it accepts (`note`).
    """

    by_partition: Mapping[TopicPartition, int]
    failure: Obstacle | None = None
    note: str | None = None


def read_offsets(log_dir: Location, name: str) -> Offsets:
    """Read an offset checkpoint of a log dir as a starting broker reads it (`OffsetCheckpointFile`)."""
    path = log_dir / name
    try:
        return Offsets(dict(_parse_checkpoint(path, 3, _parse_offset_entry)))
    except OSError as error:
        return Offsets({}, failure=unreadable(path, error))
    except KafkaThrows as error:
        if error.thrown is Thrown.IO:
            return Offsets({}, failure=thrown_at(path, error, _REMEDIES_OF_CHECKPOINTS[name]))
        obstacle = Obstacle(path, error.where, Effect.HIDES, _WITHOUT_CHECKPOINT[name], _REMEDIES_OF_CHECKPOINTS[name])
        return Offsets({}, failure=obstacle) if name in _FAILS_ON_OTHER_EXCEPTIONS else Offsets({}, note=str(obstacle))


def _parse_int(line: str, number: int) -> int:
    value = java.parse_integer(line, INT_BITS)
    if value is None:
        raise KafkaThrows(f"line {number}: {quoted(line)}, expected a number", Thrown.IO)
    return value


def _parse_checkpoint(
    path: Location | Listed, fields: int, entry: Callable[[list[str]], _Entry | None]
) -> list[_Entry]:
    """The entries of a checkpoint, which has this number of fields in a line; none where the file is absent, or ends
    before it says how many it has. `entry` returns None where Kafka throws another exception than an `IOException`.
    """
    try:
        lines = read_lines(path)
    except FileNotFoundError:
        return []
    if lines and (version := _parse_int(lines[0], 1)) != 0:
        raise KafkaThrows(f"line 1: version {version}, expected 0", Thrown.IO)
    if len(lines) < 2:
        return []
    expected = _parse_int(lines[1], 2)
    if expected < 0:
        raise KafkaThrows(f"line 2: {expected} entries announced", Thrown.OTHER)
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        parts = java.split_by_pattern(_SPACES, line)
        if len(parts) != fields:
            raise KafkaThrows(f"line {number}: {quoted(line)}, expected {fields} words", Thrown.IO)
        if (found := entry(parts)) is None:
            raise KafkaThrows(f"line {number}: {quoted(line)}, expected other numbers", Thrown.OTHER)
        entries.append(found)
    if len(entries) != expected:
        raise KafkaThrows(f"line 2: {expected} entries announced, {len(entries)} found", Thrown.IO)
    return entries


def _parse_offset_entry(parts: list[str]) -> tuple[TopicPartition, int] | None:
    """`OffsetCheckpointFile.Formatter`."""
    partition, offset = java.parse_integer(parts[1], INT_BITS), java.parse_integer(parts[2], LONG_BITS)
    return None if partition is None or offset is None else (TopicPartition(parts[0], partition), offset)


def _parse_epoch_entry(parts: list[str]) -> tuple[int, int] | None:
    """`LeaderEpochCheckpointFile.Formatter`."""
    epoch, start_offset = java.parse_integer(parts[0], INT_BITS), java.parse_integer(parts[1], LONG_BITS)
    return None if epoch is None or start_offset is None else (epoch, start_offset)


def read_epochs(path: Location | Listed) -> None:
    """Read leader epochs as `LeaderEpochFileCache` does, which ignores values below 0."""
    for number, entry in enumerate(_parse_checkpoint(path, 2, _parse_epoch_entry), start=3):
        if min(entry) < 0:
            raise KafkaThrows(
                f"line {number}: epoch {entry[0]} from {entry[1]} on, expected none below 0", Thrown.OTHER
            )


def failures_in_directory(directory: Location) -> Iterator[Obstacle]:
    """The failures in the files of a partition's directory, besides its logs; none if it cannot be listed."""
    try:
        files = listed_in(directory)
    except OSError:
        return
    yield from failures_in_files(directory, files)


def failures_in_files(directory: Location, files: Mapping[str, Listed]) -> Iterator[Obstacle]:
    """The failures in the listed files of a partition, in the order in which `UnifiedLog` reads them."""
    is_metadata = directory.name == METADATA_DIRECTORY
    yield from _obstacles_of_file(files, LEADER_EPOCH_CHECKPOINT, read_epochs, ends=is_metadata)
    for name in sorted(files):
        if (misnamed := why_misnamed(name)) is not None:
            found, does = misnamed
            yield Obstacle(directory / name, found, Effect.ENDS, does, _remedy_of_misnamed(name, files))
    yield from _obstacles_of_file(files, PARTITION_METADATA, read_topic_id, ends=is_metadata)


@lru_cache(_NAMES_KEPT)
def why_misnamed(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a file in a partition's directory, and what a broker does; None for nothing."""
    if not name.endswith(_NAMED_BY_OFFSET):
        return None
    offset = offset_of(name)
    if offset is None:
        return f"{name.partition('.')[0]!r} is no offset", f"{Thrown.OTHER} (NumberFormatException)"
    its_log = segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
    if name.removesuffix(segment_files.SWAP_SUFFIX).endswith(segment_files.LOG_SUFFIX) and not name.startswith(its_log):
        # `LogSegment.open` opens the file that is called as it should be, and makes it if it is not there.
        return (
            f"a log whose name is not {its_log}",
            "a broker that starts takes it for that one, and opens that; what follows is not simulated",
        )
    return None


def _remedy_of_misnamed(name: str, names: Collection[str]) -> str:
    """A misnamed file may be the only copy of a log."""
    offset = offset_of(name)
    its_log = None if offset is None or offset < 0 else segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
    if its_log is None or its_log in names or not name.endswith(segment_files.LOG_SUFFIX):
        return _REMEDY_OF_MISNAMED
    return f"{its_log} is not there: rename the file to that, if kidx dump shows that it begins with offset {offset}"


@lru_cache(_NAMES_KEPT)
def offset_of(name: str) -> int | None:
    """The offset in a file's name (`LogFileUtils.offsetFromFileName`)."""
    return java.parse_integer(name.partition(".")[0], LONG_BITS)


def _obstacles_of_file(
    files: Mapping[str, Listed], name: str, read: Callable[[Listed], object], *, ends: bool
) -> Iterator[Obstacle]:
    """What is wrong with a small file. No node starts without the files of the metadata's log (`ends`)."""
    if name not in files:
        return
    file = files[name]
    try:
        read(file)
    except KafkaThrows as error:
        thrown = Thrown.OTHER if ends else error.thrown
        remedy = _METADATA_REMEDY if ends else _REMEDIES_OF_FILES[name]
        yield thrown_at(as_location(file), KafkaThrows(error.where, thrown), remedy)
    except OSError as error:
        yield unreadable(as_location(file), error)
