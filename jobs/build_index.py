"""Index raw Kafka segments: write .index and .timeindex as Kafka's recovery does, and record every segment."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark, open_spark_once, spark_maintenance
from kidxlib.operations.build.build_catalog import run_build
from kidxlib.operations.build.from_options import BuildOptions, build_request
from kidxlib.operations.build.options import build_options
from kidxlib.operations.tiered.repair_options import asks_for_tiered, reported_as
from kidxlib.run.context import RunContext
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.command import run
from kidxlib.terminal.outcome import RunResult


@click.command(context_settings={"max_content_width": 110})
@build_options
@click.option("--database", metavar="NAME", help="Keep the catalog in a database of Spark's metastore instead.")
@reports_run_of(reported_as)
@click.pass_context
def build_index(context: click.Context, /, as_json: bool, **options: Any) -> RunResult:
    """Index raw Kafka segments: write .index, .timeindex and .txnindex byte for byte as Kafka's recovery would, without
    touching a log, and record every segment in Delta tables. Segments that have not changed since the last build are
    not read.

    With --tiered PLACE and --tiered-metadata PLACE, make objects of remote segments anew that are missing or broken,
    into --index-dir; with --apply put them into the bucket, too. Logs there are only read, and nothing is deleted.
    With --catalog each remote segment is recorded there.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments of these sources and
    topics are damaged, as this run or an earlier one found, and not accepted (see accept), or logs or partitions are
    missing; with --tiered, something is broken and not mended; 1 failed. 0 means that recovery accepts each log;
    verify_index judges the other files, too.
    """
    if asks_for_tiered(context, options):
        from kidxlib.operations.tiered.repair import run_repair
        from kidxlib.operations.tiered.repair_request import RepairOptions, repair_request

        repair = repair_request(RepairOptions(**options))
        if (recording := repair.audit.recording) is not None:
            open_catalog = partial(open_spark, "build_index", recording.context)
            return run_repair(repair, open_catalog, as_json=as_json)
        once = RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None)
        return run_repair(repair, partial(open_spark_once, "build_index", once), as_json=as_json)
    dry_run = options.pop("dry_run")
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
