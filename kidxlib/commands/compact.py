"""`kidx compact`: compact a catalog's index files and tables with all cores of this machine."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from kidxlib.operations.compaction.options import compaction_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options


@click.command(context_settings={"max_content_width": 110})
@compaction_options
@shared_options.processes
@reports_run_of("compact_index")
def compact(processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Make what is stored of indexes smaller: index files of segments that are not active are trimmed, or rebuilt
    with larger intervals, exactly as Kafka's recovery would write them; files that nothing needs are removed; tables
    are optimized. Nothing is changed but with --apply. The same as ./spark-submit.sh compact_index, without Spark.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some files stay that were to change;
    1 failed.
    """
    with needing_packages("kidx compact"):
        from kidxlib.operations.compaction.compact import CompactIndexOptions, compaction_request, run_compaction
        from kidxlib.operations.local import local_maintenance, open_local
    request = compaction_request(CompactIndexOptions(database=None, **options))
    open_backend = partial(open_local, request.context, processes, must_exist=True)
    return run_compaction(request, open_backend, local_maintenance, as_json=as_json)
