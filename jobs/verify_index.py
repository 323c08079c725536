"""Audit side files: is each index right, what would a broker do with it, and what happens if it is wrong."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import click
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from rich.filesize import decimal

from jobs.common import shared_options
from jobs.common.accepted_findings import AuditedCatalog
from jobs.common.audit_on_executors import audit_partitions, audit_segments
from jobs.common.audit_plan import as_cataloged, looked_in
from jobs.common.audit_report import all_rows, summarise
from jobs.common.audit_request import AuditRequest, audit_request
from jobs.common.catalog import Catalog
from jobs.common.distribute import Counters, refuse_unseen_logs
from jobs.common.observed import Ended, observed
from jobs.common.open_catalog import existing_catalog
from jobs.common.session import session
from jobs.common.sources import as_line
from jobs.common.tables import FINDINGS
from kidxlib.audit import Verdict
from kidxlib.cli.audit_options import AuditOptions, audit_options
from kidxlib.cli.whole_number import WholeNumber
from kidxlib.command import ExitCode, run
from kidxlib.console import note, print_line, warn
from kidxlib.pack import pack
from kidxlib.plan import Plan, find_segments
from kidxlib.progress import begin_phase
from kidxlib.show_audit import AuditSummary, Kind, show_json, show_summary
from kidxlib.verify import partition_audits

#: Computes a DataFrame once, under a name of its own.
_Materialise: TypeAlias = Callable[[DataFrame, str], DataFrame]

_COMPARING: Final = "comparing partitions"


@click.command(context_settings={"max_content_width": 110})
@shared_options.sources
@shared_options.sample
@click.option(
    "--index-dir",
    metavar="DIR",
    help="The mirror tree with the index files. [default: where the catalog says, without one beside the logs]",
)
@click.option("--catalog", metavar="DIR", help="Record what is found in this catalog, and take intervals from it.")
@shared_options.database
@shared_options.topics_to_read
@click.option(
    "--interval-bytes",
    type=WholeNumber(0, 2**31 - 1),
    help="Kafka's index.interval.bytes. [default: the catalog's of each segment, else settings: build.interval_bytes]",
)
@audit_options
@shared_options.settings_file
@shared_options.time_to_record
@shared_options.as_json
@observed
def verify_index(
    as_json: bool,
    deep_iteration: bool,
    fail_on: str,
    gate: str | None,
    shutdown: str | None,
    start_rate: int,
    **options: Any,
) -> Ended:
    """Check each log, and each index file against what Kafka's recovery would write; say what a wrong one leads to, and
    what a broker would do at its next start. Nothing is written beside the source.

    Exit codes: 0 all well; 2 wrong options or inputs, nothing done; 3 some files are as --fail-on says, a broker would
    lose more at its next start than a torn end, or segments do not pass --gate; 1 failed.
    """
    request = audit_request(**options)
    asked = AuditOptions.of(
        deep_iteration=deep_iteration, fail_on=fail_on, gate=gate, shutdown=shutdown, start_rate=start_rate
    )
    begin_phase("listing")
    plan = find_segments(request.sources, request.topics, request.target, request.recover_options)
    for warning in plan.warnings:
        warn(warning)
    note(f"{len(plan.tasks):,} segments, {decimal(plan.log_bytes)}, in {len(plan.partitions):,} partitions")
    return _audit(request, asked, plan, as_json)


def _audit(request: AuditRequest, asked: AuditOptions, plan: Plan, as_json: bool) -> Ended:
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(session("verify_index", request.where.event_log_dir, changes=request.has_catalog))
        catalog = None
        if request.has_catalog:
            where = request.where
            catalog = existing_catalog(spark, where.catalog, where.database, bring_up_to_date=True)
            plan = _as_cataloged(request, plan, catalog)
        audits, notes = partition_audits(
            plan,
            request.recover_options,
            clean_shutdown=asked.clean_shutdown,
            tiering=asked.tiering,
            topics=request.topics,
        )
        for text in notes:
            warn(text)
        materialise = stack.enter_context(_materialising(catalog, request.audit_id))
        tasks = plan.tasks
        counters = Counters(spark)
        bins = pack(tasks, spark.sparkContext.defaultParallelism)
        begin_phase("reading", done=counters.done, segments=len(tasks), log_bytes=plan.log_bytes, after=_COMPARING)
        segments = materialise(
            audit_segments(spark, bins, request.sources, audits, counters, deep=asked.deep), "segments"
        )
        begin_phase(_COMPARING)
        refuse_unseen_logs(segments.where("segment IS NOT NULL").select("segment.*"))
        found = materialise(audit_partitions(segments, audits), "found")
        if catalog is not None:
            begin_phase("recording in the catalog")
            findings = found.where(f"{Kind.FILE} IS NOT NULL").select(f"{Kind.FILE}.*")
            catalog.record_audit(findings, request.audit_id, request.where.now)
        begin_phase("counting")
        summary = summarise(found, tiering=asked.tiering)
        summary.many_sources = len(request.sources) > 1
        known = AuditedCatalog()
        if catalog is not None:
            known = AuditedCatalog.of(catalog, found, [source.name for source in request.sources], request.topics)
        accepted = known.accepted
        if as_json:
            more = {"audit_id": request.audit_id, "catalog": catalog and catalog.path, "accepted": accepted.count}
            show_json(all_rows(found), summary, asked.start_rate, **more)
        else:
            show_summary(f"audit {request.audit_id}", summary, asked.start_rate, looked_in(plan.partitions))
            accepted.show()
            print_line(f"source:  {as_line(request.sources)}")
            if catalog is not None:
                print_line(f"catalog: {catalog.path}, table {FINDINGS.name}")
    counts = {"partitions": len(plan.partitions), "segments": len(plan.tasks), "not_ready": summary.not_ready_count}
    counts["segments_lost"] = summary.lost_count
    for verdict in Verdict:
        counts[verdict.value] = sum(count for (_, each), count in summary.files.items() if each == verdict)
        if verdict is not Verdict.IDENTICAL:
            counts[f"logs_{verdict}"] = summary.logs(verdict)
    counts["accepted"] = accepted.count
    return Ended(
        code=_exit_code(plan, accepted.taken_from(summary), asked.fail_on),
        run_id=request.audit_id,
        counts=counts,
        bytes=plan.log_bytes,
        catalog_segments=known.segments,
        catalog_files=known.files,
    )


def _exit_code(plan: Plan, summary: AuditSummary, fail_on: Verdict) -> ExitCode:
    """Where nothing could be looked at, nothing is well."""
    return ExitCode.NOT_WELL if plan.unlistable or plan.empty else summary.exit_code(fail_on)


@contextlib.contextmanager
def _materialising(catalog: Catalog | None, audit_id: str) -> Iterator[_Materialise]:
    """What computes DataFrames once: on the executors' disks, or where the catalog stages results, so that a commit
    which is tried again reads no log again.
    """
    with contextlib.ExitStack() as stack:

        def materialise(rows: DataFrame, name: str) -> DataFrame:
            if catalog is not None:
                # A killed run may have left a folder that its audit's id and this name call for.
                attempt = uuid.uuid4().hex[:8]
                return stack.enter_context(catalog.staging(f"{audit_id}-{name}-{attempt}"))(rows)
            kept = rows.persist(StorageLevel.DISK_ONLY)
            kept.count()
            return kept

        yield materialise


def _as_cataloged(request: AuditRequest, plan: Plan, catalog: Catalog) -> Plan:
    """The plan, with what the catalog says and no option does."""
    known = catalog.known_segments([source.name for source in request.sources], request.topics)
    return as_cataloged(
        plan, known, find_indexes=request.target.index_dir is None, find_interval=request.interval_bytes is None
    )


if __name__ == "__main__":
    run(verify_index, "./spark-submit.sh verify_index")
