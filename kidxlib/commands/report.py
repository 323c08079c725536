"""`kidx report`: a page of what a catalog knows, without Spark."""

from __future__ import annotations

from typing import Any

import click

from kidxlib.operations.report.options import report_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options


@click.command(context_settings={"max_content_width": 110})
@report_options
@shared_options.processes
@reports_run_of("report")
def report(processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Write one HTML page of what a catalog knows: how much there is, what is not well, the segments of each partition,
    what retention would do with other limits, the shape of batches, growth, replicas and builds. The page needs no
    network. Nothing is recorded in the catalog. With --sample some batches of logs are read, too, and where replicas
    differ some headers.

    Exit codes: 0 made; 3 made, and it says of offsets that they are missing, which nobody has accepted: a gap between
    logs, a log that is missing or ends early, what a replica lacks; 2 wrong options or inputs, nothing done; 1 failed.
    """
    with needing_packages("kidx report"):
        from kidxlib.commands.in_catalog.report import report_of_catalog

    return report_of_catalog(processes=processes, as_json=as_json, **options)
