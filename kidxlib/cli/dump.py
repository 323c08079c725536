"""`kidx dump`: what is in a segment's files, in the lines of `kafka-dump-log`, and without changing them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

import click

from kidxlib import interrupts
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.command import ExitCode
from kidxlib.console import note, printable
from kidxlib.dump import dump_file
from kidxlib.dump_files import MAX_MESSAGE_SIZE_DEFAULT, DumpOptions, DumpSource, dump_source
from kidxlib.dump_findings import Findings
from kidxlib.dump_pieces import DumpedRecord, Finding, NotCompared, Piece
from kidxlib.errors import KidxError, UsageError, why
from kidxlib.show_dump import Form, Show, as_json, as_line, finding_lines

_INT_MAX: Final = 2**31 - 1
_FINDINGS: Final = get_args(Finding)
_DECODERS: Final = {
    "org.apache.kafka.tools.api.StringDecoder": Form.TEXT,
    "org.apache.kafka.tools.api.IntegerDecoder": Form.INT,
    "org.apache.kafka.tools.api.LongDecoder": Form.LONG,
    "org.apache.kafka.tools.api.DefaultDecoder": Form.HEX,
}


def _form(_context: click.Context, parameter: click.Parameter, value: str | None) -> Form | None:
    if value is None:
        return None
    if value in _DECODERS:
        return _DECODERS[value]
    if value not in list(Form):
        raise UsageError(f"{parameter.opts[0]} {value}: expected {', '.join(Form)} or one of {', '.join(_DECODERS)}")
    return Form(value)


@click.command()
@click.argument("paths", metavar="FILE…", nargs=-1)
@click.option("--files", "more_paths", metavar="FILE,…", help="Files, separated by commas, as kafka-dump-log has them.")
@click.option("--deep-iteration", is_flag=True, help="Of a .log: the records in each batch, too.")
@click.option("--print-data-log", is_flag=True, help="Of a .log: the records with their keys and values.")
@click.option("--skip-record-metadata", is_flag=True, help="Of records only keys and values; no control records.")
@click.option(
    "--keys",
    "--key-decoder-class",
    "keys",
    metavar="FORM",
    callback=_form,
    help=f"How keys are shown, {', '.join(Form)}; implies --print-data-log. [default: text]",
)
@click.option(
    "--values",
    "--value-decoder-class",
    "values",
    metavar="FORM",
    callback=_form,
    help="How values are shown, likewise.",
)
@click.option("--max-bytes", type=WholeNumber(0, _INT_MAX), help="Of a .log: only batches in its first N bytes.")
@click.option(
    "--log-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Of an index: the log dir, or the partition's folder, that holds its log. [default: beside the index]",
)
@click.option("--verify-index-only", is_flag=True, help="Of an index: only where it does not fit its log.")
@click.option("--index-sanity-check", is_flag=True, help="Of an index: only Kafka's sanityCheck().")
@click.option(
    "--max-message-size",
    type=WholeNumber(0, _INT_MAX),
    default=MAX_MESSAGE_SIZE_DEFAULT,
    show_default=True,
    help="Of an .index: it names no larger batch, in bytes.",
)
@click.option("--json", "json_lines", is_flag=True, help="One JSON object a line, findings among them.")
def dump(
    paths: Sequence[str],
    more_paths: str | None,
    deep_iteration: bool,
    print_data_log: bool,
    skip_record_metadata: bool,
    keys: Form | None,
    values: Form | None,
    max_bytes: int | None,
    log_dir: Path | None,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_message_size: int,
    json_lines: bool,
) -> ExitCode:
    """Show what is in FILE…: .log, .index, .timeindex, .txnindex, .snapshot or leader-epoch-checkpoint.

    The lines are those of kafka-dump-log. Nothing is ever changed.

    Exit codes: 0 shown; 2 wrong options, or a file that is none of these; 3 shown as far as it goes, but a file is
    damaged: the last lines on standard error say which, and where.
    """
    files = [re.sub("/+", "/", path) for path in (*paths, *(more_paths or "").split(",")) if path]
    if not files:
        raise UsageError("give at least one FILE")
    contents = print_data_log or keys is not None or values is not None
    options = DumpOptions(
        deep=deep_iteration or contents,
        contents=contents,
        metadata=not skip_record_metadata,
        max_bytes=None if max_bytes == _INT_MAX else max_bytes,
        verify_only=verify_index_only,
        sanity_only=index_sanity_check,
        max_message_size=max_message_size,
    )
    sources = [dump_source(Path(file), options, log_dir) for file in files]
    show = Show(keys or Form.TEXT, values or Form.TEXT, metadata=not skip_record_metadata)
    found = []
    try:
        with interrupts.telling(lambda: "the rest is not shown"):
            for file, source in zip(files, sources, strict=True):
                found += _dump(file, source, options, show, json_lines)
    except OSError as error:  # of standard output; those of files are told of
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who reads has seen enough, and no gate is a dump
            return ExitCode.OK
        raise KidxError(f"standard output: {error.strerror}") from error
    for line in found:
        note(line)
    return ExitCode.NOT_WELL if found else ExitCode.OK


def _dump(file: str, source: DumpSource, options: DumpOptions, show: Show, json_lines: bool) -> list[str]:
    """Print one file; what is wrong with it, in a line each."""
    out = sys.stdout.buffer
    findings = Findings()
    malformed = []
    heading_before = None
    if not json_lines:
        out.write(_encoded(f"Dumping {file}"))
    for piece in _pieces(file, source, options):
        if isinstance(piece, str):
            malformed.append(piece)
            continue
        findings.add(piece)
        if json_lines:
            if options.metadata or not isinstance(piece, DumpedRecord) or piece.contents is not None:
                out.write(_encoded(as_json(piece, file, show)))
        elif isinstance(piece, NotCompared):
            out.flush()
            note(f"{file}: not compared, as {piece.missing} is not there; --log-dir DIR says where logs are")
        elif isinstance(piece, _FINDINGS):
            heading, line = finding_lines(piece, os.path.abspath(file))
            if heading != heading_before:
                click.echo(printable(heading), err=True)
            heading_before = heading
            click.echo(printable(line), err=True)
        else:
            out.write(_encoded(as_line(piece, file, show)))
    out.flush()
    return ([] if findings.line is None else [f"{file}: {findings.line}"]) + malformed


def _pieces(file: str, source: DumpSource, options: DumpOptions) -> Iterator[Piece | str]:
    """The pieces of a file, and last, if it cannot be read to its end, what to say of that."""
    try:
        yield from dump_file(source, options)
    except (KidxError, OSError) as error:
        said = why(error)
        yield said if file in said else f"{file}: {said}"


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode(errors="surrogateescape")  # a file's name may be of no encoding
