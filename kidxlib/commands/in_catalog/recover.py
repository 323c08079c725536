"""`kidx recover --catalog`: what ./spark-submit.sh recover does, by this process alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kidxlib.operations.local import open_local
from kidxlib.operations.recover.fleet import fleet_context, run_fleet
from kidxlib.operations.recover.fleet_options import Rates
from kidxlib.terminal.outcome import RunResult


def forecast_of_fleet(catalog: str, settings_file: Path, rates: Rates, *, as_json: bool) -> RunResult:
    """Say how long the sources of a catalog take to start."""
    context = fleet_context(catalog, None, settings_file)
    return run_fleet(rates, partial(open_local, context, 1, must_exist=True), as_json=as_json)
