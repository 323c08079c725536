"""Batches and records in the words of Kafka's `kafka-dump-log`."""

from __future__ import annotations

from typing import Final

from kidxlib.dump.items import DumpedBatch, DumpedRecord
from kidxlib.dump.value_formats import RecordFormat, ValueFormat, as_text
from kidxlib.format import layouts as formats
from kidxlib.messages.json_objects import json_text
from kidxlib.records.batch_headers import Batch


def batch_line(dumped: DumpedBatch) -> str:
    """A batch."""
    batch = dumped.batch
    if batch.is_v2:
        line = (
            f"baseOffset: {batch.offset_field} lastOffset: {batch.last_offset} count: {batch.records_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {dumped.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
            f"isTransactional: {_boolean(batch.is_transactional)} isControl: {_boolean(batch.is_control)} "
            f"deleteHorizonMs: {optional(batch.delete_horizon_ms)}"
        )
    else:
        line = f"offset: {batch.last_offset}"
    if dumped.crc_valid is None:
        return line
    return (
        f"{line} position: {batch.position} {timestamp_type(batch)}: {batch.max_timestamp} size: {batch.size} "
        f"magic: {batch.magic} compresscodec: {formats.CODECS[batch.codec]} crc: {batch.crc} "
        f"isvalid: {_boolean(dumped.crc_valid)}"
    )


def record_line(record: DumpedRecord, record_format: RecordFormat) -> str:
    """A record; nothing where nothing of it is wanted."""
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
            parts.append(f"isValid: {_boolean(record.crc_valid)} crc: {record.crc}")
        if record.control is not None:
            parts.append(_control(record))
    elif record.contents is not None:
        parts.append("|")
    key, value = _contents(record, record_format)
    if key is not None:
        parts.append(f"key: {key}")
    if value is not None:
        parts.append(f"payload: {value}")
    return "" if parts == ["|"] else " ".join(parts)


def _contents(record: DumpedRecord, record_format: RecordFormat) -> tuple[str | None, str | None]:
    """Key and value as they are shown; None where nothing is."""
    if record.decoded is not None:
        key, value = record.decoded.key, record.decoded.value
        return None if key is None else key.shown, None if value is None else value.shown
    if record.contents is None:
        return None, None
    return _as_text(record.contents.key, record_format.keys), _as_text(record.contents.value, record_format.values)


def _as_text(data: bytes | None, value_format: ValueFormat) -> str | None:
    return None if data is None else as_text(data, value_format)


def _control(record: DumpedRecord) -> str:
    control = record.control
    assert control is not None
    if control.fields is None:
        return f"controlType: UNKNOWN({control.type_id})"
    if control.type_id in (formats.CONTROL_TYPE_ABORT, formats.CONTROL_TYPE_COMMIT):
        return f"endTxnMarker: {control.name} coordinatorEpoch: {control.fields['coordinatorEpoch']}"
    return f"{_KRAFT_WORDS[control.type_id]} {json_text(control.fields)}"


_KRAFT_WORDS: Final = {
    2: "LeaderChange:",
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
}


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def optional(value: int | None) -> str:
    """A number or none, as Java shows an `OptionalLong`."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def timestamp_type(batch: Batch) -> str:
    """The name of a batch's `TimestampType`."""
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"
