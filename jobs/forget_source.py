"""Take a source out of a catalog: its rows in all tables. Files of logs and indexes are not touched."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.common.forget.driver import run_forget
from kidxlib.run import options as shared_options
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.run.settings import read_settings
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@click.argument("source", metavar="SOURCE")
@shared_options.catalog
@shared_options.database
@click.option("--apply", is_flag=True, help="Remove the rows. [default: dry run, which counts them]")
@shared_options.settings_file
@shared_options.as_json
@reports_run
def forget_source(
    source: str, catalog: str | None, database: str | None, apply: bool, settings_file: Path, as_json: bool
) -> RunResult:
    """Remove all rows of SOURCE from the catalog, by the name that --source NAME=DIR gave it. No log and no index file
    is touched, and nothing is removed but with --apply.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 1 failed.
    """
    context = RunContext.of(read_settings(settings_file), catalog, database, now=None).with_catalog()
    return run_forget(context, source, apply=apply, as_json=as_json)


if __name__ == "__main__":
    run(forget_source, "./spark-submit.sh forget_source")
