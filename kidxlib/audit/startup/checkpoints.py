"""Reads offset and leader epoch checkpoints as a starting broker reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from kidxlib import java
from kidxlib.audit.startup.obstacles import Effect, Obstacle
from kidxlib.audit.startup.text_files import (
    INT_BITS,
    LONG_BITS,
    KafkaThrows,
    Thrown,
    read_lines,
    split,
    thrown_at,
    unreadable,
)
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.location import Location
from kidxlib.text.quoted import quoted

#: Java's `\s`, which is ASCII's alone.
_SPACES: Final = re.compile(r"[ \t\n\x0b\f\r]+")

_Entry = TypeVar("_Entry")


#: What comes of an offset checkpoint on which Kafka throws no `IOException`, with a number in it that is none.
_OTHERWISE: Final = {
    RECOVERY_POINT_CHECKPOINT: "a broker takes 0 for all partitions of the log dir",  # `LogManager.loadLogs`
    LOG_START_OFFSET_CHECKPOINT: "a broker takes 0 for all partitions of the log dir",
    CLEANER_CHECKPOINT: "a broker's log cleaner ends, and nothing is compacted",  # `LogCleaner.CleanerThread`
    HIGH_WATERMARK_CHECKPOINT: "a broker that starts does not get the log dir's partitions into service",
}
#: What it costs to remove the file.
_REMEDIES: Final = {
    RECOVERY_POINT_CHECKPOINT: "remove the file: after an unclean stop the broker then reads all logs of the log dir",
    LOG_START_OFFSET_CHECKPOINT: "remove the file: records that were deleted are served again where their segments are "
    "left",
    HIGH_WATERMARK_CHECKPOINT: "remove the file: high watermarks begin at the log start, and come back with the "
    "replicas in sync",
    CLEANER_CHECKPOINT: "remove the file: the cleaner begins anew at the start of each log",
}
#: Of these, what is a failure: `ReplicaManager.applyDelta` ends over it.
_FAILS_OTHERWISE: Final = (HIGH_WATERMARK_CHECKPOINT,)


@dataclass(frozen=True, slots=True)
class Offsets:
    """What a broker takes from an offset checkpoint.

    Attributes:
        failure: why the broker does not start with this checkpoint.
        note: a remark for a person on a checkpoint that the broker accepts.
    """

    by_partition: Mapping[TopicPartition, int]
    failure: Obstacle | None = None
    note: str | None = None


def read_offsets(log_dir: Location, name: str) -> Offsets:
    """Read an offset checkpoint of a log dir as a starting broker reads it (`OffsetCheckpointFile`)."""
    path = log_dir / name
    try:
        return Offsets(dict(_checkpoint(path, 3, _offset_entry)))
    except OSError as error:
        return Offsets({}, failure=unreadable(path, error))
    except KafkaThrows as error:
        if error.thrown is Thrown.IO:
            return Offsets({}, failure=thrown_at(path, error, _REMEDIES[name]))
        obstacle = Obstacle(path, error.where, Effect.HIDES, _OTHERWISE[name], _REMEDIES[name])
        return Offsets({}, failure=obstacle) if name in _FAILS_OTHERWISE else Offsets({}, note=str(obstacle))


def _int(line: str, number: int) -> int:
    value = java.parse_integer(line, INT_BITS)
    if value is None:
        raise KafkaThrows(f"line {number}: {quoted(line)}, expected a number", Thrown.IO)
    return value


def _checkpoint(path: Location, fields: int, entry: Callable[[list[str]], _Entry | None]) -> list[_Entry]:
    """The entries of a checkpoint; none where it is absent, or ends before it says how many it has.

    Args:
        fields: of each line.
        entry: what they say; None where Kafka throws what is no `IOException`.
    """
    try:
        lines = read_lines(path)
    except FileNotFoundError:
        return []
    if lines and (version := _int(lines[0], 1)) != 0:
        raise KafkaThrows(f"line 1: version {version}, expected 0", Thrown.IO)
    if len(lines) < 2:
        return []
    expected = _int(lines[1], 2)
    if expected < 0:
        raise KafkaThrows(f"line 2: {expected} entries announced", Thrown.OTHER)
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        parts = split(_SPACES, line)
        if len(parts) != fields:
            raise KafkaThrows(f"line {number}: {quoted(line)}, expected {fields} words", Thrown.IO)
        if (found := entry(parts)) is None:
            raise KafkaThrows(f"line {number}: {quoted(line)}, expected other numbers", Thrown.OTHER)
        entries.append(found)
    if len(entries) != expected:
        raise KafkaThrows(f"line 2: {expected} entries announced, {len(entries)} found", Thrown.IO)
    return entries


def _offset_entry(parts: list[str]) -> tuple[TopicPartition, int] | None:
    """`OffsetCheckpointFile.Formatter`."""
    partition, offset = java.parse_integer(parts[1], INT_BITS), java.parse_integer(parts[2], LONG_BITS)
    return None if partition is None or offset is None else (TopicPartition(parts[0], partition), offset)


def _epoch_entry(parts: list[str]) -> tuple[int, int] | None:
    """`LeaderEpochCheckpointFile.Formatter`."""
    epoch, start_offset = java.parse_integer(parts[0], INT_BITS), java.parse_integer(parts[1], LONG_BITS)
    return None if epoch is None or start_offset is None else (epoch, start_offset)


def read_epochs(path: Location) -> None:
    """Read leader epochs as `LeaderEpochFileCache` does, which ignores values below 0."""
    for number, entry in enumerate(_checkpoint(path, 2, _epoch_entry), start=3):
        if min(entry) < 0:
            raise KafkaThrows(
                f"line {number}: epoch {entry[0]} from {entry[1]} on, expected none below 0", Thrown.OTHER
            )
