"""Accept known damage: record who looked at it, when and why; it stays listed, and fails builds and audits no more."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark
from kidxlib.operations.accept.accept import AcceptOptions, accept_request, run_accept
from kidxlib.operations.accept.options import accept_options
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@accept_options
@shared_options.database
@reports_run
def accept(as_json: bool, **options: Any) -> RunResult:
    """Accept damage that the catalog knows of: segments that build_index found truncated, quarantined or unreadable,
    and files that the last audit of verify_index found torn or broken. Nothing is mended. It stays listed, with who
    accepted it, when and why, and counts apart; when the file changes, or what is found in it, it is damage again.
    Nothing is recorded but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    request = accept_request(AcceptOptions(**options))
    open_backend = partial(open_spark, "accept", request.context, upgrade=request.apply)
    return run_accept(request, open_backend, as_json=as_json)


if __name__ == "__main__":
    run(accept, "./spark-submit.sh accept")
