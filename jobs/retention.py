"""Plan retention: which segments Kafka would delete, and why each of the others stays; apply a plan."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark
from kidxlib.operations.retention.options import retention_options
from kidxlib.operations.retention.retention_request import RetentionOptions, retention_request
from kidxlib.operations.retention.run import run_retention
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@retention_options
@shared_options.database
@reports_run
def retention(as_json: bool, **options: Any) -> RunResult:
    """Plan which segments Kafka's retention would delete, with a reason for each, and record that in the catalog's
    table retention_plans. Nothing is deleted but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems,
    their time indexes lead to other decisions, or nobody said all that decides on a topic that --topics asks for;
    1 failed.
    """
    request = retention_request(RetentionOptions(**options))
    open_backend = partial(open_spark, "retention", request.context)
    return run_retention(request, open_backend, as_json=as_json)


if __name__ == "__main__":
    run(retention, "./spark-submit.sh retention")
