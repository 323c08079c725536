"""Makes a plan of retention, or applies one."""

from __future__ import annotations

from jobs.common.catalog.open import existing_catalog
from jobs.common.retention.apply import run_apply
from jobs.common.retention.plan import run_plan
from jobs.common.retention.request import ApplyRequest, PlanRequest
from jobs.common.spark.session import session
from kidxlib.run.result import RunResult


def run_retention(request: PlanRequest | ApplyRequest, *, as_json: bool) -> RunResult:
    context = request.context
    with session("retention", context.event_log_dir) as spark:
        catalog = existing_catalog(spark, context.catalog, context.database, bring_up_to_date=True)
        if isinstance(request, PlanRequest):
            return run_plan(catalog, request, as_json)
        return run_apply(catalog, request, as_json)
