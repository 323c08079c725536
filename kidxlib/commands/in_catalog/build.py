"""`kidx build --catalog`: the build that ./spark-submit.sh build_index does, by this machine's processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.build.build_catalog import run_build
from kidxlib.operations.build.from_options import BuildOptions, build_request
from kidxlib.operations.local import local_maintenance, open_local
from kidxlib.terminal.outcome import RunResult


def build_with_catalog(*, processes: int | None, dry_run: bool, as_json: bool, **options: Any) -> RunResult:
    """Read what is new or has changed since the catalog's last build, and record it there.

    Args:
        processes: how many read; None for one a core.
        options: those of `BuildOptions`, but for the database.
    """
    request = build_request(BuildOptions(database=None, **options))
    return run_build(
        request,
        partial(open_local, request.context, processes, must_exist=request.repair),
        local_maintenance,
        dry_run=dry_run,
        as_json=as_json,
    )
