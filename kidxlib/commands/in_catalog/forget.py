"""`kidx forget-source`: what ./spark-submit.sh forget_source does, by this process alone."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.forget.forget import ForgetOptions, forget_request, run_forget
from kidxlib.operations.local import open_local
from kidxlib.run.result import RunResult


def forget_in_catalog(*, as_json: bool, **options: Any) -> RunResult:
    """Take a source out of a catalog.

    Args:
        options: those of `ForgetOptions`, but for the database.
    """
    request = forget_request(ForgetOptions(database=None, **options))
    return run_forget(request, partial(open_local, request.context, 1, must_exist=True), as_json=as_json)
