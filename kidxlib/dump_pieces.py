"""The pieces that a dump of a segment's files consists of, and what may not fit together in them.

The names of their fields are those of `kidx dump --json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from kidxlib import formats
from kidxlib.abstract_index import as_int
from kidxlib.control_records import ControlRecord
from kidxlib.records import Batch, Header, Record


@dataclass(frozen=True, slots=True)
class LogStart:
    """A log follows; the offset is that of its name."""

    kind: ClassVar[str] = "log"
    base_offset: int


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
        return incremented_sequence(batch.base_sequence, as_int(batch.last_offset - batch.first_field))


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


@dataclass(frozen=True, slots=True)
class InvalidBytes:
    """What follows the last whole batch of a log."""

    kind: ClassVar[str] = "invalid_bytes"
    position: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Empty:
    """An offset index without entries."""

    kind: ClassVar[str] = "empty"


@dataclass(frozen=True, slots=True)
class Sane:
    """An index that passed `sanityCheck`."""

    kind: ClassVar[str] = "sane"


@dataclass(frozen=True, slots=True)
class NotCompared:
    """The entries of an index follow as they stand; what they would be compared with is not there."""

    kind: ClassVar[str] = "not_compared"
    missing: str


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """An entry of an offset index."""

    kind: ClassVar[str] = "offset_index_entry"
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntry:
    """An entry of a time index."""

    kind: ClassVar[str] = "time_index_entry"
    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedEntry:
    """An entry of a transaction index."""

    kind: ClassVar[str] = "aborted_transaction"
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """An entry of a producer snapshot; None is none."""

    kind: ClassVar[str] = "producer"
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_transaction_first_offset: int | None
    last_timestamp_ms: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None


@dataclass(frozen=True, slots=True)
class LeaderEpochEntry:
    """An entry of a `leader-epoch-checkpoint`."""

    kind: ClassVar[str] = "leader_epoch"
    epoch: int
    start_offset: int


# ---- findings ----


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """A record does not follow the one before it by one, as compaction and transactions bring about, too."""

    kind: ClassVar[str] = "offset_gap"
    offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class OffsetMismatch:
    """The batch that an entry names does not end with the entry's offset."""

    kind: ClassVar[str] = "offset_mismatch"
    index_offset: int
    log_offset: int


@dataclass(frozen=True, slots=True)
class OffsetNotFound:
    """No batch ends with an entry's offset; the next one behind ends with `log_offset`, None where none follows."""

    kind: ClassVar[str] = "offset_not_found"
    index_offset: int
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class TimestampMismatch:
    """The largest timestamp of the records in the batch that ends with an entry's offset is not the entry's."""

    kind: ClassVar[str] = "timestamp_mismatch"
    index_timestamp_ms: int
    log_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TimestampOutOfOrder:
    """An entry's timestamp is not above that of the one before it."""

    kind: ClassVar[str] = "timestamp_out_of_order"
    index_timestamp_ms: int
    previous_timestamp_ms: int


Finding: TypeAlias = OffsetGap | OffsetMismatch | OffsetNotFound | TimestampMismatch | TimestampOutOfOrder
Piece: TypeAlias = (
    LogStart
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
    | LeaderEpochEntry
    | Finding
)


def is_well(piece: Piece) -> bool:
    """Whether it tells of nothing that should be otherwise; gaps between offsets may be."""
    match piece:
        case DumpedBatch() | DumpedRecord():
            return piece.crc_valid is not False
        case InvalidBytes() | OffsetMismatch() | OffsetNotFound() | TimestampMismatch() | TimestampOutOfOrder():
            return False
        case _:
            return True


# ---- sequence numbers ----


def incremented_sequence(sequence: int, increment: int) -> int:
    """`DefaultRecordBatch.incrementSequence`: behind the largest int comes 0."""
    if sequence > as_int(_INT_MAX - increment):
        return as_int(increment - (_INT_MAX - sequence) - 1)
    return as_int(sequence + increment)


def decremented_sequence(sequence: int, decrement: int) -> int:
    """`DefaultRecordBatch.decrementSequence`: before 0 comes the largest int."""
    if sequence < decrement:
        return as_int(_INT_MAX - (decrement - sequence) + 1)
    return as_int(sequence - decrement)


_INT_MAX: Final = 2**31 - 1
