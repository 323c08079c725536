"""An audit from the listing to what is shown of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from rich.filesize import decimal

from jobs.common.audit.accepted import AuditedCatalog
from jobs.common.audit.executors import audit_partitions, audit_segments
from jobs.common.audit.plan import as_cataloged, looked_in
from jobs.common.audit.request import AuditRequest
from jobs.common.audit.staging import Materialise, materialising
from jobs.common.audit.summary import all_rows, summarise
from jobs.common.catalog.open import existing_catalog
from jobs.common.spark.counters import Counters
from jobs.common.spark.session import session
from jobs.common.spark.source_access import ensure_logs_visible
from kidxlib.audit.finding import Verdict
from kidxlib.audit.plan import PartitionAudit, partition_audits
from kidxlib.audit.rows import Kind
from kidxlib.audit.summary import AuditSummary
from kidxlib.build.bins import pack
from kidxlib.build.discover import find_segments
from kidxlib.build.plan import Plan
from kidxlib.build.tasks import ScanTask
from kidxlib.build.vanished import NOT_ASKED, without_directory
from kidxlib.catalog.findings import FINDINGS
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.run.result import RunResult
from kidxlib.run.sources import as_line
from kidxlib.terminal.audit import exit_code as exit_code_of
from kidxlib.terminal.audit import show_json, show_summary
from kidxlib.terminal.console import note, print_line, warn, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options.audit import AuditOptions
from kidxlib.terminal.progress import begin_phase

_COMPARING: Final = "comparing partitions"


def run_audit(request: AuditRequest, asked: AuditOptions, *, as_json: bool) -> RunResult:
    plan = _listed(request)
    tasks = None
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(session("verify_index", request.context.event_log_dir, changes=request.has_catalog))
        catalog, in_catalog = None, NOT_ASKED
        if request.has_catalog:
            context = request.context
            catalog = existing_catalog(spark, context.catalog, context.database, bring_up_to_date=True)
            known = catalog.known_segments([source.name for source in request.sources], request.topics)
            plan, tasks, in_catalog = as_cataloged(
                plan, known, find_indexes=request.target.index_dir is None, find_interval=request.interval_bytes is None
            )
        audits, notes = partition_audits(
            plan,
            request.recover_options,
            clean_shutdown=asked.clean_shutdown,
            tiering=asked.tiering,
            topics=request.topics,
        )
        for text in notes:
            warn(text)
        gone = without_directory(plan, request.sources, request.topics, request.target, in_catalog)
        warn_of_first(gone.values())
        materialise = stack.enter_context(materialising(catalog, request.audit_id))
        found = _find(spark, request, asked, plan.scan_tasks() if tasks is None else tasks, audits, materialise)
        if catalog is not None:
            begin_phase("recording in the catalog")
            findings = found.where(f"{Kind.FILE} IS NOT NULL").select(f"{Kind.FILE}.*")
            catalog.record_audit(findings, request.audit_id, request.context.now)
        begin_phase("counting")
        summary = summarise(found, tiering=asked.tiering)
        summary.many_sources = len(request.sources) > 1
        of_catalog = AuditedCatalog()
        if catalog is not None:
            of_catalog = AuditedCatalog.of(catalog, found, [source.name for source in request.sources], request.topics)
        accepted = of_catalog.accepted
        if as_json:
            more = {"audit_id": request.audit_id, "catalog": catalog and catalog.path, "accepted": accepted.count}
            show_json(all_rows(found), summary, partitions_gone=len(gone), **more)
        else:
            show_summary(f"audit {request.audit_id}", summary, looked_in(plan.partitions))
            accepted.show()
            print_line(f"source:  {as_line(request.sources)}")
            if catalog is not None:
                print_line(f"catalog: {catalog.path}, table {FINDINGS.name}")
    return RunResult(
        code=exit_code(plan, accepted.taken_from(summary), asked.fail_on),
        run_id=request.audit_id,
        counts={**_counts(plan, summary, partitions_gone=len(gone)), "accepted": accepted.count},
        bytes=plan.log_bytes,
        catalog_segments=of_catalog.segments,
        catalog_files=of_catalog.files,
    )


def _listed(request: AuditRequest) -> Plan:
    begin_phase("listing")
    plan = find_segments(request.sources, request.topics, request.target, request.recover_options)
    for warning in plan.warnings:
        warn(warning)
    note(f"{plan.segments.num_rows:,} segments, {decimal(plan.log_bytes)}, in {len(plan.partitions):,} partitions")
    return plan


def _find(
    spark: SparkSession,
    request: AuditRequest,
    asked: AuditOptions,
    tasks: Sequence[ScanTask],
    audits: Mapping[PartitionKey, PartitionAudit],
    materialise: Materialise,
) -> DataFrame:
    """Rows of `FOUND`, computed: segments are read, then the partitions that they make up compared."""
    log_bytes = sum(task.log_bytes for task in tasks)
    counters = Counters(spark)
    bins = pack(tasks, spark.sparkContext.defaultParallelism)
    begin_phase("reading", done=counters.done, segments=len(tasks), log_bytes=log_bytes, after=_COMPARING)
    segments = materialise(audit_segments(spark, bins, request.sources, audits, counters, deep=asked.deep), "segments")
    begin_phase(_COMPARING)
    ensure_logs_visible(segments.where("segment IS NOT NULL").select("segment.*"))
    return materialise(audit_partitions(segments, audits), "found")


def _counts(plan: Plan, summary: AuditSummary, *, partitions_gone: int) -> dict[str, int]:
    counts = {
        "partitions": len(plan.partitions),
        "segments": plan.segments.num_rows,
        "not_ready": summary.not_ready_count,
    }
    counts |= {"segments_lost": summary.lost_count, "partitions_gone": partitions_gone}
    for verdict in Verdict:
        counts[verdict.value] = sum(count for (_, each), count in summary.files.items() if each == verdict)
        if verdict is not Verdict.IDENTICAL:
            counts[f"logs_{verdict}"] = summary.logs(verdict)
    return counts


def exit_code(plan: Plan, summary: AuditSummary, fail_on: Verdict) -> ExitCode:
    """The code that says whether there are problems. A plan without a segment is one, and what cannot be listed."""
    return ExitCode.PROBLEMS_FOUND if plan.unlistable or plan.empty else exit_code_of(summary, fail_on)
