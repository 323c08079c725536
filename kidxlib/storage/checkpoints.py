"""What the checkpoint files of a log dir and of a partition say.

Sources: `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`, `CleanShutdownFileHandler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kidxlib.errors import CheckpointError, describe_error
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Location, files_in
from kidxlib.storage.small_files import lines_of
from kidxlib.text.quoted import quoted

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
_EPOCH_LINE: Final = "<epoch> <start offset>"


_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the files of one log dir say; each is None where its file is absent, and may lack partitions.

    Attributes:
        recovery_points: everything below was flushed; a broker recovers from there after an unclean stop.
        log_start_offsets: written only for partitions whose log starts above their first segment's base.
        high_watermarks: as the broker last wrote them.
        cleaner_offsets: up to where the cleaner has compacted.
        clean_shutdown: the broker stopped cleanly and has not started since.
        error: why none of the files is used, in words; None where they are.
    """

    recovery_points: dict[TopicPartition, int] | None
    log_start_offsets: dict[TopicPartition, int] | None
    high_watermarks: dict[TopicPartition, int] | None
    cleaner_offsets: dict[TopicPartition, int] | None
    clean_shutdown: bool
    error: str | None = None


#: Of a log dir of which nothing is known.
NO_CHECKPOINTS: Final = Checkpoints(None, None, None, None, clean_shutdown=False)


def read_checkpoints(log_dir: Location) -> Checkpoints:
    """Read the checkpoint files of a log dir.

    Raises:
        CheckpointError: one is malformed.
        OSError: one cannot be read.
    """
    return Checkpoints(
        recovery_points=read_offset_checkpoint(log_dir / checkpoint_files.RECOVERY_POINT_CHECKPOINT),
        log_start_offsets=read_offset_checkpoint(log_dir / checkpoint_files.LOG_START_OFFSET_CHECKPOINT),
        high_watermarks=read_offset_checkpoint(log_dir / checkpoint_files.HIGH_WATERMARK_CHECKPOINT),
        cleaner_offsets=read_offset_checkpoint(log_dir / checkpoint_files.CLEANER_CHECKPOINT),
        clean_shutdown=(log_dir / CLEAN_SHUTDOWN_FILE).exists(),
    )


def usable_checkpoints(log_dir: Location) -> Checkpoints:
    """What the checkpoint files of a log dir say. Where one cannot be used, nothing is known, and it is said why."""
    try:
        return read_checkpoints(log_dir)
    except (CheckpointError, OSError) as error:
        used = f"{describe_error(error)}; none of the checkpoint files of {log_dir} is used"
        return replace(NO_CHECKPOINTS, error=used)


def read_offset_checkpoint(path: Location) -> dict[TopicPartition, int] | None:
    """The offsets by partition of an offset checkpoint (version 0); None where the file is absent.

    Raises:
        CheckpointError: a line is not what `OffsetCheckpointFile` writes, or their number is not what line 2 says.
        OSError: it cannot be read.
    """

    def entry(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = line.split()
        return TopicPartition(topic, int(partition)), int(offset)

    entries = _read_checkpoint(path, entry, "<topic> <partition> <offset>")
    return None if entries is None else dict(entries)


def read_leader_epochs(partition_directory: Location) -> LeaderEpochs | None:
    """What a partition's `leader-epoch-checkpoint` (version 0) says; None where the file is absent.

    Raises:
        CheckpointError: a line is not what `LeaderEpochCheckpointFile` writes, or their number is not what line 2 says.
        OSError: it cannot be read.
    """
    entries = read_epoch_entries(partition_directory / checkpoint_files.LEADER_EPOCH_CHECKPOINT)
    return None if entries is None else LeaderEpochs(entries)


def before_first_log(partition_directory: Location, first_base: int | None = None) -> tuple[EpochEntry, int] | None:
    """The first leader epoch of a partition, if it begins before the first log, and where that log begins; None where
    it does not, or where a log is just being deleted.

    Args:
        first_base: the base offset of the first log; None for that of the first that is in the directory now.

    Raises:
        CheckpointError, OSError: as `read_leader_epochs`, or the directory cannot be listed.
    """
    epochs = read_leader_epochs(partition_directory)
    if epochs is None or epochs.first is None or (first_base is not None and epochs.first.start_offset >= first_base):
        return None
    names = files_in(partition_directory)
    if any(name.endswith(segment_files.DELETED_SUFFIX) for name in names):
        return None
    if first_base is None:
        bases = [base for name in names if (base := segment_files.parse_segment_log(name)) is not None]
        first_base = min(bases, default=0)
    return (epochs.first, first_base) if epochs.first.start_offset < first_base else None


def read_epoch_entries(path: Location) -> list[EpochEntry] | None:
    """The entries of a `leader-epoch-checkpoint` as they stand there, and errors as `read_leader_epochs`."""

    return _read_checkpoint(path, _epoch_entry, _EPOCH_LINE)


def parse_epoch_entries(content: bytes, name: str) -> list[EpochEntry]:
    """The entries of a `leader-epoch-checkpoint` that is not a file here, and errors as `read_leader_epochs`.

    Args:
        name: of it, in errors.
    """
    return _parsed(content.decode(errors="replace").splitlines(), name, _epoch_entry, _EPOCH_LINE)


def _epoch_entry(line: str) -> EpochEntry:
    epoch, start_offset = map(int, line.split())
    if epoch < 0 or start_offset < 0:
        raise ValueError
    return EpochEntry(epoch, start_offset)


def _read_checkpoint(path: Location, entry: Callable[[str], _Entry], expected: str) -> list[_Entry] | None:
    """The entries of a checkpoint file (`CheckpointFile`); None where it is absent.

    Args:
        entry: what a line says; ValueError where that is nothing.
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
