"""Take a source out of a catalog: its rows in all tables. Files of logs and indexes are not touched."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark
from kidxlib.operations.forget.forget import ForgetOptions, forget_request, run_forget
from kidxlib.operations.forget.options import forget_options
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@forget_options
@shared_options.database
@reports_run
def forget_source(as_json: bool, **options: Any) -> RunResult:
    """Remove all rows of SOURCE from the catalog, by the name that --source NAME=DIR gave it. No log and no index file
    is touched, and nothing is removed but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    request = forget_request(ForgetOptions(**options))
    open_backend = partial(open_spark, "forget_source", request.context, upgrade=False, changes=request.apply)
    return run_forget(request, open_backend, as_json=as_json)


if __name__ == "__main__":
    run(forget_source, "./spark-submit.sh forget_source")
