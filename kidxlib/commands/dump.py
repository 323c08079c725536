"""`kidx dump`: what is in a segment's files, in the lines of `kafka-dump-log`, and without changing them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kidxlib.dump.decoders import DECODERS, Decoder
from kidxlib.dump.items import RecordFormat, ValueFormat
from kidxlib.dump.source import MAX_MESSAGE_SIZE_DEFAULT, DumpOptions, dump_source
from kidxlib.errors import KidxError, UsageError
from kidxlib.format.kafka_release import KafkaRelease
from kidxlib.terminal import interrupts
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.command import discard_output
from kidxlib.terminal.console import note
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import IntegerRange

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
    "keys",
    metavar="FORM",
    callback=_value_format,
    help=f"How keys are shown, {', '.join(ValueFormat)}; implies --print-data-log. [default: text]",
)
@click.option(
    "--values",
    "--value-decoder-class",
    "values",
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
    from kidxlib.terminal.dump import print_dump  # it loads compiled loops, for which help need not wait

    findings = []
    try:
        with interrupts.telling(lambda: "the rest is not shown"):
            for file, source in zip(files, sources, strict=True):
                findings += print_dump(file, source, options, record_format, json_lines)
    except OSError as error:  # an error of standard output: errors of files are reported in its lines
        discard_output()
        if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, and no script takes a dump for a check
            return ExitCode.OK
        raise KidxError(f"standard output: {error.strerror}") from error
    for line in findings:
        note(line)
    return ExitCode.PROBLEMS_FOUND if findings else ExitCode.OK
