"""Prints a dump as lines or as JSON on standard output, and its findings on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final, get_args

import click

from kidxlib.dump.items import DumpedRecord, DumpFinding, DumpItem, Findings, NotCompared
from kidxlib.dump.json_lines import as_json
from kidxlib.dump.lines import RecordFormat, as_line, finding_lines
from kidxlib.dump.read import dump_file
from kidxlib.dump.shown_as import ShownAs
from kidxlib.dump.source import DumpOptions, DumpSource
from kidxlib.errors import KidxError, describe_error
from kidxlib.format.kafka_release import KAFKA_4_3, NEWEST
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
