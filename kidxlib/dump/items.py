"""The items that a dump of a segment's files consists of: a log's batches and records, the entries of the other files,
and findings, where two of them disagree. `Findings` sums up what is wrong with a file in one line.

The items' fields have the names of `kidx dump --json`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from kidxlib.dump.decoders import Decoded
from kidxlib.format import layouts
from kidxlib.java import as_int, incremented_sequence
from kidxlib.records.batch_headers import Batch
from kidxlib.records.control import ControlRecord
from kidxlib.records.reader import Header, Record


@dataclass(frozen=True, slots=True)
class LogStart:
    """The beginning of a log."""

    kind: ClassVar[str] = "log"
    base_offset: int


@dataclass(frozen=True, slots=True)
class KRaftSnapshotStart:
    """The beginning of a snapshot of KRaft's log: its end and its epoch, both null in `bootstrap.checkpoint`."""

    kind: ClassVar[str] = "kraft_snapshot"
    end_offset: int | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch; with magic 0 and 1 a message, or a wrapper.

    Attributes:
        crc_valid: whether the checksum is right; None if the batch cannot be judged, as its codec is unknown: then an
            error follows.
    """

    kind: ClassVar[str] = "batch"
    batch: Batch
    crc_valid: bool | None

    @property
    def last_sequence(self) -> int:
        batch = self.batch
        if batch.base_sequence == layouts.NO_SEQUENCE:
            return layouts.NO_SEQUENCE
        return incremented_sequence(batch.base_sequence, as_int(batch.last_offset - batch.offset_field))


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record of a batch; control records lack the last three fields.

    Attributes:
        timestamp: in ms since the epoch; −1 is none.
        key_size, value_size: in bytes; below 0 is null.
        sequence: −1 is none.
        headers: empty below magic 2.
        crc, crc_valid: for magic 0 and 1; None for others, or if metadata was not read.
        control: the content of a control record; None for other records, if it was not read, or if an error follows.
        contents: key and value; None for control records, if they were not read, or if an error follows.
        decoded: key and value as a decoder reads them; None without a decoder, or if `contents` is None.
    """

    kind: ClassVar[str] = "record"
    batch: Batch
    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int = layouts.NO_SEQUENCE
    headers: tuple[Header, ...] = ()
    crc: int | None = None
    crc_valid: bool | None = None
    control: ControlRecord | None = None
    contents: Record | None = None
    decoded: Decoded | None = None


@dataclass(frozen=True, slots=True)
class InvalidBytes:
    """Bytes that are left over at the end of a log."""

    kind: ClassVar[str] = "invalid_bytes"
    position: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Empty:
    """An offset index without entries."""

    kind: ClassVar[str] = "empty"


@dataclass(frozen=True, slots=True)
class Sane:
    """An index that passed `--index-sanity-check`."""

    kind: ClassVar[str] = "sane"


@dataclass(frozen=True, slots=True)
class NotCompared:
    """The entries that follow were not compared, because this file is missing."""

    kind: ClassVar[str] = "not_compared"
    missing: str


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """An entry of an `.index`."""

    kind: ClassVar[str] = "offset_index_entry"
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntry:
    """An entry of a `.timeindex`."""

    kind: ClassVar[str] = "time_index_entry"
    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedEntry:
    """An entry of a `.txnindex`."""

    kind: ClassVar[str] = "aborted_transaction"
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """A producer of a `.snapshot`."""

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
class CheckpointEntry:
    """An entry of a `leader-epoch-checkpoint`."""

    kind: ClassVar[str] = "leader_epoch"
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """Offsets are missing after a record, as compaction and transactions leave it."""

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
    """No batch ends with an entry's offset; `log_offset` is the end of the next batch, null if there is none."""

    kind: ClassVar[str] = "offset_not_found"
    index_offset: int
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class TimestampMismatch:
    """The batch that ends with an entry's offset has another largest timestamp than the entry."""

    kind: ClassVar[str] = "timestamp_mismatch"
    index_timestamp_ms: int
    log_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TimestampOutOfOrder:
    """An entry's timestamp is not above that of the one before it."""

    kind: ClassVar[str] = "timestamp_out_of_order"
    index_timestamp_ms: int
    previous_timestamp_ms: int


DumpFinding: TypeAlias = OffsetGap | OffsetMismatch | OffsetNotFound | TimestampMismatch | TimestampOutOfOrder


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


def _has_problem(item: DumpItem) -> bool:
    """Whether something is wrong by an item. Gaps between offsets are no problem."""
    match item:
        case DumpedBatch():
            return item.crc_valid is False
        case DumpedRecord():
            return item.crc_valid is False or (item.decoded is not None and not item.decoded.is_whole)
        case InvalidBytes() | OffsetMismatch() | OffsetNotFound() | TimestampMismatch() | TimestampOutOfOrder():
            return True
        case _:
            return False


#: The words for what has a checksum.
_CHECKED: Final[dict[type, str]] = {DumpedBatch: "batches", DumpedRecord: "records"}
#: The words for what is wrong with entries.
_WRONG: Final[dict[type, str]] = {
    OffsetMismatch: "whose batch ends with another offset",
    OffsetNotFound: "with whose offset no batch ends",
    TimestampMismatch: "whose batch has another largest timestamp",
    TimestampOutOfOrder: "whose timestamp is not above the one before",
}


@dataclass(slots=True)
class Findings:
    """The problems in the items of one file so far."""

    _seen: Counter[type] = field(default_factory=Counter)
    _wrong: Counter[type] = field(default_factory=Counter)
    _first: dict[type, str] = field(default_factory=dict)

    def add(self, item: DumpItem) -> None:
        kind: type = type(item)
        self._seen[kind] += 1
        if not _has_problem(item):
            return
        if isinstance(item, DumpedRecord) and item.crc_valid is not False:
            kind = Decoded
        self._wrong[kind] += 1
        if kind not in self._first:
            self._first[kind] = _where(item)

    @property
    def line(self) -> str | None:
        """All problems in one line: how many of each kind, and where the first one is; None if nothing is wrong."""
        return "; ".join(map(self._reported, self._wrong)) or None

    def _reported(self, kind: type) -> str:
        if kind is InvalidBytes:
            return self._first[kind]
        count, first = f"{self._wrong[kind]:,}", self._first[kind]
        if kind is Decoded:
            return f"{count} of {self._seen[DumpedRecord]:,} records could not be decoded, the first {first}"
        if kind in _CHECKED:
            return f"checksum does not match in {count} of {self._seen[kind]:,} {_CHECKED[kind]}, the first {first}"
        return f"{count} {'entry' if self._wrong[kind] == 1 else 'entries'} {_WRONG[kind]}, the first {first}"


def _where(item: DumpItem) -> str:
    match item:
        case DumpedBatch():
            return f"at byte {item.batch.position}"
        case DumpedRecord():
            return f"at offset {item.offset}, in the batch at byte {item.batch.position}"
        case InvalidBytes():
            return f"{item.bytes:,} bytes after the last whole batch, from byte {item.position} on"
        case OffsetMismatch() | OffsetNotFound():
            return f"with offset {item.index_offset}"
        case TimestampMismatch() | TimestampOutOfOrder():
            return f"with timestamp {item.index_timestamp_ms}"
        case _:
            raise AssertionError(item)
