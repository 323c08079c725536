"""Write one HTML page of what a catalog knows: health, timelines, retention, shape, growth, replicas, builds."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark
from kidxlib.operations.report.make_report import run_report
from kidxlib.operations.report.options import report_options
from kidxlib.operations.report.report_request import ReportOptions, report_request
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@report_options
@shared_options.database
@reports_run
def report(as_json: bool, **options: Any) -> RunResult:
    """Write one HTML page of what a catalog knows: how much there is, what is not well, the segments of each partition,
    what retention would do with other limits, the shape of batches, growth, replicas and builds. The page needs no
    network. Nothing is recorded in the catalog. With --sample some batches of logs are read, too, and where replicas
    differ some headers.

    Exit codes: 0 made; 3 made, and it says of offsets that they are missing, which nobody has accepted: a gap between
    logs, a log that is missing or ends early, what a replica lacks; 2 wrong options or inputs, nothing done; 1 failed.
    """
    request = report_request(ReportOptions(**options), as_json=as_json)
    open_backend = partial(open_spark, "report", request.context, upgrade=False, changes=False)
    return run_report(request, open_backend, as_json=as_json)


if __name__ == "__main__":
    run(report, "./spark-submit.sh report")
