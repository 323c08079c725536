"""Makes a plan, and records it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.retention.delete_records import ensure_no_copies, write_delete_records
from jobs.common.retention.executors import plan_on_executors
from jobs.common.retention.report import print_report, segments_as_json
from jobs.common.retention.request import PlanRequest
from jobs.common.retention.summary import RetentionReport, report
from jobs.common.retention.topics import ensure_one_cluster, topics_that_look_compacted
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.errors import UsageError
from kidxlib.run.result import RunResult
from kidxlib.run.sources import sources_in_catalog
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase


def run_plan(catalog: Catalog, request: PlanRequest, as_json: bool) -> RunResult:
    known = catalog.topics()
    sources = sources_in_catalog(request.sources, known)
    configs = request.configs_of(set().union(*(known[source] for source in sources)))
    if not configs:
        raise UsageError(f"{catalog.path}: no segment of a topic that matches {request.topics.pattern}")
    plan_id = request.context.run_id()
    begin_phase("planning")
    to_plan = catalog.to_plan(sources, configs)
    if request.delete_records_json is not None:
        ensure_no_copies(to_plan)
    if request.policy_file is not None and any(policy.described for policy in request.policies):
        ensure_one_cluster(to_plan, request.policy_file)
    with catalog.staging(f"plan-{plan_id}") as materialise:
        options = replace(request.options, compacted_topics=topics_that_look_compacted(to_plan))
        planned = materialise(plan_on_executors(to_plan, configs, options))
        found = report(planned)
        begin_phase("recording in the catalog")
        catalog.append_plan(_of_plan(planned, plan_id, request))
        if request.delete_records_json is not None:
            write_delete_records(planned, request.delete_records_json)
        if as_json:
            print_json({**_as_json(plan_id, request, found), "segments": segments_as_json(planned)})
    if not as_json:
        print_report(plan_id, found, what_if=options.what_if)
        print_line(f"catalog: {catalog.path}, table {RETENTION_PLANS.name}")
    problems, disagreements = found.problems[0], found.disagreements[0]
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if problems or disagreements else ExitCode.OK,
        run_id=plan_id,
        counts={
            "segments": sum(topic.segments for topic in found.topics),
            "deleted": sum(topic.deleted for topic in found.topics),
            "undecided": sum(topic.undecided for topic in found.topics),
            "not_well": problems,
            "disagreements": disagreements,
        },
        bytes=sum(topic.freed for topic in found.topics),
    )


def _of_plan(planned: DataFrame, plan_id: str, request: PlanRequest) -> DataFrame:
    columns = {
        "plan_id": F.lit(plan_id),
        "planned_at": F.lit(request.context.now),
        "policy_file": F.lit(None if request.policy_file is None else str(request.policy_file)),
        "what_if": F.lit(request.options.what_if),
    }
    return planned.withColumns(columns).select(*RETENTION_PLANS.column_names)


def _as_json(plan_id: str, request: PlanRequest, found: RetentionReport) -> dict[str, Any]:
    return {
        "plan_id": plan_id,
        "planned_at": request.context.now.isoformat(),
        "what_if": request.options.what_if,
        "policies": [policy.name for policy in request.policies],
        "topics": [asdict(topic) for topic in found.topics],
        "unknown_policies": found.unknown,
        "compacted_topics": found.compacted,
        "warnings": [finding.as_json() for finding in found.findings],
        "not_well_count": found.problems[0],
        "not_well": found.problems[1],
        "disagreement_count": found.disagreements[0],
        "disagreements": found.disagreements[1],
    }
