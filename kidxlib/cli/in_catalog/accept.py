"""`kidx accept`: what ./spark-submit.sh accept does, by this process alone."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.accept.accept import AcceptOptions, accept_request, run_accept
from kidxlib.operations.local import open_local
from kidxlib.run.result import RunResult


def accept_in_catalog(*, as_json: bool, **options: Any) -> RunResult:
    """Accept what a catalog knows to be damaged.

    Args:
        options: those of `AcceptOptions`, but for the database.
    """
    request = accept_request(AcceptOptions(database=None, **options))
    return run_accept(request, partial(open_local, request.context, 1, must_exist=True), as_json=as_json)
