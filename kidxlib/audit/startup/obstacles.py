"""Obstacles: what a node meets as it starts, that keeps it from starting, from a log dir, or from records. Those of
single files are found here: checkpoints and other small text files that a broker cannot read, and names of files that
it fails on.

Files are read as Kafka's own classes read them (`CheckpointFile`, `PartitionMetadataFile`), and names parsed as Kafka
parses them (`LogFileUtils.offsetFromFileName`): only what Kafka fails on is an obstacle. `kidxlib.storage.log_dir` is
stricter: it accepts only what a broker writes.

An `IOException` takes the log dir out of use (`LogDirFailureChannel`), and a broker that has no other ends
(`ReplicaManager.handleLogDirFailure`). Any other exception ends it (`LogManager.loadLogs`).
"""

from __future__ import annotations

import base64
import enum
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from kidxlib import java
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
from kidxlib.storage.small_files import small_file
from kidxlib.text.words import quoted

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
#: Java's `\s`, which is ASCII's alone.
_SPACES: Final = re.compile(r"[ \t\n\x0b\f\r]+")
_FIELD_SEPARATOR: Final = re.compile(r":[ \t\n\x0b\f\r]+")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_TOPIC_ID_BYTES: Final = 16

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
REMEDY_OF_MISNAMED: Final = "move the file out of the directory"


class Effect(enum.StrEnum):
    """What comes of an obstacle, the worst first."""

    ENDS = "ends"  # the node does not start, with any of its log dirs
    LOG_DIR = "log-dir"  # it takes the log dir out of use, and ends if it has no other
    HIDES = "hides"  # it starts, and does not serve some records, sets them aside or drops them
    UNKNOWN = "unknown"  # what it takes from the file is not known


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that a node meets as it starts.

    Attributes:
        where: the file or directory.
        found: what was found there, and what was expected.
        effect: the kind of what the node does.
        does: what the node does, in words.
        remedy: what to do, with the price of that.
        is_loss: records are missing, and nothing else keeps the node from starting: somebody may accept that.
    """

    where: Location
    found: str
    effect: Effect
    does: str
    remedy: str = ""
    is_loss: bool = False

    @classmethod
    def unreadable(cls, path: Location, error: OSError) -> Obstacle:
        """The obstacle of a file that cannot be read: nobody knows whether a node meets anything there."""
        unread = f"not read: {error.strerror or error}"
        why = "not readable by this user" if isinstance(error, PermissionError) else unread
        return cls(path, why, Effect.UNKNOWN, "what a broker takes from it is not known")

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"{self.where}: {self.found}", self.does, self.remedy)))


class Thrown(enum.StrEnum):
    """What a broker does if it cannot read a file."""

    IO = "a broker that starts takes the log dir out of use, and ends if it has no other"
    OTHER = "a broker that starts ends with an error"


_EFFECTS: Final = {Thrown.IO: Effect.LOG_DIR, Thrown.OTHER: Effect.ENDS}


class KafkaThrows(Exception):  # noqa: N818  # of Kafka, and none of ours
    """Kafka throws something when it reads a file. `where` is the place in the file, and what stands there."""

    def __init__(self, where: str, thrown: Thrown) -> None:
        super().__init__(where)
        self.where, self.thrown = where, thrown


def _thrown_at(path: Location, error: KafkaThrows, remedy: str) -> Obstacle:
    return Obstacle(path, error.where, _EFFECTS[error.thrown], str(error.thrown), remedy)


def obstacles_in_partition(directory: Location) -> Iterator[Obstacle]:
    """What is wrong with the files of a partition's directory, besides its logs; nothing if it cannot be listed."""
    try:
        files = listed_in(directory)
    except OSError:
        return
    yield from obstacles_in_files(directory, files)


def obstacles_in_files(directory: Location, files: Mapping[str, Listed]) -> Iterator[Obstacle]:
    """What is wrong with listed files of a partition, in the order in which `UnifiedLog` reads them."""
    is_metadata = directory.name == METADATA_DIRECTORY
    yield from _obstacles_of_file(files, LEADER_EPOCH_CHECKPOINT, ensure_epochs_accepted, ends=is_metadata)
    for name in sorted(files):
        if (misnamed := why_misnamed(name)) is not None:
            found, does = misnamed
            yield Obstacle(directory / name, found, Effect.ENDS, does, _remedy_of_misnamed(name, files))
    yield from _obstacles_of_file(files, PARTITION_METADATA, accepted_topic_id, ends=is_metadata)


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
        yield _thrown_at(as_location(file), KafkaThrows(error.where, thrown), remedy)
    except OSError as error:
        yield Obstacle.unreadable(as_location(file), error)


@lru_cache(_NAMES_KEPT)
def why_misnamed(name: str) -> tuple[str, str] | None:
    """Why the name of a file in a partition's directory is an obstacle, and what a broker does; None if it is none."""
    if not name.endswith(_NAMED_BY_OFFSET):
        return None
    offset = segment_files.offset_in_name(name)
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
    offset = segment_files.offset_in_name(name)
    its_log = None if offset is None or offset < 0 else segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
    if its_log is None or its_log in names or not name.endswith(segment_files.LOG_SUFFIX):
        return REMEDY_OF_MISNAMED
    return f"{its_log} is not there: rename the file to that, if kidx dump shows that it begins with offset {offset}"


@dataclass(frozen=True, slots=True)
class AcceptedOffsets:
    """What a broker takes from an offset checkpoint; why it does not start with that (`failure`), or a remark for a
    person on a file that it accepts (`note`).
    """

    by_partition: Mapping[TopicPartition, int]
    failure: Obstacle | None = None
    note: str | None = None


def accepted_offsets(log_dir: Location, name: str) -> AcceptedOffsets:
    """Read an offset checkpoint of a log dir as a starting broker reads it (`OffsetCheckpointFile`)."""
    path = log_dir / name
    try:
        return AcceptedOffsets(dict(_parse_checkpoint(path, 3, _parse_offset_entry)))
    except OSError as error:
        return AcceptedOffsets({}, failure=Obstacle.unreadable(path, error))
    except KafkaThrows as error:
        if error.thrown is Thrown.IO:
            return AcceptedOffsets({}, failure=_thrown_at(path, error, _REMEDIES_OF_CHECKPOINTS[name]))
        obstacle = Obstacle(path, error.where, Effect.HIDES, _WITHOUT_CHECKPOINT[name], _REMEDIES_OF_CHECKPOINTS[name])
        fails = name == HIGH_WATERMARK_CHECKPOINT  # `ReplicaManager.applyDelta` ends over it
        return AcceptedOffsets({}, failure=obstacle) if fails else AcceptedOffsets({}, note=str(obstacle))


def ensure_epochs_accepted(path: Location | Listed) -> None:
    """Read a `leader-epoch-checkpoint` as a starting broker does (`LeaderEpochFileCache`, which ignores values below
    0); what it does not accept is raised as `KafkaThrows`.
    """
    for number, entry in enumerate(_parse_checkpoint(path, 2, _parse_epoch_entry), start=3):
        if min(entry) < 0:
            raise KafkaThrows(
                f"line {number}: epoch {entry[0]} from {entry[1]} on, expected none below 0", Thrown.OTHER
            )


def accepted_topic_id(path: Location | Listed) -> str:
    """Read the topic id in `partition.metadata` as a starting broker does (`PartitionMetadataReadBuffer`): from two
    lines, ignoring what is before their colons. What keeps the broker from starting is raised as `KafkaThrows`.
    """
    lines = read_lines(path)
    version = java.parse_int(_metadata_field(lines, 1))
    if version is None or version < 0:
        raise KafkaThrows(f"line 1: {quoted(lines[0])}, expected 'version: 0'", Thrown.IO)
    topic_id = _metadata_field(lines, 2)
    if _TOPIC_ID.fullmatch(topic_id) is None:
        raise KafkaThrows(f"line 2: {quoted(lines[1])}, expected a topic id of 22 characters", Thrown.OTHER)
    if base64.urlsafe_b64decode(f"{topic_id[:22]}==") == bytes(_TOPIC_ID_BYTES):
        raise KafkaThrows(f"line 2: {quoted(lines[1])}, an id that no topic has", Thrown.IO)
    return topic_id[:22]


def _metadata_field(lines: list[str], number: int) -> str:
    if len(lines) < number:
        raise KafkaThrows(f"line {number}: not there, expected 'version: 0' and 'topic_id: <id>'", Thrown.OTHER)
    parts = java.split_by_pattern(_FIELD_SEPARATOR, lines[number - 1])
    if len(parts) != 2:
        raise KafkaThrows(f"line {number}: {quoted(lines[number - 1])}, expected '<name>: <value>'", Thrown.IO)
    return parts[1]


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
    partition, offset = java.parse_int(parts[1]), java.parse_long(parts[2])
    return None if partition is None or offset is None else (TopicPartition(parts[0], partition), offset)


def _parse_epoch_entry(parts: list[str]) -> tuple[int, int] | None:
    """`LeaderEpochCheckpointFile.Formatter`."""
    epoch, start_offset = java.parse_int(parts[0]), java.parse_long(parts[1])
    return None if epoch is None or start_offset is None else (epoch, start_offset)


def _parse_int(line: str, number: int) -> int:
    value = java.parse_int(line)
    if value is None:
        raise KafkaThrows(f"line {number}: {quoted(line)}, expected a number", Thrown.IO)
    return value


def read_lines(path: Location | Listed) -> list[str]:
    """The lines of a checkpoint or `partition.metadata` as a starting broker reads them (`BufferedReader.readLine`);
    bytes that are not UTF-8 raise `KafkaThrows`.
    """
    content = small_file(path)
    try:
        lines = _LINE_END.split(content.decode())
    except UnicodeDecodeError as error:
        raise KafkaThrows(f"byte {error.start}: not UTF-8", Thrown.IO) from error
    return lines if lines[-1] else lines[:-1]
