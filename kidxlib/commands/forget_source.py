"""`kidx forget-source`: take a source out of a catalog, without Spark."""

from __future__ import annotations

from typing import Any

import click

from kidxlib.operations.forget.options import forget_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages


@click.command("forget-source", context_settings={"max_content_width": 110})
@forget_options
@reports_run_of("forget_source")
def forget_source(as_json: bool, **options: Any) -> RunResult:
    """Remove all rows of SOURCE from the catalog, by the name that --source NAME=DIR gave it. No log and no index file
    is touched, and nothing is removed but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    with needing_packages("kidx forget-source"):
        from kidxlib.commands.in_catalog.forget import forget_in_catalog

    return forget_in_catalog(as_json=as_json, **options)
