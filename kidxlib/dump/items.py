"""The items that a dump of a segment's files consists of, those of a log among them.

The names of their fields are those of `kidx dump --json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kidxlib.dump.decoders.decoded import Decoded
from kidxlib.dump.entries import (
    AbortedEntry,
    CheckpointEntry,
    Empty,
    NotCompared,
    OffsetEntry,
    ProducerEntry,
    Sane,
    TimeEntry,
)
from kidxlib.dump.findings import DumpFinding, OffsetMismatch, OffsetNotFound, TimestampMismatch, TimestampOutOfOrder
from kidxlib.format import layouts as formats
from kidxlib.java import as_int, incremented_sequence
from kidxlib.records.batch_headers import Batch
from kidxlib.records.control import ControlRecord
from kidxlib.records.reader import Header, Record


@dataclass(frozen=True, slots=True)
class LogStart:
    """A log follows; the offset is that of its name."""

    kind: ClassVar[str] = "log"
    base_offset: int


@dataclass(frozen=True, slots=True)
class KRaftSnapshotStart:
    """A snapshot of KRaft's log follows: where in the log it ends, and that place's epoch; None of the one that a
    controller starts with.
    """

    kind: ClassVar[str] = "kraft_snapshot"
    end_offset: int | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch.

    Attributes:
        crc_valid: whether its checksum fits; None where nothing more can be said of it, as of a codec that is none, and
            an error follows.
    """

    kind: ClassVar[str] = "batch"
    batch: Batch
    crc_valid: bool | None

    @property
    def last_sequence(self) -> int:
        batch = self.batch
        if batch.base_sequence == formats.NO_SEQUENCE:
            return formats.NO_SEQUENCE
        return incremented_sequence(batch.base_sequence, as_int(batch.last_offset - batch.offset_field))


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record.

    Attributes:
        timestamp: in ms since the epoch; −1 is none.
        key_size, value_size: in bytes; below 0 is null.
        sequence: −1 is none.
        headers: empty below magic 2.
        crc, crc_valid: of magic 0 and 1; None of others, or if metadata was not looked at.
        control: what a control record says; None of others, if it was not looked into, or if an error follows.
        contents: key and value; None of control records, if they were not looked at, or if an error follows.
        decoded: what a decoder makes of them; None where there is none, and where `contents` is None.
    """

    kind: ClassVar[str] = "record"
    batch: Batch
    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int = formats.NO_SEQUENCE
    headers: tuple[Header, ...] = ()
    crc: int | None = None
    crc_valid: bool | None = None
    control: ControlRecord | None = None
    contents: Record | None = None
    decoded: Decoded | None = None


@dataclass(frozen=True, slots=True)
class InvalidBytes:
    """What follows the last whole batch of a log."""

    kind: ClassVar[str] = "invalid_bytes"
    position: int
    bytes: int


DumpItem: TypeAlias = (
    LogStart
    | KRaftSnapshotStart
    | DumpedBatch
    | DumpedRecord
    | InvalidBytes
    | Empty
    | Sane
    | NotCompared
    | OffsetEntry
    | TimeEntry
    | AbortedEntry
    | ProducerEntry
    | CheckpointEntry
    | DumpFinding
)


def has_problem(item: DumpItem) -> bool:
    """Whether an item tells of something that should be otherwise. Gaps between offsets are no problem."""
    match item:
        case DumpedBatch():
            return item.crc_valid is False
        case DumpedRecord():
            return item.crc_valid is False or (item.decoded is not None and not item.decoded.is_whole)
        case InvalidBytes() | OffsetMismatch() | OffsetNotFound() | TimestampMismatch() | TimestampOutOfOrder():
            return True
        case _:
            return False
