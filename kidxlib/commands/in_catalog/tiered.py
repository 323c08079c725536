"""`kidx verify` and `kidx build` with --tiered and --catalog: what the jobs do, by this machine's processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.local import open_local
from kidxlib.operations.tiered.repair import run_repair
from kidxlib.operations.tiered.repair_request import RepairOptions, repair_request
from kidxlib.terminal.outcome import RunResult


def repair_tiered_in_catalog(*, processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Make objects of remote segments anew, and record the segments in a catalog.

    Args:
        processes: how many read; None for one a core.
        options: those of `RepairOptions`, but for the database.
    """
    request = repair_request(RepairOptions(database=None, **options))
    assert request.audit.recording is not None
    context = request.audit.recording.context
    return run_repair(request, partial(open_local, context, processes, must_exist=True), as_json=as_json)
