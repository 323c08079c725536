"""`kidx dump`: what is in a segment's files, in the lines of `kafka-dump-log`, and without changing them.

Lines, or objects of JSON with one a line, go to standard output, and findings to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import click

from kidxlib.dump.decoders import DECODERS, Decoder
from kidxlib.dump.items import (
    DumpedBatch,
    DumpedRecord,
    DumpFinding,
    DumpFindings,
    DumpItem,
    NotCompared,
    RecordFormat,
    ValueFormat,
    as_line,
    finding_lines,
    item_bytes_as_json,
    timestamp_type,
)
from kidxlib.dump.source import MAX_MESSAGE_SIZE_DEFAULT, DumpOptions, DumpSource, dump_source
from kidxlib.errors import KidxError, UsageError, describe_error
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_3, NEWEST, KafkaRelease
from kidxlib.messages.interpreter import json_text
from kidxlib.terminal import interrupts
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import note, printable
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import IntegerRange
from kidxlib.terminal.run_command import discard_output

if TYPE_CHECKING:
    from kidxlib.dump.release import DumpRelease

_Command = TypeVar("_Command", bound=Callable[..., Any])
_INT_MAX: Final = 2**31 - 1
_DECODERS: Final = {
    "org.apache.kafka.tools.api.StringDecoder": ValueFormat.TEXT,
    "org.apache.kafka.tools.api.IntegerDecoder": ValueFormat.INT,
    "org.apache.kafka.tools.api.LongDecoder": ValueFormat.LONG,
    "org.apache.kafka.tools.api.DefaultDecoder": ValueFormat.HEX,
}


def _value_format(_context: click.Context, parameter: click.Parameter, value: str | None) -> ValueFormat | None:
    if value is None:
        return None
    if value in _DECODERS:
        return _DECODERS[value]
    if value not in list(ValueFormat):
        raise UsageError(
            f"{parameter.opts[0]} {value}: expected {', '.join(ValueFormat)} or one of {', '.join(_DECODERS)}"
        )
    return ValueFormat(value)


def _decoder_options(command: _Command) -> _Command:
    for option, (topic, _) in reversed(list(DECODERS.items())):
        text = f"What the records of {topic} say; implies --print-data-log."
        command = click.option(option, _parameter(option), is_flag=True, help=text)(command)
    return command


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _decoder(given: Mapping[str, bool]) -> Decoder | None:
    options = [option for option in DECODERS if given[_parameter(option)]]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)}: give one decoder, that of the topic whose files these are")
    return DECODERS[options[0]][1] if options else None


@click.command()
@click.argument("paths", metavar="FILE…", nargs=-1)
@click.option("--files", "more_paths", metavar="FILE,…", help="Files, separated by commas, as kafka-dump-log has them.")
@click.option("--deep-iteration", is_flag=True, help="Also show the records in each batch of a .log.")
@click.option("--print-data-log", is_flag=True, help="Show the records of a .log with their keys and values.")
@_decoder_options
@click.option("--skip-record-metadata", is_flag=True, help="Show only keys and values of records; no control records.")
@click.option(
    "--keys",
    "--key-decoder-class",
    metavar="FORM",
    callback=_value_format,
    help=f"How keys are shown, {', '.join(ValueFormat)}; implies --print-data-log. [default: text]",
)
@click.option(
    "--values",
    "--value-decoder-class",
    metavar="FORM",
    callback=_value_format,
    help="How values are shown: the same choices.",
)
@click.option(
    "--max-bytes",
    metavar="BYTES",
    type=IntegerRange(0, _INT_MAX),
    help="Show only the batches in the first BYTES of a .log.",
)
@click.option(
    "--log-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The log dir, or the partition's directory, that holds the log of an index. [default: beside the index]",
)
@click.option("--verify-index-only", is_flag=True, help="Show only where an index does not fit its log.")
@click.option("--index-sanity-check", is_flag=True, help="Run only Kafka's sanityCheck() of an index.")
@click.option(
    "--max-message-size",
    metavar="BYTES",
    type=IntegerRange(0, _INT_MAX),
    default=MAX_MESSAGE_SIZE_DEFAULT,
    show_default=True,
    help="Of an .index: size of the largest batch that an entry may lead to.",
)
@shared_options.kafka_version
@click.option("--json", "json_lines", is_flag=True, help="One JSON object a line, findings among them.")
def dump(
    paths: Sequence[str],
    more_paths: str | None,
    deep_iteration: bool,
    print_data_log: bool,
    skip_record_metadata: bool,
    keys: ValueFormat | None,
    values: ValueFormat | None,
    max_bytes: int | None,
    log_dir: Path | None,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_message_size: int,
    kafka_version: KafkaRelease | None,
    json_lines: bool,
    **decoders: bool,
) -> ExitCode:
    """Show what is in FILE…: .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint or .checkpoint.

    The lines are those of kafka-dump-log. Nothing is ever changed.

    Exit codes: 0 shown; 2 wrong options, or a file that is none of these; 3 shown as far as it goes, but a file is
    damaged: the last lines on standard error say which, and where.
    """
    files = [re.sub("/+", "/", path) for path in (*paths, *(more_paths or "").split(",")) if path]
    if not files:
        raise UsageError("give at least one FILE")
    decode = _decoder(decoders)
    contents = print_data_log or decode is not None or keys is not None or values is not None
    options = DumpOptions(
        deep=deep_iteration or contents,
        contents=contents,
        decode=decode,
        metadata=not skip_record_metadata,
        max_bytes=None if max_bytes == _INT_MAX else max_bytes,
        verify_only=verify_index_only,
        sanity_only=index_sanity_check,
        max_message_size=max_message_size,
        release=kafka_version,
    )
    sources = [dump_source(Path(file), options, log_dir) for file in files]
    record_format = RecordFormat(
        keys or ValueFormat.TEXT, values or ValueFormat.TEXT, metadata=not skip_record_metadata
    )

    findings = []
    try:
        with interrupts.telling(lambda: "the rest is not shown"):
            for file, source in zip(files, sources, strict=True):
                findings += _print_dump(file, source, options, record_format, json_lines)
    except OSError as error:  # an error of standard output: errors of files are reported in its lines
        discard_output()
        if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, and no script takes a dump for a check
            return ExitCode.OK
        raise KidxError(f"standard output: {error.strerror}") from error
    for line in findings:
        note(line)
    return ExitCode.PROBLEMS_FOUND if findings else ExitCode.OK


_FINDINGS: Final = get_args(DumpFinding)


def _print_dump(
    file: str, source: DumpSource, options: DumpOptions, record_format: RecordFormat, json_lines: bool
) -> list[str]:
    """Print one file, and return a line for each thing that is wrong with it."""
    from kidxlib.dump.release import DumpRelease

    out = sys.stdout.buffer
    findings = DumpFindings()
    malformed = []
    heading_before = None
    shown_as = DumpRelease(source.path, options.release)
    if not json_lines:
        out.write(_encoded(f"Dumping {file}"))
    for item in _items(file, source, options, shown_as):
        if isinstance(item, str):
            malformed.append(item)
            continue
        findings.add(item)
        if json_lines:
            if options.metadata or not isinstance(item, DumpedRecord) or item.contents is not None:
                out.write(_encoded(_as_json(item, file, record_format)))
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


def _items(file: str, source: DumpSource, options: DumpOptions, shown_as: DumpRelease) -> Iterator[DumpItem | str]:
    """The items of a file, and last, if it cannot be read to its end, the message about that."""
    from kidxlib.dump.read import dump_file  # it loads compiled loops, for which help need not wait

    try:
        yield from dump_file(source, options, shown_as)
    except (KidxError, OSError) as error:
        message = describe_error(error)
        yield message if file in message else f"{file}: {message}"


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode(errors="surrogateescape")  # a file's name may be of no encoding


def _as_json(item: DumpItem, file: str, record_format: RecordFormat) -> str:
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
        f'{{"key": {json.dumps(header.key)}, "value": {item_bytes_as_json(header.value, record_format.values)}}}'
        for header in record.headers
    )
    if record.decoded is not None:
        parts = (record.decoded.key, record.decoded.value)
        key, value = ("null" if part is None else json_text(part.fields) for part in parts)
    else:
        key = item_bytes_as_json(record.contents.key, record_format.keys)
        value = item_bytes_as_json(record.contents.value, record_format.values)
    return f'{line[:-1]}, "key": {key}, "value": {value}, "headers": [{headers}]}}'
