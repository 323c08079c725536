"""`kidx verify --catalog`: the audit that ./spark-submit.sh verify_index does, by this machine's processes."""

from __future__ import annotations

from functools import partial
from typing import Any

from kidxlib.operations.audit.audit import run_audit
from kidxlib.operations.audit.from_options import AuditOptions, audit_request
from kidxlib.operations.local import open_local
from kidxlib.run.result import RunResult


def audit_with_catalog(*, processes: int | None, as_json: bool, **options: Any) -> RunResult:
    """Audit sources, and record what is found in their catalog.

    Args:
        processes: how many read; None for one a core.
        options: those of `AuditOptions`, but for the database.
    """
    request = audit_request(AuditOptions(database=None, **options))
    return run_audit(request, partial(open_local, request.context, processes, must_exist=True), as_json=as_json)
