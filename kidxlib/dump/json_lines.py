"""The items of a dump as JSON, one object a line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from kidxlib.dump.items import DumpedBatch, DumpedRecord, DumpItem
from kidxlib.dump.lines import RecordFormat, as_json_text, timestamp_type
from kidxlib.format import layouts
from kidxlib.messages.reading import json_text


def as_json(item: DumpItem, file: str, record_format: RecordFormat) -> str:
    """An item as one JSON object in one line; `docs/dump.md` has its fields. `file` is the path that the user gave."""
    head = {"file": file, "type": item.kind}
    if isinstance(item, DumpedBatch):
        return json.dumps({**head, **_batch_object(item)})
    if isinstance(item, DumpedRecord):
        return _record_object(item, head, record_format)
    return json.dumps({**head, **{field.name: getattr(item, field.name) for field in dataclasses.fields(item)}})


def _batch_object(dumped: DumpedBatch) -> dict[str, Any]:
    batch = dumped.batch
    v2: Callable[[Any], Any] = (lambda value: value) if batch.is_v2 else (lambda value: None)
    return {
        "position": batch.position,
        "bytes": batch.size,
        "magic": batch.magic,
        "base_offset": v2(batch.offset_field),
        "last_offset": batch.last_offset,
        "records": v2(batch.records_count),
        "timestamp_type": timestamp_type(batch),
        "max_timestamp_ms": batch.max_timestamp,
        "codec": layouts.CODECS[batch.codec],
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


def _record_object(record: DumpedRecord, head: dict[str, Any], record_format: RecordFormat) -> str:
    batch = record.batch
    fields: dict[str, Any] = {**head, "batch_position": batch.position, "offset": record.offset}
    if record_format.metadata:
        fields |= {
            "timestamp_type": timestamp_type(batch),
            "timestamp_ms": record.timestamp,
            "key_bytes": record.key_size,
            "value_bytes": record.value_size,
            "sequence": record.sequence if batch.is_v2 else None,
            "header_keys": [header.key for header in record.headers],
            "crc": record.crc,
            "crc_valid": record.crc_valid,
            "control": None if record.control is None else dataclasses.asdict(record.control),
        }
    line = json.dumps(fields)
    if record.contents is None:
        return line
    headers = ", ".join(
        f'{{"key": {json.dumps(header.key)}, "value": {as_json_text(header.value, record_format.values)}}}'
        for header in record.headers
    )
    if record.decoded is not None:
        parts = (record.decoded.key, record.decoded.value)
        key, value = ("null" if part is None else json_text(part.fields) for part in parts)
    else:
        key = as_json_text(record.contents.key, record_format.keys)
        value = as_json_text(record.contents.value, record_format.values)
    return f'{line[:-1]}, "key": {key}, "value": {value}, "headers": [{headers}]}}'
