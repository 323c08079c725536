"""What keeps a broker from starting before it looks at a log: names in its log dir, and small files.

Names and files are taken as Kafka's own classes take them (`LocalLog.parseTopicPartitionName`,
`LogFileUtils.offsetFromFileName`, `CheckpointFile`, `PartitionMetadataFile`), which is not how `kidxlib.log_dir` reads
them: that wants what a broker writes. Here nothing is a failure on which Kafka does not fail.

An `IOException` takes the log dir out of use (`LogDirFailureChannel`), and a broker that has no other ends
(`ReplicaManager.handleLogDirFailure`). Any other exception ends it (`LogManager.loadLogs`).
"""

from __future__ import annotations

import base64
import enum
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from kidxlib import names
from kidxlib.log_dir import PARTITION_METADATA, small_file
from kidxlib.names import TopicPartition
from kidxlib.objects import Location, files_in

_INT_BITS: Final = 32
_LONG_BITS: Final = 64

#: Java's `\s`, which is ASCII's alone.
_SPACES: Final = re.compile(r"[ \t\n\x0b\f\r]+")
_COLON: Final = re.compile(r":[ \t\n\x0b\f\r]+")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_TOPIC_ID_BYTES: Final = 16

#: Files whose names have to begin with an offset. Those that end with `.deleted` go by that alone.
_NAMED_BY_OFFSET: Final = (names.LOG_SUFFIX, *names.SIDE_FILE_SUFFIXES, names.CLEANED_SUFFIX, names.SWAP_SUFFIX)

_Entry = TypeVar("_Entry")


class Thrown(enum.StrEnum):
    """What a broker does that cannot read a file."""

    IO = "a broker that starts takes the log dir out of use, and ends if it has no other"
    OTHER = "a broker that starts ends with an error"


class _FileError(Exception):
    """Kafka throws something when it reads a file.

    Attributes:
        where: the place in the file, and what stands there.
    """

    def __init__(self, where: str, thrown: Thrown) -> None:
        super().__init__(where)
        self.where, self.thrown = where, thrown


#: What comes of an offset checkpoint on which Kafka throws no `IOException`, with a number in it that is none.
_OTHERWISE: Final = {
    names.RECOVERY_POINT_CHECKPOINT: "a broker takes 0 for all partitions of the log dir",  # `LogManager.loadLogs`
    names.LOG_START_OFFSET_CHECKPOINT: "a broker takes 0 for all partitions of the log dir",
    names.CLEANER_CHECKPOINT: "a broker's log cleaner ends, and nothing is compacted",  # `LogCleaner.CleanerThread`
    names.HIGH_WATERMARK_CHECKPOINT: "a broker that starts does not get the log dir's partitions into service",
}
#: Of these, what is a failure: `ReplicaManager.applyDelta` ends over it.
_FAILS_OTHERWISE: Final = (names.HIGH_WATERMARK_CHECKPOINT,)


@dataclass(frozen=True, slots=True)
class Offsets:
    """What a broker takes from an offset checkpoint.

    Attributes:
        failure: why it does not go on with it.
        note: what a person should be told of one that it goes on with.
    """

    by_partition: Mapping[TopicPartition, int]
    failure: str | None = None
    note: str | None = None


def read_offsets(log_dir: Location, name: str) -> Offsets:
    """An offset checkpoint of a log dir as a broker that starts reads it (`OffsetCheckpointFile`)."""
    path = log_dir / name
    try:
        return Offsets(dict(_checkpoint(path, 3, _offset_entry)))
    except OSError as error:
        return Offsets({}, failure=_unreadable(path, error))
    except _FileError as error:
        if error.thrown is Thrown.IO:
            return Offsets({}, failure=f"{path}: {error.where}; {error.thrown}")
        told = f"{path}: {error.where}; {_OTHERWISE[name]}"
        return Offsets({}, failure=told) if name in _FAILS_OTHERWISE else Offsets({}, note=told)


def in_log_dir(log_dir: Location) -> Iterator[str]:
    """Of a log dir's directories: names that are no partition's, and what lies in those that Kafka moves or deletes.

    A broker loads the latter as it loads partitions (`LogManager.loadLog`); their logs are not looked at here.
    """
    for folder in sorted(_folders_in(log_dir), key=str):
        partition = names.loaded_as(folder.name)
        if folder.name == names.REMOTE_INDEX_CACHE:
            continue
        if partition is None:
            yield (
                f"{folder}: a directory whose name is not <topic>-<partition>; a broker does not start beside it, with "
                "any of its log dirs"
            )
        elif partition.topic != names.METADATA_TOPIC and names.parse_partition_folder(folder.name) is None:
            yield from in_folder(folder)


def in_folder(folder: Location) -> Iterator[str]:
    """Of the files in a partition's folder, but for its logs; nothing where it cannot be listed."""
    try:
        files = files_in(folder)
    except OSError:
        return
    yield from in_files(folder, files)


def in_files(folder: Location, files: Mapping[str, Location]) -> Iterator[str]:
    """Likewise of files that were listed, in the order in which `UnifiedLog` comes to them."""
    yield from _of_file(files.get(names.LEADER_EPOCH_CHECKPOINT), _read_epochs)
    for name in sorted(files):
        if (why := _why_misnamed(name)) is not None:
            yield f"{folder / name}: {why}"
    yield from _of_file(files.get(PARTITION_METADATA), _read_topic_id)


def is_misnamed(name: str) -> bool:
    """Whether a broker fails on the name of a file in a partition's folder."""
    return _why_misnamed(name) is not None


def _why_misnamed(name: str) -> str | None:
    if not name.endswith(_NAMED_BY_OFFSET):
        return None
    offset = offset_of(name)
    if offset is None:
        return f"{name.partition('.')[0]!r} is no offset; {Thrown.OTHER} (NumberFormatException)"
    its_log = names.segment_file(offset, names.LOG_SUFFIX)
    if name.removesuffix(names.SWAP_SUFFIX).endswith(names.LOG_SUFFIX) and not name.startswith(its_log):
        # `LogSegment.open` opens the file that is called as it should be, and makes it if it is not there.
        return f"a broker that starts takes it for {its_log}, and opens that; what follows is not told"
    return None


def offset_of(name: str) -> int | None:
    """The offset in a file's name (`LogFileUtils.offsetFromFileName`)."""
    return names.java_integer(name.partition(".")[0], _LONG_BITS)


def _folders_in(log_dir: Location) -> Iterator[Location]:
    if not isinstance(log_dir, Path):
        yield from (path for path in log_dir.iterdir() if path.listed is None)
        return
    with os.scandir(log_dir) as entries:
        yield from (Path(entry.path) for entry in entries if _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _of_file(path: Location | None, read: Callable[[Location], object]) -> Iterator[str]:
    if path is None:
        return
    try:
        read(path)
    except _FileError as error:
        yield f"{path}: {error.where}; {error.thrown}"
    except OSError as error:
        yield _unreadable(path, error)


def _unreadable(path: Location, error: OSError) -> str:
    why = "not readable by this user" if isinstance(error, PermissionError) else f"not read: {error.strerror or error}"
    return f"{path}: {why}; what a broker takes from it is not known"


# ---- files, as Kafka reads them ----


def _lines(path: Location) -> list[str]:
    """As `BufferedReader.readLine` tells them."""
    content = small_file(path)
    try:
        lines = _LINE_END.split(content.decode())
    except UnicodeDecodeError as error:
        raise _FileError(f"byte {error.start}: not UTF-8", Thrown.IO) from error
    return lines if lines[-1] else lines[:-1]


def _split(separator: re.Pattern[str], line: str) -> list[str]:
    """As `Pattern.split`, which drops what is empty at the end."""
    parts = separator.split(line)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _int(line: str, number: int) -> int:
    value = names.java_integer(line, _INT_BITS)
    if value is None:
        raise _FileError(f"line {number}: {line!r}, expected a number", Thrown.IO)
    return value


def _checkpoint(path: Location, fields: int, entry: Callable[[list[str]], _Entry | None]) -> list[_Entry]:
    """The entries of a checkpoint; none where it is absent, or ends before it says how many it has.

    Args:
        fields: of each line.
        entry: what they say; None where Kafka throws what is no `IOException`.
    """
    try:
        lines = _lines(path)
    except FileNotFoundError:
        return []
    if lines and (version := _int(lines[0], 1)) != 0:
        raise _FileError(f"line 1: version {version}, expected 0", Thrown.IO)
    if len(lines) < 2:
        return []
    expected = _int(lines[1], 2)
    if expected < 0:
        raise _FileError(f"line 2: {expected} entries announced", Thrown.OTHER)
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        parts = _split(_SPACES, line)
        if len(parts) != fields:
            raise _FileError(f"line {number}: {line!r}, expected {fields} words", Thrown.IO)
        if (found := entry(parts)) is None:
            raise _FileError(f"line {number}: {line!r}, expected other numbers", Thrown.OTHER)
        entries.append(found)
    if len(entries) != expected:
        raise _FileError(f"line 2: {expected} entries announced, {len(entries)} found", Thrown.IO)
    return entries


def _offset_entry(parts: list[str]) -> tuple[TopicPartition, int] | None:
    """`OffsetCheckpointFile.Formatter`."""
    partition, offset = names.java_integer(parts[1], _INT_BITS), names.java_integer(parts[2], _LONG_BITS)
    return None if partition is None or offset is None else (TopicPartition(parts[0], partition), offset)


def _epoch_entry(parts: list[str]) -> tuple[int, int] | None:
    """`LeaderEpochCheckpointFile.Formatter`."""
    epoch, start_offset = names.java_integer(parts[0], _INT_BITS), names.java_integer(parts[1], _LONG_BITS)
    return None if epoch is None or start_offset is None else (epoch, start_offset)


def _read_epochs(path: Location) -> None:
    """`LeaderEpochFileCache`, which takes nothing below 0 of what was read."""
    for number, entry in enumerate(_checkpoint(path, 2, _epoch_entry), start=3):
        if min(entry) < 0:
            raise _FileError(f"line {number}: epoch {entry[0]} from {entry[1]} on, expected none below 0", Thrown.OTHER)


def _read_topic_id(path: Location) -> None:
    """`PartitionMetadataReadBuffer`, which looks at two lines, and not at what stands before their colons."""
    lines = _lines(path)
    version = names.java_integer(_metadata_field(lines, 1), _INT_BITS)
    if version is None or version < 0:
        raise _FileError(f"line 1: {lines[0]!r}, expected 'version: 0'", Thrown.IO)
    topic_id = _metadata_field(lines, 2)
    if _TOPIC_ID.fullmatch(topic_id) is None:
        raise _FileError(f"line 2: {lines[1]!r}, expected a topic id of 22 characters", Thrown.OTHER)
    if base64.urlsafe_b64decode(f"{topic_id[:22]}==") == bytes(_TOPIC_ID_BYTES):
        raise _FileError(f"line 2: {lines[1]!r}, an id that no topic has", Thrown.IO)


def _metadata_field(lines: list[str], number: int) -> str:
    if len(lines) < number:
        raise _FileError(f"line {number}: not there, expected 'version: 0' and 'topic_id: <id>'", Thrown.OTHER)
    parts = _split(_COLON, lines[number - 1])
    if len(parts) != 2:
        raise _FileError(f"line {number}: {lines[number - 1]!r}, expected '<name>: <value>'", Thrown.IO)
    return parts[1]
