"""The pieces of a dump as lines: those of Kafka's `kafka-dump-log`, or one JSON object each."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from kidxlib import formats
from kidxlib.dump_pieces import (
    AbortedEntry,
    DumpedBatch,
    DumpedRecord,
    Empty,
    Finding,
    InvalidBytes,
    LeaderEpochEntry,
    LogStart,
    OffsetEntry,
    OffsetGap,
    OffsetMismatch,
    OffsetNotFound,
    Piece,
    ProducerEntry,
    Sane,
    TimeEntry,
    TimestampMismatch,
    TimestampOutOfOrder,
)
from kidxlib.records import Batch, text_of


class Form(enum.StrEnum):
    """How keys and values are shown."""

    TEXT = "text"  # UTF-8
    HEX = "hex"
    JSON = "json"  # as it is, if it is JSON, else text
    INT = "int"  # the number in the first 4 bytes, if there are as many, else hex
    LONG = "long"  # likewise in 8


@dataclass(frozen=True, slots=True)
class Show:
    """What is wanted of records.

    Attributes:
        keys, values: how they are shown; values of headers as values.
        metadata: whether to show what records say besides key and value.
    """

    keys: Form = Form.TEXT
    values: Form = Form.TEXT
    metadata: bool = True


# ---- Kafka's lines ----


def as_line(piece: Piece, file: str, show: Show) -> str:
    """A piece, other than a finding, in the words of `DumpLogSegments`.

    Args:
        file: its path, as the user gave it.
    """
    match piece:
        case DumpedRecord():
            return _record_line(piece, show)
        case DumpedBatch():
            return _batch_line(piece)
        case ProducerEntry():
            return _producer_line(piece)
        case InvalidBytes():
            return f"Found {piece.bytes} invalid bytes at the end of {file.rpartition('/')[2]}"
        case Empty():
            return f"{file} is empty."
        case Sane():
            return f"{file} passed sanity check."
        case _:
            return " ".join(f"{word} {getattr(piece, field)}" for word, field in _WORDS[type(piece)].items())


#: Of pieces that are all numbers: Kafka's word for each field.
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
    LeaderEpochEntry: {"epoch:": "epoch", "startOffset:": "start_offset"},
}


def _batch_line(dumped: DumpedBatch) -> str:
    batch = dumped.batch
    if batch.is_v2:
        line = (
            f"baseOffset: {batch.first_field} lastOffset: {batch.last_offset} count: {batch.records_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {dumped.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
            f"isTransactional: {_boolean(batch.is_transactional)} isControl: {_boolean(batch.is_control)} "
            f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    else:
        line = f"offset: {batch.last_offset}"
    if dumped.crc_valid is None:
        return line
    return (
        f"{line} position: {batch.position} {_timestamp_type(batch)}: {batch.max_timestamp} size: {batch.size} "
        f"magic: {batch.magic} compresscodec: {formats.CODECS[batch.codec]} crc: {batch.crc} "
        f"isvalid: {_boolean(dumped.crc_valid)}"
    )


def _record_line(record: DumpedRecord, show: Show) -> str:
    parts = []
    if show.metadata:
        parts.append(
            f"| offset: {record.offset} {_timestamp_type(record.batch)}: {record.timestamp} "
            f"keySize: {record.key_size} valueSize: {record.value_size}"
        )
        if record.batch.is_v2:
            keys = ",".join(header.key for header in record.headers)
            parts.append(f"sequence: {record.sequence} headerKeys: [{keys}]")
        if record.crc_valid is not None:
            parts.append(f"isValid: {_boolean(record.crc_valid)} crc: {record.crc}")
        if record.control is not None:
            parts.append(_control(record))
    elif record.contents is not None:
        parts.append("|")
    if record.contents is not None:
        if record.contents.key is not None:
            parts.append(f"key: {_as_text(record.contents.key, show.keys)}")
        if record.contents.value is not None:
            parts.append(f"payload: {_as_text(record.contents.value, show.values)}")
    return "" if parts == ["|"] else " ".join(parts)


def _control(record: DumpedRecord) -> str:
    control = record.control
    assert control is not None
    if control.fields is None:
        return f"controlType: UNKNOWN({control.type_id})"
    if control.type_id in (formats.CONTROL_TYPE_ABORT, formats.CONTROL_TYPE_COMMIT):
        return f"endTxnMarker: {control.name} coordinatorEpoch: {control.fields['coordinatorEpoch']}"
    return f"{_KRAFT_WORDS[control.type_id]} {json.dumps(control.fields, separators=(',', ':'), ensure_ascii=False)}"


_KRAFT_WORDS: Final = {
    2: "LeaderChange:",
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
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


def finding_lines(finding: Finding, file: str) -> tuple[str, str]:
    """The line that Kafka puts above all findings of this sort in a file, and that of this one.

    Args:
        file: its absolute path.
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
            found = -1 if finding.log_offset is None else finding.log_offset
            return (
                f"The following indexed offsets are not found in :{file}",
                f"Indexed offset: {finding.index_offset}, found log offset: {found}",
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


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _timestamp_type(batch: Batch) -> str:
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


# ---- keys and values ----


def _as_text(data: bytes, form: Form) -> str:
    match form:
        case Form.TEXT:
            return text_of(data)
        case Form.HEX:
            return data.hex()
        case Form.JSON:
            return text_of(data) if (found := _json_in(data)) is None else found
        case Form.INT | Form.LONG:
            return data.hex() if (number := _number_in(data, form)) is None else str(number)


def _as_json_text(data: bytes | None, form: Form) -> str:
    if data is None:
        return "null"
    if form is Form.JSON and (found := _json_in(data)) is not None:
        return found
    if form in _NUMBER_BYTES and (number := _number_in(data, form)) is not None:
        return str(number)
    return json.dumps(_as_text(data, Form.TEXT if form is Form.JSON else form))


def _json_in(data: bytes) -> str | None:
    """The JSON that `data` is, in one line and else as it stands there, its numbers too; None where it is none."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return text.replace("\n", " ").replace("\r", " ")  # where JSON has these, it has them between its parts


def _refuse(constant: str) -> None:
    raise ValueError(constant)


_NUMBER_BYTES: Final = {Form.INT: 4, Form.LONG: 8}


def _number_in(data: bytes, form: Form) -> int | None:
    size = _NUMBER_BYTES[form]
    return int.from_bytes(data[:size], signed=True) if len(data) >= size else None


# ---- JSON ----


def as_json(piece: Piece, file: str, show: Show) -> str:
    """A piece as one JSON object in one line; `docs/dump.md` has its fields.

    Args:
        file: its path, as the user gave it.
    """
    head = {"file": file, "type": piece.kind}
    if isinstance(piece, DumpedBatch):
        return json.dumps({**head, **_batch_object(piece)})
    if isinstance(piece, DumpedRecord):
        return _record_object(piece, head, show)
    return json.dumps({**head, **{field.name: getattr(piece, field.name) for field in fields(piece)}})


def _batch_object(dumped: DumpedBatch) -> dict[str, Any]:
    batch = dumped.batch
    v2: Callable[[Any], Any] = (lambda value: value) if batch.is_v2 else (lambda value: None)
    return {
        "position": batch.position,
        "bytes": batch.size,
        "magic": batch.magic,
        "base_offset": v2(batch.first_field),
        "last_offset": batch.last_offset,
        "records": v2(batch.records_count),
        "timestamp_type": _timestamp_type(batch),
        "max_timestamp_ms": batch.max_timestamp,
        "codec": formats.CODECS[batch.codec],
        "leader_epoch": v2(batch.partition_leader_epoch),
        "producer_id": v2(batch.producer_id),
        "producer_epoch": v2(batch.producer_epoch),
        "base_sequence": v2(batch.base_sequence),
        "last_sequence": v2(dumped.last_sequence),
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "crc": batch.crc,
        "crc_valid": dumped.crc_valid,
    }


def _record_object(record: DumpedRecord, head: dict[str, Any], show: Show) -> str:
    batch = record.batch
    what: dict[str, Any] = {**head, "batch_position": batch.position, "offset": record.offset}
    if show.metadata:
        what |= {
            "timestamp_type": _timestamp_type(batch),
            "timestamp_ms": record.timestamp,
            "key_bytes": record.key_size,
            "value_bytes": record.value_size,
            "sequence": record.sequence if batch.is_v2 else None,
            "header_keys": [header.key for header in record.headers],
            "crc": record.crc,
            "crc_valid": record.crc_valid,
            "control": None if record.control is None else _control_object(record),
        }
    line = json.dumps(what)
    if record.contents is None:
        return line
    headers = ", ".join(
        f'{{"key": {json.dumps(header.key)}, "value": {_as_json_text(header.value, show.values)}}}'
        for header in record.headers
    )
    return (
        f'{line[:-1]}, "key": {_as_json_text(record.contents.key, show.keys)}, '
        f'"value": {_as_json_text(record.contents.value, show.values)}, "headers": [{headers}]}}'
    )


def _control_object(record: DumpedRecord) -> dict[str, Any]:
    control = record.control
    assert control is not None
    return {"type_id": control.type_id, "name": control.name, "fields": control.fields}
