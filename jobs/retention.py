"""Plan retention: which segments Kafka would delete, and why each of the others stays; carry a plan out."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common import shared_options
from jobs.common.apply_plan import Applied, apply_plan
from jobs.common.catalog import Catalog
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import existing_catalog
from jobs.common.plan_partitions import (
    plan_on_executors,
    refuse_topics_of_several_clusters,
    topics_that_look_compacted,
)
from jobs.common.retention_report import (
    Report,
    print_report,
    refuse_copies,
    report,
    segments_as_json,
    write_delete_records,
)
from jobs.common.retention_request import ApplyRequest, PlanRequest, RetentionOptions, retention_request
from jobs.common.session import session
from jobs.common.tables import RETENTION_PLANS
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.command import ExitCode, run
from kidxlib.console import print_json, print_line
from kidxlib.errors import UsageError
from kidxlib.progress import begin_phase

_LIMIT: Final = WholeNumber(-1, 2**63 - 1)


@click.command(context_settings={"max_content_width": 110})
@shared_options.catalog
@shared_options.database
@shared_options.cataloged_sources
@shared_options.cataloged_topics
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="What kafka-configs --describe --all prints of topics, or a file of policies (TOML); several are compared.",
)
@click.option("--retention-ms", type=_LIMIT, help="retention.ms of all topics; -1: no limit.")
@click.option("--retention-bytes", type=_LIMIT, help="retention.bytes of all topics; -1: no limit.")
@click.option(
    "--high-watermark",
    type=WholeNumber(0, 2**63 - 1),
    metavar="N",
    help="Of every partition, in place of what the catalog says; a --what-if.",
)
@click.option("--from-files", is_flag=True, help="Look at each time index too, as a broker does; say where it differs.")
@click.option("--include-internal", is_flag=True, help="Plan Kafka's own topics too, as a broker configures them.")
@click.option(
    "--what-if", is_flag=True, help="Take Kafka's own defaults for what nobody said; --apply refuses such a plan."
)
@click.option(
    "--delete-records-json",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the plan for kafka-delete-records --offset-json-file.",
)
@click.option("--apply", is_flag=True, help="Carry out a plan on an archive, in its log dir and its index folder.")
@click.option("--plan", "plan_id", metavar="ID", help="The plan to carry out.")
@click.option("--delete-delay", metavar="TIME", help="From renaming files until they are removed. [default: 60s]")
@click.option("--max-plan-age", metavar="TIME", help="An older plan is refused. [default: 1h]")
@shared_options.settings_file
@click.option(
    "--now", metavar="TIME", help="Decide for this time: ISO 8601 with a zone, or ms since the epoch; a --what-if."
)
@shared_options.as_json
@observed
def retention(as_json: bool, **options: Any) -> Ended:
    """Plan which segments Kafka's retention would delete, with a reason for each, and record that in the catalog's
    table retention_plans. Nothing is deleted but with --apply.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 3 done, but some segments are not well, or their
    time indexes lead to other decisions; 1 failed.
    """
    request = retention_request(RetentionOptions(**options))
    with session("retention", request.where.event_log_dir) as spark:
        where = request.where
        catalog = existing_catalog(spark, where.catalog, where.database, bring_up_to_date=True)
        if isinstance(request, PlanRequest):
            return _plan(catalog, request, as_json)
        return _apply(catalog, request, as_json)


def _plan(catalog: Catalog, request: PlanRequest, as_json: bool) -> Ended:
    known = catalog.topics()
    for source in request.sources:
        if source not in known:
            raise UsageError(f"--source {source}: no segment in the catalog; there are: {', '.join(sorted(known))}")
    sources = request.sources or tuple(sorted(known))
    configs = request.configs_of(set().union(*(known[source] for source in sources)))
    if not configs:
        raise UsageError(f"{catalog.path}: no segment of a topic that matches {request.topics.pattern}")
    plan_id = _new_id(request.where.now)
    begin_phase("planning")
    to_plan = catalog.to_plan(sources, configs)
    if request.delete_records_json is not None:
        refuse_copies(to_plan)
    if request.policy_file is not None and any(policy.described for policy in request.policies):
        refuse_topics_of_several_clusters(to_plan, request.policy_file)
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
    not_well, disagreements = found.not_well[0], found.disagreements[0]
    return Ended(
        code=ExitCode.NOT_WELL if not_well or disagreements else ExitCode.OK,
        run_id=plan_id,
        counts={
            "segments": sum(topic.segments for topic in found.topics),
            "deleted": sum(topic.deleted for topic in found.topics),
            "undecided": sum(topic.undecided for topic in found.topics),
            "not_well": not_well,
            "disagreements": disagreements,
        },
        bytes=sum(topic.freed for topic in found.topics),
    )


def _apply(catalog: Catalog, request: ApplyRequest, as_json: bool) -> Ended:
    if not str(catalog.spark.sparkContext.master).startswith("local"):
        raise UsageError("--apply: only with a local master, so that the log dir's lock covers every writer")
    begin_phase("deleting what the plan names")
    applied = Applied(request.plan_id, apply_plan(catalog, request))
    if as_json:
        print_json(applied.as_json())
    else:
        applied.show()
    return Ended(
        code=ExitCode.OK if applied.all_well else ExitCode.NOT_WELL,
        run_id=applied.plan_id,
        counts=applied.by_outcome,
        bytes=applied.deleted_bytes,
    )


def _new_id(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"


def _of_plan(planned: DataFrame, plan_id: str, request: PlanRequest) -> DataFrame:
    columns = {
        "plan_id": F.lit(plan_id),
        "planned_at": F.lit(request.where.now),
        "policy_file": F.lit(None if request.policy_file is None else str(request.policy_file)),
        "what_if": F.lit(request.options.what_if),
    }
    return planned.withColumns(columns).select(*RETENTION_PLANS.column_names)


def _as_json(plan_id: str, request: PlanRequest, found: Report) -> dict[str, Any]:
    return {
        "plan_id": plan_id,
        "planned_at": request.where.now.isoformat(),
        "what_if": request.options.what_if,
        "policies": [policy.name for policy in request.policies],
        "topics": [asdict(topic) for topic in found.topics],
        "unknown_policies": found.unknown,
        "compacted_topics": found.compacted,
        "warnings": [finding.as_json() for finding in found.findings],
        "not_well_count": found.not_well[0],
        "not_well": found.not_well[1],
        "disagreement_count": found.disagreements[0],
        "disagreements": found.disagreements[1],
    }


if __name__ == "__main__":
    run(retention, "./spark-submit.sh retention")
