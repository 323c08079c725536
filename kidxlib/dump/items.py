"""The items that a dump of a segment's files consists of: a log's batches and records, the entries of the other files,
and findings, where two of them disagree. `DumpFindings` sums up what is wrong with a file in one line.

The items' fields have the names of `kidx dump --json`. `as_line` and `finding_lines` give them as Kafka's
`kafka-dump-log` does, with keys and values as text, hex, JSON or a number.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from kidxlib.dump.decoders import Decoded
from kidxlib.format import layouts
from kidxlib.java import as_int, boolean_text, incremented_sequence, text_of
from kidxlib.messages.interpreter import json_text
from kidxlib.records.batch_headers import BatchHeader
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
    batch: BatchHeader
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
    batch: BatchHeader
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
class DumpFindings:
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


class ValueFormat(enum.StrEnum):
    """How keys and values are shown."""

    TEXT = "text"  # UTF-8
    HEX = "hex"
    JSON = "json"  # unchanged if the bytes are JSON, else text
    INT = "int"  # the number in the first 4 bytes; hex if there are fewer
    LONG = "long"  # the number in the first 8 bytes; hex if there are fewer


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How records are shown.

    Attributes:
        values: also the format of headers' values.
        metadata: whether to show the other fields of records besides key and value.
    """

    keys: ValueFormat = ValueFormat.TEXT
    values: ValueFormat = ValueFormat.TEXT
    metadata: bool = True


def _as_text(data: bytes, value_format: ValueFormat) -> str:
    """Bytes in a format; text or hex if they do not fit the format."""
    match value_format:
        case ValueFormat.TEXT:
            return text_of(data)
        case ValueFormat.HEX:
            return data.hex()
        case ValueFormat.JSON:
            return text_of(data) if (text := _json_in(data)) is None else text
        case ValueFormat.INT | ValueFormat.LONG:
            return data.hex() if (number := _number_in(data, value_format)) is None else str(number)


def item_bytes_as_json(data: bytes | None, value_format: ValueFormat) -> str:
    """The JSON of a key or a value of an item, in a format."""
    if data is None:
        return "null"
    if value_format is ValueFormat.JSON and (text := _json_in(data)) is not None:
        return text
    if value_format in _NUMBER_BYTES and (number := _number_in(data, value_format)) is not None:
        return str(number)
    return json.dumps(_as_text(data, ValueFormat.TEXT if value_format is ValueFormat.JSON else value_format))


def _json_in(data: bytes) -> str | None:
    """The JSON text in one line, and otherwise unchanged, its numbers too; None if the bytes are no JSON."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return text.replace("\n", " ").replace("\r", " ")  # JSON has these only between its parts


def _reject_constant(constant: str) -> None:
    raise ValueError(constant)


_NUMBER_BYTES: Final = {ValueFormat.INT: 4, ValueFormat.LONG: 8}


def _number_in(data: bytes, value_format: ValueFormat) -> int | None:
    size = _NUMBER_BYTES[value_format]
    return int.from_bytes(data[:size], signed=True) if len(data) >= size else None


def _batch_line(dumped: DumpedBatch) -> str:
    batch = dumped.batch
    if batch.is_v2:
        line = (
            f"baseOffset: {batch.offset_field} lastOffset: {batch.last_offset} count: {batch.records_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {dumped.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
            f"isTransactional: {boolean_text(batch.is_transactional)} isControl: {boolean_text(batch.is_control)} "
            f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    else:
        line = f"offset: {batch.last_offset}"
    if dumped.crc_valid is None:
        return line
    return (
        f"{line} position: {batch.position} {timestamp_type(batch)}: {batch.max_timestamp} size: {batch.size} "
        f"magic: {batch.magic} compresscodec: {layouts.CODECS[batch.codec]} crc: {batch.crc} "
        f"isvalid: {boolean_text(dumped.crc_valid)}"
    )


def _record_line(record: DumpedRecord, record_format: RecordFormat) -> str:
    """The line of a record; empty if nothing of it is wanted."""
    parts = []
    if record_format.metadata:
        parts.append(
            f"| offset: {record.offset} {timestamp_type(record.batch)}: {record.timestamp} "
            f"keySize: {record.key_size} valueSize: {record.value_size}"
        )
        if record.batch.is_v2:
            keys = ",".join(header.key for header in record.headers)
            parts.append(f"sequence: {record.sequence} headerKeys: [{keys}]")
        if record.crc_valid is not None:
            parts.append(f"isValid: {boolean_text(record.crc_valid)} crc: {record.crc}")
        if record.control is not None:
            parts.append(_control(record.control))
    elif record.contents is not None:
        parts.append("|")
    key, value = _contents(record, record_format)
    if key is not None:
        parts.append(f"key: {key}")
    if value is not None:
        parts.append(f"payload: {value}")
    return "" if parts == ["|"] else " ".join(parts)


def _contents(record: DumpedRecord, record_format: RecordFormat) -> tuple[str | None, str | None]:
    """Key and value in their formats; None if nothing is shown."""
    if record.decoded is not None:
        key, value = record.decoded.key, record.decoded.value
        return None if key is None else key.shown, None if value is None else value.shown
    if record.contents is None:
        return None, None
    key_bytes, value_bytes = record.contents.key, record.contents.value
    return (
        None if key_bytes is None else _as_text(key_bytes, record_format.keys),
        None if value_bytes is None else _as_text(value_bytes, record_format.values),
    )


def _control(control: ControlRecord) -> str:
    if control.fields is None:
        return f"controlType: UNKNOWN({control.type_id})"
    if control.type_id in (layouts.CONTROL_TYPE_ABORT, layouts.CONTROL_TYPE_COMMIT):
        return f"endTxnMarker: {control.name} coordinatorEpoch: {control.fields['coordinatorEpoch']}"
    return f"{_KRAFT_WORDS[control.type_id]} {json_text(control.fields)}"


_KRAFT_WORDS: Final = {
    2: "LeaderChange:",
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
}


def _optional(value: int | None) -> str:
    """`OptionalLong.toString`."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def timestamp_type(batch: BatchHeader) -> str:
    """The name of Kafka's `TimestampType` in the item of a batch."""
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def as_line(item: DumpItem, file: str, record_format: RecordFormat) -> str:
    """An item other than a finding, in the words of `DumpLogSegments`. `file` is the path that the user gave."""
    match item:
        case DumpedRecord():
            return _record_line(item, record_format)
        case DumpedBatch():
            return _batch_line(item)
        case ProducerEntry():
            return _producer_line(item)
        case KRaftSnapshotStart(None):
            return "KRaft bootstrap snapshot"
        case KRaftSnapshotStart():
            return f"Snapshot end offset: {item.end_offset}, epoch: {item.epoch}"
        case InvalidBytes():
            return f"Found {item.bytes} invalid bytes at the end of {file.rpartition('/')[2]}"
        case Empty():
            return f"{file} is empty."
        case Sane():
            return f"{file} passed sanity check."
        case _:
            return " ".join(f"{word} {getattr(item, field)}" for word, field in _WORDS[type(item)].items())


#: Kafka's word for each field of items that have only numbers.
_WORDS: Final = {
    LogStart: {"Log starting offset:": "base_offset"},
    OffsetEntry: {"offset:": "offset", "position:": "position"},
    TimeEntry: {"timestamp:": "timestamp_ms", "offset:": "offset"},
    AbortedEntry: {
        "version:": "version",
        "producerId:": "producer_id",
        "firstOffset:": "first_offset",
        "lastOffset:": "last_offset",
        "lastStableOffset:": "last_stable_offset",
    },
    CheckpointEntry: {"epoch:": "epoch", "startOffset:": "start_offset"},
}


def _producer_line(entry: ProducerEntry) -> str:
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(entry.current_transaction_first_offset)} "
        f"lastTimestamp: {entry.last_timestamp_ms}"
    )
    if entry.last_offset is None:
        return line
    return (
        f"{line} firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.last_timestamp_ms}"
    )


def finding_lines(finding: DumpFinding, file: str) -> tuple[str, str]:
    """The line that Kafka prints above all findings of a kind in a file, and the line of this finding. `file` is the
    absolute path.
    """
    match finding:
        case OffsetGap():
            return f"Non-consecutive offsets in {file}", f"  {finding.offset} is followed by {finding.next_offset}"
        case OffsetMismatch():
            return (
                f"Mismatches in :{file}",
                f"  Index offset: {finding.index_offset}, log offset: {finding.log_offset}",
            )
        case OffsetNotFound():
            log_offset = -1 if finding.log_offset is None else finding.log_offset
            return (
                f"The following indexed offsets are not found in :{file}",
                f"Indexed offset: {finding.index_offset}, found log offset: {log_offset}",
            )
        case TimestampMismatch():
            return (
                f"Found timestamp mismatch in :{file}",
                f"  Index timestamp: {finding.index_timestamp_ms}, log timestamp: {finding.log_timestamp_ms}",
            )
        case TimestampOutOfOrder():
            return (
                f"Found out of order timestamp in :{file}",
                f"  Index timestamp: {finding.index_timestamp_ms}, "
                f"Previously indexed timestamp: {finding.previous_timestamp_ms}",
            )
