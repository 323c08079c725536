"""Say how long brokers would take to start after a crash, alone and with kidx recover. It recovers none."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from jobs.common.backend import open_spark
from kidxlib.operations.recover.fleet import fleet_context, run_fleet
from kidxlib.operations.recover.fleet_options import DRY_RUN, Rates, ensure_dry_run, rate_options
from kidxlib.run import options as shared_options
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run
from kidxlib.terminal.outcome import RunResult


@click.command(context_settings={"max_content_width": 110})
@shared_options.catalog
@DRY_RUN
@rate_options
@shared_options.settings_file
@shared_options.as_json
@shared_options.database
@reports_run
def recover(
    catalog: str | None, database: str | None, dry_run: bool, settings_file: Path, as_json: bool, **rates: Any
) -> RunResult:
    """For each source of a catalog, a log dir, say how long its broker would take to start after a crash: alone, and
    with kidx recover at each level. Only --dry-run is there: a broker is recovered beside its disks, by kidx recover.
    No log is read, and nothing is recorded.

    Exit codes: 0 said; 2 wrong options or inputs, nothing done; 1 failed.
    """
    ensure_dry_run(dry_run)
    context = fleet_context(catalog, database, settings_file)
    open_backend = partial(open_spark, "recover", context, upgrade=False, changes=False)
    return run_fleet(Rates.of(**rates), open_backend, as_json=as_json)


if __name__ == "__main__":
    run(recover, "./spark-submit.sh recover")
