"""Index raw Kafka segments: write .index and .timeindex as Kafka's recovery does, and record every segment."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark, spark_maintenance
from kidxlib.operations.build.from_options import BuildOptions, build_request
from kidxlib.operations.build.options import build_options
from kidxlib.operations.build.run import run_build
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@build_options
@click.option("--database", metavar="NAME", help="Keep the catalog in a database of Spark's metastore instead.")
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
    request = build_request(BuildOptions(**options))
    open_backend = partial(
        open_spark,
        "build_index",
        request.context,
        must_exist=request.repair,
        upgrade=not dry_run,
    )
    return run_build(request, open_backend, spark_maintenance, dry_run=dry_run, as_json=as_json)


if __name__ == "__main__":
    run(build_index, "./spark-submit.sh build_index")
