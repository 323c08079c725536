"""`kidx verify --copy`: what ./spark-submit.sh verify_index --copy does, by this machine's processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.audit.copies.compare_copy import run_copies
from kidxlib.operations.audit.copies.copy_request import CopyOptions, copy_request
from kidxlib.operations.local import open_local
from kidxlib.run.result import RunResult


def compare_copy(*, processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Compare a copy in an object store with a catalog.

    Args:
        processes: how many ask; None for one a core.
        options: those of `CopyOptions`, but for the database.
    """
    request = copy_request(CopyOptions(database=None, **options))
    return run_copies(request, partial(open_local, request.context, processes, must_exist=True), as_json=as_json)
