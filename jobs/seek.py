"""Say where offsets and times are: for one question, or for a file of millions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobs.common.seek.driver import run_seek
from jobs.common.seek.request import seek_request
from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run
from kidxlib.terminal.options.integer_range import IntegerRange


@click.command(context_settings={"max_content_width": 110})
@shared_options.catalog
@click.option("--database", metavar="NAME", help="A catalog in a database of Spark's metastore instead.")
@click.option("--source", metavar="NAME", help="Only this source. [default: each that holds the partition]")
@click.option("--topic", help="The topic.")
@click.option("--partition", metavar="N", type=IntegerRange(0, PARTITION_MAX), help="The partition's number.")
@click.option(
    "--offset", metavar="OFFSET", type=IntegerRange(-(2**63), 2**63 - 1), help="Which batch holds this offset?"
)
@click.option(
    "--timestamp", metavar="TIME", help="Which is the first record of this time or later? ISO 8601 with a zone, or ms."
)
@click.option(
    "--queries",
    metavar="FILE",
    help="Many questions instead: .csv, .json, .parquet or a Delta table, with columns topic, partition, and offset or "
    "timestamp, and perhaps source.",
)
@click.option("--output", metavar="FILE", help="Where their answers go: .csv, .json, .parquet, else a Delta table.")
@click.option(
    "--consumer-group-csv",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what kafka-consumer-groups --reset-offsets --from-file takes; one question a partition.",
)
@shared_options.settings_file
@shared_options.as_json
@reports_run
def seek(as_json: bool, **options: Any) -> RunResult:
    """Say which batch holds an offset, and which record is the first of a time, as a broker would.

    Exit codes: 0 answered; 2 wrong options or inputs, nothing done; 3 answered, but files are not as they should be,
    which notes say; 1 failed.
    """
    return run_seek(seek_request(**options), as_json=as_json)


if __name__ == "__main__":
    run(seek, "./spark-submit.sh seek")
