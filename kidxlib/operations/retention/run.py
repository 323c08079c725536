"""Makes a plan of retention, or applies one."""

from __future__ import annotations

from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.retention.apply import run_apply
from kidxlib.operations.retention.make_plan import run_plan
from kidxlib.operations.retention.retention_request import ApplyRequest, PlanRequest
from kidxlib.run.result import RunResult


def run_retention(request: PlanRequest | ApplyRequest, open_backend: OpenBackend, *, as_json: bool) -> RunResult:
    """Decide on the segments of a catalog, or delete what a plan decided.

    Args:
        open_backend: opens a catalog that is there, and of this release.
    """
    with open_backend() as backend:
        if isinstance(request, PlanRequest):
            return run_plan(backend, request, as_json)
        return run_apply(backend, request, as_json)
