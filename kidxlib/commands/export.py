"""`kidx export`: the records of a log dir as files of Parquet, Arrow or JSON, without a broker."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from kidxlib.operations.export.export import export_request, run_export
from kidxlib.reading.left_out import LeftOut, lines_of
from kidxlib.reading.request import ISOLATIONS
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.console import note, print_json, print_line, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.options.numbers import IntegerRange
from kidxlib.terminal.outcome import RunResult
from kidxlib.text.words import counted

_THREADS_MAX: Final = 64


@click.command(context_settings={"max_content_width": 110})
@click.argument("directories", metavar="DIR…", nargs=-1, required=True)
@click.option(
    "--output",
    metavar="FILE",
    required=True,
    help="What is made, and must not exist: FILE.parquet, a directory of Parquet files; or one file, FILE.arrow or "
    "FILE.jsonl (JSON lines).",
)
@shared_options.topics
@click.option(
    "--offsets",
    metavar="START:END",
    multiple=True,
    help="Only offsets from START on to below END, each may be left out. With NAME= before it, of the partition NAME "
    "(<topic>-<partition>), and of no partition that is not named.",
)
@click.option(
    "--times",
    metavar="START/END",
    help="Only records with a timestamp from START on to before END, ISO 8601 with a zone or ms; each may be left out.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    default=ISOLATIONS[0],
    show_default=True,
    help="Kafka's isolation.level: whether records of open and aborted transactions are exported.",
)
@click.option("--include-headers", is_flag=True, help="Add the column headers.")
@click.option("--columns", metavar="NAME,…", help="Only these columns, in this order.")
@click.option(
    "--index-dir",
    metavar="DIR",
    help="The directory of the index files of DIR. [default: beside the logs, or where --catalog has them]",
)
@click.option(
    "--catalog",
    metavar="DIR",
    help="A catalog that has the logs. What it says of those that are still as they were tells what need not be read "
    "for --times, and what need not be scanned for --isolation read_committed.",
)
@shared_options.layout
@shared_options.tiered_metadata
@click.option(
    "--to-log-end/--to-high-watermark",
    "to_log_end",
    default=None,
    help="Also what is beyond the high watermark, or nothing of it. [default: nothing, and exit code 3 if something is "
    "there; all if no broker runs on DIR and the cluster's metadata has no other replica]",
)
@click.option("--skip-damage", is_flag=True, help="Go on after damage, and tell what is lost.")
@click.option(
    "--threads",
    metavar="N",
    type=IntegerRange(1, _THREADS_MAX),
    help="Number of threads that read and write. [default: one per core]",
)
@shared_options.as_json
@reports_run_of("export")
def export(directories: tuple[str, ...], *, threads: int | None, as_json: bool, **options: Any) -> RunResult:
    """Write the records in DIR…, the log dirs of a Kafka broker, one partition's directory, a segment's log or a bucket
    of tiered storage, to files: those that a consumer would get, with the columns of Spark's Kafka source.

    The output appears as a whole. Until then, what is finished lies in FILE.kidx-export, and the same command takes it
    up after it was interrupted or killed.

    Exit codes: 0 exported; 2 wrong options or inputs, nothing done; 3 exported, but not all: a partition ends at
    damage, damage was passed over, offsets beyond the high watermark were left out, or what was asked for is not there;
    1 failed.
    """
    request = export_request(directories, **options)
    done = run_export(request, threads or len(os.sched_getaffinity(0)))
    counts = {"rows": done.rows, "segments": done.segments, "damage": len(done.damage) + len(done.failed)}
    if as_json:
        told = {"damaged": list(done.damage), "failed": list(done.failed), "left_out": [*map(_as_json, done.left_out)]}
        print_json({"output": str(request.output), **counts, "bytes": done.log_bytes, **told})
    else:
        records, segments = counted(done.rows, "record"), counted(done.segments, "segment")
        print_line(f"{records} of {segments}: {request.output}")
    if not done.rows and options["times"] is not None:
        note(f"--times {options['times']}: no record that was read has such a timestamp")
    warn_of_first([*done.failed, *done.damage, *lines_of(done.left_out)])
    return RunResult(
        code=ExitCode.OK if done.is_whole else ExitCode.PROBLEMS_FOUND, counts=counts, bytes=done.log_bytes
    )


def _as_json(left_out: LeftOut) -> dict[str, Any]:
    return {
        "topic": left_out.partition.topic,
        "partition": left_out.partition.partition,
        "why": left_out.why,
        "first_offset": left_out.first_offset,
        "last_offset": None if left_out.end_offset is None else left_out.end_offset - 1,
        "records": left_out.records,
    }
