"""Compact indexes and tables: trim preallocated files, give cold segments sparser indexes, remove leftovers."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark, spark_maintenance
from kidxlib.operations.compaction.compact import CompactIndexOptions, compaction_request, run_compaction
from kidxlib.operations.compaction.options import compaction_options
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@compaction_options
@shared_options.database
@reports_run
def compact_index(as_json: bool, **options: Any) -> RunResult:
    """Make what is stored of indexes smaller: index files of segments that are not active are trimmed, or rebuilt
    with larger intervals, exactly as Kafka's recovery would write them; files that nothing needs are removed; tables
    are optimized. Nothing is changed but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some files stay that were to change;
    1 failed.
    """
    request = compaction_request(CompactIndexOptions(**options))
    open_backend = partial(
        open_spark,
        "compact_index",
        request.context,
        upgrade=request.apply,
        changes=request.apply,
    )
    return run_compaction(request, open_backend, spark_maintenance, as_json=as_json)


if __name__ == "__main__":
    run(compact_index, "./spark-submit.sh compact_index")
