"""`kidx export`: the records of a log dir as files of Parquet, Arrow or JSON, without a broker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import click

from kidxlib.commands.command import CommandOptions, kidx_command, open_nothing, option, parameter
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import FIRST_MOST, first_of_each_kind
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import IntegerRange
from kidxlib.terminal.outcome import Outcome
from kidxlib.text.words import counted

if TYPE_CHECKING:
    from kidxlib.operations.export.export import ExportRequest
    from kidxlib.reading.left_out import LeftOut

_THREADS_MAX: Final = 64
#: The values of `ISOLATIONS`, written out here: importing it would slow `--help`.
_ISOLATIONS: Final = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, kw_only=True)
class ExportCommand(CommandOptions):
    directories: tuple[str, ...] = parameter(click.argument("directories", metavar="DIR…", nargs=-1, required=True))
    output: str = option(
        "--output",
        metavar="FILE",
        required=True,
        help="What is made, and must not exist: FILE.parquet, a directory of Parquet files; or one file, FILE.arrow or "
        "FILE.jsonl (JSON lines).",
    )
    topics: str = parameter(shared_options.topics)
    offsets: tuple[str, ...] = option(
        "--offsets",
        metavar="START:END",
        multiple=True,
        help="Only offsets from START on to below END, each may be left out. With NAME= before it, of the partition "
        "NAME (<topic>-<partition>), and of no partition that is not named.",
    )
    times: str | None = option(
        "--times",
        metavar="START/END",
        help="Only records with a timestamp from START on to before END, ISO 8601 with a zone or ms; each may be left "
        "out.",
    )
    isolation: str = option(
        "--isolation",
        type=click.Choice(_ISOLATIONS),
        default=_ISOLATIONS[0],
        show_default=True,
        help="Kafka's isolation.level: whether records of open and aborted transactions are exported.",
    )
    include_headers: bool = option("--include-headers", is_flag=True, help="Add the column headers.")
    columns: str | None = option("--columns", metavar="NAME,…", help="Only these columns, in this order.")
    index_dir: str | None = option(
        "--index-dir",
        metavar="DIR",
        help="The directory of the index files of DIR. [default: beside the logs, or where --catalog has them]",
    )
    catalog: str | None = option(
        "--catalog",
        metavar="DIR",
        help="A catalog that has the logs. What it says of those that are still as they were tells what need not be "
        "read for --times, and what need not be scanned for --isolation read_committed.",
    )
    layout: str | None = parameter(shared_options.layout)
    tiered_metadata: tuple[str, ...] = parameter(shared_options.tiered_metadata)
    to_log_end: bool | None = option(
        "--to-log-end/--to-high-watermark",
        default=None,
        help="Also what is beyond the high watermark, or nothing of it. [default: nothing, and exit code 3 if "
        "something is there; all if no broker runs on DIR and the cluster's metadata has no other replica]",
    )
    skip_damage: bool = option("--skip-damage", is_flag=True, help="Go on after damage, and tell what is lost.")
    threads: int | None = option(
        "--threads",
        metavar="N",
        type=IntegerRange(1, _THREADS_MAX),
        help="Number of threads that read and write. [default: one per core]",
    )

    def __post_init__(self) -> None:
        _ = self.resolved  # what is wrong is told before anything is done

    @cached_property
    def resolved(self) -> ExportRequest:
        from kidxlib.operations.export.export import export_request

        return export_request(
            self.directories,
            output=self.output,
            topics=self.topics,
            offsets=self.offsets,
            times=self.times,
            isolation=self.isolation,
            include_headers=self.include_headers,
            columns=self.columns,
            index_dir=self.index_dir,
            catalog=self.catalog,
            to_log_end=self.to_log_end,
            skip_damage=self.skip_damage,
            layout=self.layout,
            tiered_metadata=self.tiered_metadata,
        )


def run_export(request: ExportCommand, _: None) -> Outcome:
    """Write the records in DIR…, the log dirs of a Kafka broker, one partition's directory, a segment's log or a bucket
    of tiered storage, to files: those that a consumer would get, with the columns of Spark's Kafka source.

    The output appears as a whole. Until then, what is finished lies in FILE.kidx-export, and the same command takes it
    up after it was interrupted or killed.

    Exit codes: 0 exported; 2 wrong options or inputs, nothing done; 3 exported, but not all: a partition ends at
    damage, damage was passed over, offsets beyond the high watermark were left out, or what was asked for is not there;
    1 failed.
    """
    from kidxlib.jit.machine import cores
    from kidxlib.operations.export.export import export_records
    from kidxlib.reading.left_out import WhyLeftOut, lines_of_left_out

    done = export_records(request.resolved, request.threads or cores())
    counts = {"rows": done.rows, "segments": done.segments, "damage": len(done.damage) + len(done.failed)}
    outcome = Outcome(
        code=ExitCode.OK if done.is_whole else ExitCode.PROBLEMS_FOUND, counts=counts, bytes=done.log_bytes
    )
    outcome.values.update(
        output=str(request.resolved.output),
        **counts,
        bytes=done.log_bytes,
        damaged=list(done.damage),
        failed=list(done.failed),
        left_out=[*map(_as_json, done.problems)],
        first_logs_not_known=[_as_json(left) for left in done.left_out if left.why is WhyLeftOut.FIRST_LOGS_NOT_KNOWN],
    )
    records, segments = counted(done.rows, "record"), counted(done.segments, "segment")
    outcome.line(f"{records} of {segments}: {request.resolved.output}")
    if not done.rows and request.times is not None:
        outcome.note(f"--times {request.times}: no record that was read has such a timestamp")
    outcome.warn(*first_of_each_kind([*done.failed, *done.damage, *lines_of_left_out(done.problems)], FIRST_MOST))
    return outcome


def _as_json(left_out: LeftOut) -> dict[str, Any]:
    return {
        "topic": left_out.partition.topic,
        "partition": left_out.partition.partition,
        "why": left_out.why,
        "first_offset": left_out.first_offset,
        "last_offset": None if left_out.end_offset is None else left_out.end_offset - 1,
        "records": left_out.records,
    }


export = kidx_command("export", ExportCommand, run_export, opened=open_nothing, reports_as="export")
