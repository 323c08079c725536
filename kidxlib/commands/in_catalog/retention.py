"""`kidx retention`: what ./spark-submit.sh retention does, by this machine's processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.local import open_local
from kidxlib.operations.retention.retention_request import RetentionOptions, retention_request
from kidxlib.operations.retention.run import run_retention
from kidxlib.run.result import RunResult


def retention_in_catalog(*, processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Plan the retention of a catalog's segments, or apply a plan.

    Args:
        processes: how many plan; None for one a core.
        options: those of `RetentionOptions`, but for the database.
    """
    request = retention_request(RetentionOptions(database=None, **options))
    return run_retention(request, partial(open_local, request.context, processes, must_exist=True), as_json=as_json)
