"""Makes a plan, and records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from kidxlib.catalog.results.build import PLANNED
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.engine.work import Work
from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.operations.retention.delete_records import partitions_to_delete_from, write_delete_records
from kidxlib.operations.retention.missing import Missing
from kidxlib.operations.retention.plan_options import Configs
from kidxlib.operations.retention.plan_work import plan_partitions
from kidxlib.operations.retention.recorded import PresentSegments, RowsOfPlan, present_topics
from kidxlib.operations.retention.recorded_plan import CurrentConfigs
from kidxlib.operations.retention.report import print_report, print_segments, segments_as_json
from kidxlib.operations.retention.request import PlanRequest
from kidxlib.operations.retention.summary import RetentionReport, report
from kidxlib.operations.retention.to_plan import partitions_to_plan
from kidxlib.operations.retention.topics import (
    FACTS_OF_OFFSETS,
    ensure_no_copies,
    ensure_one_cluster,
    topics_that_look_compacted,
)
from kidxlib.run.recorded_sources import source_paths
from kidxlib.run.result import RunResult
from kidxlib.run.retention_configs import ConfiguredTopics
from kidxlib.run.sources import sources_in_catalog
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import print_json, print_line, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.progress import begin_phase


def run_plan(backend: Backend, request: PlanRequest, as_json: bool) -> RunResult:
    """Decide on the segments that are present, record each decision, and show what it comes to.

    Raises:
        UsageError: nothing of what was asked for is in the catalog, or the policies do not fit what is.
    """
    tables = backend.catalog.tables
    known = present_topics(tables)
    sources = sources_in_catalog(request.sources, known)
    own = request.configs_of(set().union(*(known[source] for source in sources)))
    if not own:
        raise UsageError(
            f"{tables.path}: no segment of a topic that matches {request.topics.pattern}; give another --topics"
        )
    plan_id = request.context.run_id()
    begin_phase("planning")
    segments = PresentSegments(tables, tables.version(SEGMENTS), sources, list(own))
    configured = _configured(request, segments)
    described = [policy.name for policy in request.policies if policy.described]
    configs = configured.complete(own, deletes=not request.options.what_if, described=described)
    staged, compacted = _staged(backend, request, segments, configs, plan_id)
    if request.delete_records_json is not None:
        _ensure_recent(request, staged, own, configs, configured)
    found = report(staged, configs, compacted, what_if=request.options.what_if)
    missing = Missing.of(tables, sources, request.topics, configured.known)
    begin_phase("recording in the catalog")
    of_plan = {
        "plan_id": plan_id,
        "planned_at": request.context.now,
        "policy_file": None if request.policy_file is None else str(request.policy_file),
        "what_if": request.options.what_if,
    }
    tables.append(RETENTION_PLANS, RowsOfPlan(staged, of_plan))
    if request.delete_records_json is not None:
        write_delete_records(staged, request.delete_records_json)
    doubts = [] if request.options.what_if else configured.doubts(own, described)
    if as_json:
        of_metadata = {
            "cluster_metadata": configured.as_json(own),
            "other_log_dirs": list(configured.other_log_dirs),
            "doubts": doubts,
        }
        of_plan = {**_as_json(plan_id, request, found), **of_metadata, **missing.as_json()}
        print_json({**of_plan, "segments": segments_as_json(staged)})
    else:
        print_report(plan_id, found, what_if=request.options.what_if)
        for line in [*configured.lines(own), *doubts]:
            print_line(line)
        missing.show(many_sources=len(sources) > 1)
        if request.shows_segments:
            print_segments(staged)
        print_line(f"catalog: {tables.path}, table {RETENTION_PLANS.name}")
    return _result(plan_id, request, found, missing)


def _configured(request: PlanRequest, segments: PresentSegments) -> ConfiguredTopics:
    """What the clusters of the sources say of their topics.

    Raises:
        UsageError: as `ConfiguredTopics.read`.
    """
    configured = ConfiguredTopics.read(
        request.metadata,
        source_paths(segments.tables),
        segments.sources,
        lambda: segments.read(["topic_id"]),
        deletes=request.delete_records_json is not None,
        same_broker=request.same_broker,
    )
    warn_of_first(configured.known.warnings)
    return configured


def _ensure_recent(
    request: PlanRequest, staged: Staged, own: Configs, configs: Configs, configured: ConfiguredTopics
) -> None:
    """Refuse what was said of topics long before they were written to: Kafka's tool deletes by the file at once.

    Raises:
        UsageError: as `CurrentConfigs.ensure_recent`.
    """
    is_listing = any(policy.described for policy in request.policies)
    current = CurrentConfigs(
        configured=configured,
        completed=[topic for topic in own if own[topic] != configs[topic]],
        listing=request.policy_file if is_listing else None,
    )
    current.ensure_recent(partitions_to_delete_from(staged), request.max_metadata_lag)


def _staged(
    backend: Backend, request: PlanRequest, segments: PresentSegments, configs: Configs, plan_id: str
) -> tuple[Staged, Mapping[str, str]]:
    """Rows of `PLANNED`, of all segments or of none; and the topics that look compacted, each with why.

    Raises:
        Interrupted: some may be missing.
    """
    rows = segments.read(FACTS_OF_OFFSETS)
    if request.delete_records_json is not None:
        ensure_no_copies(rows)
    if request.policy_file is not None and any(policy.described for policy in request.policies):
        ensure_one_cluster(segments.read(["topic_id"]), request.policy_file)
    engine = backend.engine
    compacted = topics_that_look_compacted(rows, what_if=request.options.what_if)
    shares = partitions_to_plan(segments, rows, engine, configs, compacted)
    units = [[share] for share in shares]
    # A cluster may have files at hand that the driver has not, and a time index is opened for each segment.
    is_little = engine.is_on_this_machine and not request.options.from_files
    work = Work(
        f"plan-{plan_id}",
        units,
        partial(plan_partitions, options=request.options),
        PLANNED,
        bytes=sum(share.bytes for [share] in units) if is_little else None,
    )
    if not work.is_small:
        engine.start()
        begin_phase("planning")
    with engine.stopping():
        staged = engine.run(work)
        interrupts.raise_if_requested()
    return staged, compacted


def _as_json(plan_id: str, request: PlanRequest, found: RetentionReport) -> dict[str, Any]:
    return {
        "plan_id": plan_id,
        "planned_at": request.context.now.isoformat(),
        "what_if": request.options.what_if,
        "policies": [policy.name for policy in request.policies],
        "topics": [asdict(topic) for topic in found.topics],
        "unknown_policies": found.unknown,
        "assumed_defaults": found.assumed,
        "compacted_topics": list(found.compacted),
        "warnings": [finding.as_json() for finding in found.findings],
        "not_well_count": found.problems[0],
        "not_well": found.problems[1],
        "disagreement_count": found.disagreements[0],
        "disagreements": found.disagreements[1],
    }


def _result(plan_id: str, request: PlanRequest, found: RetentionReport, missing: Missing) -> RunResult:
    problems, disagreements = found.problems[0], found.disagreements[0]
    not_answered = request.names_topics and found.unknown
    return RunResult(
        code=ExitCode.PROBLEMS_FOUND if problems or disagreements or not_answered or missing.is_loss else ExitCode.OK,
        run_id=plan_id,
        counts={
            "segments": sum(topic.segments for topic in found.topics),
            "deleted": sum(topic.deleted for topic in found.topics),
            "undecided": sum(topic.undecided for topic in found.topics),
            "not_well": problems,
            "disagreements": disagreements,
            **missing.counts,
        },
        bytes=sum(topic.freed for topic in found.topics),
    )
