"""Small files of a log dir, read whole: checkpoints, and properties such as `meta.properties` and `server.properties`.
Pipes do not block.

Sources: `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`, `CleanShutdownFileHandler`,
`java.util.Properties.load`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from kidxlib.errors import CheckpointError, describe_error
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Listed, Location, files_in, read_opened
from kidxlib.storage.lock import is_in_use
from kidxlib.text.words import quoted

#: The size of the largest index that a topic may have (`segment.index.bytes`), in bytes.
_BYTES_MAX: Final = 2**31 - 1
#: How many bytes are compared with zero at a time.
_BLOCK_BYTES: Final = 1024 * 1024

#: A key ends at the first `=`, `:` or blank without a backslash before it.
_KEY: Final = re.compile(r"((?:[^\s=:\\]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
_EPOCH_LINE: Final = "<epoch> <start offset>"


_Entry = TypeVar("_Entry")


def lines_of(path: Location | Listed) -> list[str]:
    return small_file(path).decode(errors="replace").splitlines()


def small_file(path: Location | Listed) -> bytes:
    """The content of a small regular file or object. A pipe does not block."""
    if not isinstance(path, str | Path):
        return path.read_bytes()
    descriptor, size = _open_regular(path)
    try:
        if size > _BYTES_MAX:
            raise OSError(errno.EFBIG, f"larger than {_BYTES_MAX:,} bytes", str(path))
        return read_opened(descriptor)
    finally:
        os.close(descriptor)


def filled_file(path: Location, entry_bytes: int) -> bytes:
    """The entries of a small regular file or object, without the room for more that a broker keeps at the end of an
    active segment's index: 10 MiB of zeros, which are not read. No entry of the file is all zeros.
    """
    if not isinstance(path, Path):
        return path.read_bytes()
    with regular_file(path) as file:
        return file.read(_filled_entries(file.fileno(), entry_bytes) * entry_bytes)


def last_filled(path: Path, entry_bytes: int) -> bytes:
    """The last of the entries that `filled_file` reads; nothing where there is none."""
    with regular_file(path) as file:
        count = _filled_entries(file.fileno(), entry_bytes)
        return os.pread(file.fileno(), entry_bytes, (count - 1) * entry_bytes) if count else b""


def _filled_entries(descriptor: int, entry_bytes: int) -> int:
    empty = bytes(entry_bytes)
    return bisect_left(
        range(os.fstat(descriptor).st_size // entry_bytes),
        True,
        key=lambda number: os.pread(descriptor, entry_bytes, number * entry_bytes) in (empty, b""),
    )


def is_room(path: Path, position: int) -> bool:
    """Whether a file has only zeros from a position on. Its holes are not read."""
    with regular_file(path) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        while position < size:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # the rest is a hole
                    return True
                raise
            end = min(os.lseek(descriptor, position, os.SEEK_HOLE), position + _BLOCK_BYTES)
            block = os.pread(descriptor, end - position, position)
            if block.strip(b"\0"):
                return False
            if not block:
                break
            position += len(block)
    return True


def regular_file(path: Path) -> BinaryIO:
    """Open a regular file. Anything else is an OSError; a pipe does not block."""
    return open(_open_regular(path)[0], "rb")


def _open_regular(path: str | Path) -> tuple[int, int]:
    """A descriptor of a regular file, which the caller closes, and the file's size in bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor, status.st_size


def parse_properties(content: bytes) -> dict[str, str]:
    """The settings in a file that have a name. The last one counts of several with the same name.

    Bytes are read as ISO 8859-1, as in Java. A `\\u` without four hexadecimal digits, at which Java throws, is a `u`.
    """
    settings = {}
    for line in _logical_lines(content.decode("latin-1")):
        match = _KEY.fullmatch(line)
        assert match is not None
        settings[_unescaped(match[1])] = _unescaped(match[2])
    settings.pop("", None)
    return settings


def listed(value: str) -> list[str]:
    """The items of a list (`ConfigDef.Type.LIST`)."""
    return [word for word in map(str.strip, value.split(",")) if word]


def _logical_lines(text: str) -> list[str]:
    """Lines without comments. A line that ends in a backslash continues in the next."""
    lines: list[str] = []
    continued = ""
    for line in _LINE_END.split(text):
        stripped = line.lstrip(_BLANKS)
        if not continued and stripped[:1] in ("", "#", "!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2 == 1:
            continued += stripped[:-1]
        else:
            lines.append(continued + stripped)
            continued = ""
    return [*lines, continued]


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(character, text)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one log dir, by partition. Each is None if its file is missing, and may lack partitions.

    Attributes:
        recovery_points: all records below were flushed; a broker recovers from there after an unclean stop.
        log_start_offsets: only for partitions whose log starts above the first segment's base offset.
        high_watermarks: as the broker last wrote them.
        cleaner_offsets: the offsets up to which the cleaner has compacted.
        clean_shutdown: the broker stopped cleanly and has not started since.
        error: why none of the files is used, in words; None: they are used.
    """

    recovery_points: dict[TopicPartition, int] | None
    log_start_offsets: dict[TopicPartition, int] | None
    high_watermarks: dict[TopicPartition, int] | None
    cleaner_offsets: dict[TopicPartition, int] | None
    clean_shutdown: bool
    error: str | None = None


#: For a log dir whose checkpoints are not known.
NO_CHECKPOINTS: Final = Checkpoints(None, None, None, None, clean_shutdown=False)


def read_checkpoints(log_dir: Location) -> Checkpoints:
    return Checkpoints(
        recovery_points=read_offset_checkpoint(log_dir / checkpoint_files.RECOVERY_POINT_CHECKPOINT),
        log_start_offsets=read_offset_checkpoint(log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT),
        high_watermarks=read_offset_checkpoint(log_dir / checkpoint_files.HIGH_WATERMARK_CHECKPOINT),
        cleaner_offsets=read_offset_checkpoint(log_dir / checkpoint_files.CLEANER_CHECKPOINT),
        clean_shutdown=(log_dir / CLEAN_SHUTDOWN_FILE).exists(),
    )


def usable_checkpoints(log_dir: Location) -> Checkpoints:
    """The checkpoints of a log dir. If one file cannot be used, all are empty, and `error` says why."""
    try:
        return read_checkpoints(log_dir)
    except (CheckpointError, OSError) as error:
        used = f"{describe_error(error)}; none of the checkpoint files of {log_dir} is used"
        return replace(NO_CHECKPOINTS, error=used)


def read_offset_checkpoint(path: Location) -> dict[TopicPartition, int] | None:
    """The offsets of an offset checkpoint (version 0), by partition; None if the file is missing."""

    def entry(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = line.split()
        return TopicPartition(topic, int(partition)), int(offset)

    entries = _read_checkpoint(path, entry, "<topic> <partition> <offset>")
    return None if entries is None else dict(entries)


def read_leader_epochs(partition_directory: Location) -> LeaderEpochs | None:
    """The leader epochs in a partition's `leader-epoch-checkpoint` (version 0); None if the file is missing."""
    entries = read_epoch_entries(partition_directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT)
    return None if entries is None else LeaderEpochs(entries)


#: What comes of `before_first_log` where no file tells whether the log start was in a bucket.
IN_BUCKET_OR_LOST: Final = (
    f"they are in a bucket, or they were lost: {checkpoint_files.LOG_START_OFFSET_CHECKPOINT} would tell, and is "
    "missing, cannot be read, or has a line for the partition; unless the topic is tiered, look for them on other "
    "replicas and copies"
)


def before_first_log(
    partition_directory: Location, first_base: int | None = None, names: Collection[str] | None = None
) -> tuple[EpochEntry, int] | None:
    """The first leader epoch of a partition and the base offset of the first log (`first_base`, or by the directory's
    `names`), if the epoch begins before that log. None if it does not, or while a log is being deleted.
    """
    epochs = read_leader_epochs(partition_directory)
    if epochs is None or epochs.first is None or (first_base is not None and epochs.first.start_offset >= first_base):
        return None
    names = files_in(partition_directory) if names is None else names
    if may_be_deleting(partition_directory, names):
        return None
    if first_base is None:
        bases = [base for name in names if (base := segment_files.parse_segment_log(name)) is not None]
        first_base = min(bases, default=0)
    return (epochs.first, first_base) if epochs.first.start_offset < first_base else None


def may_be_deleting(partition_directory: Location, names: Iterable[str]) -> bool:
    """Whether a running broker may have renamed logs of a partition, and not yet written that the epochs begin later
    (`LeaderEpochFileCache.truncateFromStartAsyncFlush`, before `LocalLog.removeAndDeleteSegments`). A stopped broker
    has written it.
    """
    return any(name.endswith(segment_files.DELETED_SUFFIX) for name in names) and is_in_use(partition_directory.parent)


def read_epoch_entries(path: Location) -> list[EpochEntry] | None:
    """The entries of a `leader-epoch-checkpoint`, unchanged; None if the file is missing."""
    return _read_checkpoint(path, _epoch_entry, _EPOCH_LINE)


def parse_epoch_entries(content: bytes, name: str) -> list[EpochEntry]:
    """The entries in the bytes of a `leader-epoch-checkpoint`, which errors call `name`."""
    return _parsed(content.decode(errors="replace").splitlines(), name, _epoch_entry, _EPOCH_LINE)


def _epoch_entry(line: str) -> EpochEntry:
    epoch, start_offset = map(int, line.split())
    if epoch < 0 or start_offset < 0:
        raise ValueError
    return EpochEntry(epoch, start_offset)


def _read_checkpoint(path: Location | Listed, entry: Callable[[str], _Entry], expected: str) -> list[_Entry] | None:
    """The entries of a checkpoint file (`CheckpointFile`); None if it is missing. `entry` parses a line, or raises
    ValueError.
    """
    try:
        lines = lines_of(path)
    except FileNotFoundError:
        return None
    return _parsed(lines, path, entry, expected)


def _parsed(lines: Sequence[str], path: Location | str, entry: Callable[[str], _Entry], expected: str) -> list[_Entry]:
    if not lines:
        return []
    if lines[0] != "0":
        raise CheckpointError(f"{path}: line 1: version {quoted(lines[0])}, expected 0")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(entry(line))
        except ValueError as error:
            raise CheckpointError(f"{path}: line {number}: {quoted(line)}, expected {expected}") from error
    if len(lines) < 2 or lines[1] != str(len(entries)):
        announced = (lines[1] if lines[1].isdecimal() else quoted(lines[1])) if len(lines) > 1 else "no"
        raise CheckpointError(f"{path}: line 2: {announced} entries announced, {len(entries)} found")
    return entries
