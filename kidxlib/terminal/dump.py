"""Prints a dump as lines, or as JSON with one object a line, on standard output, and its findings on standard error."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import click

from kidxlib.dump.items import (
    DumpedBatch,
    DumpedRecord,
    DumpFinding,
    DumpItem,
    Findings,
    NotCompared,
    RecordFormat,
    as_json_text,
    as_line,
    finding_lines,
    timestamp_type,
)
from kidxlib.dump.read import ShownAs, dump_file
from kidxlib.dump.source import DumpOptions, DumpSource
from kidxlib.errors import KidxError, describe_error
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_3, NEWEST
from kidxlib.messages.interpreter import json_text
from kidxlib.terminal.console import note, printable

_FINDINGS: Final = get_args(DumpFinding)


def print_dump(
    file: str, source: DumpSource, options: DumpOptions, record_format: RecordFormat, json_lines: bool
) -> list[str]:
    """Print one file, and return a line for each thing that is wrong with it."""
    out = sys.stdout.buffer
    findings = Findings()
    malformed = []
    heading_before = None
    shown_as = ShownAs(source.path, options.release)
    if not json_lines:
        out.write(_encoded(f"Dumping {file}"))
    for item in _items(file, source, options, shown_as):
        if isinstance(item, str):
            malformed.append(item)
            continue
        findings.add(item)
        if json_lines:
            if options.metadata or not isinstance(item, DumpedRecord) or item.contents is not None:
                out.write(_encoded(as_json(item, file, record_format)))
        elif isinstance(item, NotCompared):
            out.flush()
            note(f"{file}: not compared, as {item.missing} is not there; --log-dir DIR says where logs are")
        elif isinstance(item, _FINDINGS):
            heading, line = finding_lines(item, os.path.abspath(file))
            if heading != heading_before:
                click.echo(printable(heading), err=True)
            heading_before = heading
            click.echo(printable(line), err=True)
        else:
            out.write(_encoded(as_line(item, file, record_format)))
    out.flush()
    if shown_as.is_assumed:
        note(
            f"{file}: shown as kafka-dump-log of Kafka {NEWEST} does; up to {KAFKA_4_3} it prints some of this "
            "differently; --kafka-version VERSION says whose lines to print"
        )
    return ([] if findings.line is None else [f"{file}: {findings.line}"]) + malformed


def _items(file: str, source: DumpSource, options: DumpOptions, shown_as: ShownAs) -> Iterator[DumpItem | str]:
    """The items of a file, and last, if it cannot be read to its end, the message about that."""
    try:
        yield from dump_file(source, options, shown_as)
    except (KidxError, OSError) as error:
        message = describe_error(error)
        yield message if file in message else f"{file}: {message}"


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode(errors="surrogateescape")  # a file's name may be of no encoding


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
