"""Kafka's checkpoint files: their names, the contents that a broker writes, and a partition's leader epochs as
`LeaderEpochFileCache` and its file keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kidxlib.errors import CheckpointError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.text.words import quoted

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
#: The checkpoints of a log dir.
LOG_DIR_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
CHECKPOINTS = (
    LEADER_EPOCH_CHECKPOINT,
    *LOG_DIR_CHECKPOINTS,
)


def offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of an offset checkpoint (`OffsetCheckpointFile`, version 0)."""
    lines = ["0", str(len(offsets))]
    lines += [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(offsets.items())]
    return "".join(f"{line}\n" for line in lines).encode()


def clean_shutdown(broker_epoch: int) -> bytes:
    """The content of `.kafka_cleanshutdown` (`CleanShutdownFileHandler`, version 0)."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A leader epoch, and where it begins.

    Attributes:
        epoch: the number of the epoch.
        start_offset: the offset at which it begins.
    """

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Leader epochs, each with the offset at which it begins; epochs and offsets both increase."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, in order."""
        return tuple(self._entries)

    @property
    def first(self) -> EpochEntry | None:
        """The earliest epoch; None if there is none."""
        return self._entries[0] if self._entries else None

    @property
    def last(self) -> EpochEntry | None:
        """The latest epoch; None if there is none."""
        return self._entries[-1] if self._entries else None

    def is_new_epoch(self, epoch: int) -> bool:
        """Whether recovery assigns this epoch when a batch has it: if it is above all known ones."""
        return not self._entries or epoch > self._entries[-1].epoch

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at an offset, 0 or above (`LeaderEpochFileCache.assign`).

        Later entries are dropped. Nothing changes if this is the latest epoch and already begins at or before the
        offset.
        """
        last = self.last
        if last is not None and epoch == last.epoch and start_offset >= last.start_offset:
            return
        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))

    def assign_new(self, entries: Iterable[EpochEntry]) -> None:
        """Assign the epochs that are above all before them, as recovery does (`LogSegment.recover`)."""
        for entry in entries:
            if self.is_new_epoch(entry.epoch):
                self.assign(entry.epoch, entry.start_offset)

    def within(self, log_start_offset: int, log_end_offset: int) -> LeaderEpochs:
        """The epochs of the offsets between log start and log end (`truncateFromEnd`, `truncateFromStart`)."""
        entries = [entry for entry in self._entries if entry.start_offset < log_end_offset]
        begun = [entry for entry in entries if entry.start_offset <= log_start_offset]
        if begun:
            entries = [EpochEntry(begun[-1].epoch, log_start_offset), *entries[len(begun) :]]
        return LeaderEpochs(entries)

    def checkpoint(self) -> bytes:
        """The content of a `leader-epoch-checkpoint` (`LeaderEpochCheckpointFile`, version 0); empty without epochs."""
        if not self._entries:
            return b""  # Kafka makes an empty file, and writes it with the first epoch
        entries = (f"{entry.epoch} {entry.start_offset}" for entry in self._entries)
        return "".join(f"{line}\n" for line in ("0", str(len(self._entries)), *entries)).encode()


def parse_offset_checkpoint(content: bytes, name: str) -> dict[TopicPartition, int]:
    """The offsets in the bytes of an offset checkpoint, which errors call `name`."""

    def entry(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = line.split()
        return TopicPartition(topic, int(partition)), int(offset)

    return dict(_parsed(content, name, entry, "<topic> <partition> <offset>"))


def parse_epoch_entries(content: bytes, name: str) -> list[EpochEntry]:
    """The entries in the bytes of a `leader-epoch-checkpoint`, which errors call `name`."""

    def entry(line: str) -> EpochEntry:
        epoch, start_offset = map(int, line.split())
        if epoch < 0 or start_offset < 0:
            raise ValueError
        return EpochEntry(epoch, start_offset)

    return _parsed(content, name, entry, "<epoch> <start offset>")


_Entry = TypeVar("_Entry")


def _parsed(content: bytes, name: str, entry: Callable[[str], _Entry], expected: str) -> list[_Entry]:
    """The entries of a checkpoint file (`CheckpointFile`). `entry` parses a line, or raises ValueError."""
    lines = content.decode(errors="replace").splitlines()
    if not lines:
        return []
    if lines[0] != "0":
        raise CheckpointError(f"{name}: line 1: version {quoted(lines[0])}, expected 0")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entries.append(entry(line))
        except ValueError as error:
            raise CheckpointError(f"{name}: line {number}: {quoted(line)}, expected {expected}") from error
    if len(lines) < 2 or lines[1] != str(len(entries)):
        announced = (lines[1] if lines[1].isdecimal() else quoted(lines[1])) if len(lines) > 1 else "no"
        raise CheckpointError(f"{name}: line 2: {announced} entries announced, {len(entries)} found")
    return entries
