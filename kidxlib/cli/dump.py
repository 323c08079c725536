"""`kidx dump`: what is in a segment's files, in the lines of `kafka-dump-log`, and without changing them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

import click

from kidxlib.command import ExitCode
from kidxlib.console import note, printable
from kidxlib.dump import MAX_MESSAGE_SIZE_DEFAULT, DumpOptions, FileKind, dump_file, kind_of
from kidxlib.dump_pieces import DumpedRecord, Finding, Piece, is_well
from kidxlib.errors import KidxError, UsageError
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
@click.option("--max-bytes", type=click.IntRange(0, _INT_MAX), help="Of a .log: only batches in its first N bytes.")
@click.option("--verify-index-only", is_flag=True, help="Of an index: only where it does not fit its log.")
@click.option("--index-sanity-check", is_flag=True, help="Of an index: only Kafka's sanityCheck().")
@click.option(
    "--max-message-size",
    type=click.IntRange(0, _INT_MAX),
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
    verify_index_only: bool,
    index_sanity_check: bool,
    max_message_size: int,
    json_lines: bool,
) -> ExitCode:
    """Show what is in FILE…: .log, .index, .timeindex, .txnindex, .snapshot or leader-epoch-checkpoint.

    The lines are those of kafka-dump-log. Nothing is ever changed.

    Exit codes: 0 shown; 2 wrong options, or a file that is none of these; 3 shown as far as it goes, but a file is not
    as it should be.
    """
    files = [re.sub("/+", "/", path) for path in (*paths, *(more_paths or "").split(",")) if path]
    if not files:
        raise UsageError("give at least one FILE")
    kinds = [_kind(Path(file)) for file in files]
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
    show = Show(keys or Form.TEXT, values or Form.TEXT, metadata=not skip_record_metadata)
    well = True
    try:
        for file, kind in zip(files, kinds, strict=True):
            well &= _dump(file, kind, options, show, json_lines)
    except OSError as error:  # of standard output; those of files are told of
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # who reads has seen enough
            return ExitCode.OK
        raise KidxError(f"standard output: {error.strerror}") from error
    return ExitCode.OK if well else ExitCode.NOT_WELL


def _kind(path: Path) -> FileKind:
    kind = kind_of(path)
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if not path.is_file():
        raise UsageError(f"{path}: not a regular file")
    return kind


def _dump(file: str, kind: FileKind, options: DumpOptions, show: Show, json_lines: bool) -> bool:
    """Print one file; whether all is well with it."""
    out = sys.stdout.buffer
    well = True
    heading_before = None
    if not json_lines:
        out.write(_encoded(f"Dumping {file}"))
    for piece in _pieces(file, kind, options):
        if isinstance(piece, str):
            well = False
            out.flush()
            note(piece)
            continue
        well &= is_well(piece)
        if json_lines:
            if options.metadata or not isinstance(piece, DumpedRecord) or piece.contents is not None:
                out.write(_encoded(as_json(piece, file, show)))
        elif isinstance(piece, _FINDINGS):
            heading, line = finding_lines(piece, os.path.abspath(file))
            if heading != heading_before:
                click.echo(printable(heading), err=True)
            heading_before = heading
            click.echo(printable(line), err=True)
        else:
            out.write(_encoded(as_line(piece, file, show)))
    out.flush()
    return well


def _pieces(file: str, kind: FileKind, options: DumpOptions) -> Iterator[Piece | str]:
    """The pieces of a file, and last, if it cannot be read to its end, what to say of that."""
    try:
        yield from dump_file(Path(file), kind, options)
    except (KidxError, OSError) as error:
        yield str(error) if file in str(error) else f"{file}: {error}"


def _encoded(line: str) -> bytes:
    return f"{line}\n".encode(errors="surrogateescape")  # a file's name may be of no encoding
