"""`kidx retention`: plan which segments Kafka's retention would delete, or apply a plan, without Spark."""

from __future__ import annotations

from typing import Any

import click

from kidxlib.operations.retention.options import retention_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options import shared as shared_options


@click.command(context_settings={"max_content_width": 110})
@retention_options
@shared_options.processes
@reports_run_of("retention")
def retention(processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Plan which segments Kafka's retention would delete, with a reason for each, and record that in the catalog's
    table retention_plans: the same as ./spark-submit.sh retention, and the same table. Nothing is deleted but with
    --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 done, but some segments have problems,
    their time indexes lead to other decisions, or nobody said all that decides on a topic that --topics asks for;
    1 failed.
    """
    with needing_packages("kidx retention"):
        from kidxlib.commands.in_catalog.retention import retention_in_catalog

    return retention_in_catalog(processes=processes, as_json=as_json, **options)
