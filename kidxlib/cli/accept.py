"""`kidx accept`: record that known damage may stay as it is, without Spark."""

from __future__ import annotations

from typing import Any

import click

from kidxlib.operations.accept.options import accept_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages


@click.command(context_settings={"max_content_width": 110})
@accept_options
@reports_run_of("accept")
def accept(as_json: bool, **options: Any) -> RunResult:
    """Accept damage that the catalog knows of: segments that a build found truncated, quarantined or unreadable, and
    files that the last audit found torn or broken: the same as ./spark-submit.sh accept, and the same table. Nothing is
    mended. It stays listed, with who accepted it, when and why, and counts apart; when the file changes, or what is
    found in it, it is damage again. Nothing is recorded but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    with needing_packages("kidx accept"):
        from kidxlib.cli.in_catalog.accept import accept_in_catalog

    return accept_in_catalog(as_json=as_json, **options)
