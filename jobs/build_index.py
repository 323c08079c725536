"""Index raw Kafka segments: write .index and .timeindex as Kafka's recovery does, and record every segment."""

from __future__ import annotations

from typing import Any

import click

from jobs.common.build.driver import run_build
from jobs.common.build.request import BuildOptions, build_request
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run
from kidxlib.terminal.options.integer_range import IntegerRange


@click.command(context_settings={"max_content_width": 110})
@shared_options.sources
@shared_options.sample
@click.option(
    "--index-dir",
    metavar="DIR",
    help="Where <topic>-<partition>/<base offset>.index and .timeindex go. [settings: build.index_dir]",
)
@click.option("--in-place", is_flag=True, help="Write beside the segments instead, under the log dir's lock.")
@shared_options.accept_truncated
@shared_options.catalog
@click.option("--database", metavar="NAME", help="Keep the catalog in a database of Spark's metastore instead.")
@shared_options.topics_to_read
@click.option(
    "--interval-bytes",
    metavar="BYTES",
    type=IntegerRange(0, 2**31 - 1),
    help="Kafka's index.interval.bytes. [settings: build.interval_bytes]",
)
@click.option(
    "--max-index-bytes",
    metavar="BYTES",
    type=IntegerRange(12, 2**31 - 1),
    help="Kafka's segment.index.bytes. [settings: build.max_index_bytes]",
)
@click.option(
    "--verify-crc/--no-verify-crc",
    default=None,
    help="Check every batch's checksum, or read batch headers only. [settings: build.verify_crc]",
)
@click.option(
    "--snapshots/--no-snapshots", default=None, help="Write producer snapshots too. [settings: build.snapshots]"
)
@click.option(
    "--epochs/--no-epochs", default=None, help="Write leader-epoch-checkpoint files too. [settings: build.epochs]"
)
@click.option("--rebuild", is_flag=True, help="Read every segment again, whatever the catalog says of it.")
@click.option(
    "--repair", is_flag=True, help="Write what the last audit (verify_index --catalog) found broken, no more."
)
@click.option("--dry-run", is_flag=True, help="Say what would be read and how long that takes; write nothing.")
@shared_options.settings_file
@shared_options.time_to_record
@shared_options.as_json
@reports_run
def build_index(dry_run: bool, as_json: bool, **options: Any) -> RunResult:
    """Index raw Kafka segments: write .index, .timeindex and .txnindex byte for byte as Kafka's recovery would, without
    touching a log, and record every segment in Delta tables. Segments that have not changed since the last build are
    not read.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments of these sources and
    topics are damaged, as this run or an earlier one found, and not accepted (see accept), or the last segments of a
    partition are missing since the last build; 1 failed. 0 means that recovery accepts each log; verify_index tells
    whether something is missing.
    """
    return run_build(build_request(BuildOptions(**options)), dry_run=dry_run, as_json=as_json)


if __name__ == "__main__":
    run(build_index, "./spark-submit.sh build_index")
