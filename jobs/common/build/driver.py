"""A build from the listing to the catalog's last commit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession
from rich.filesize import decimal

from jobs.common.build.comparison import find_changes, open_catalog
from jobs.common.build.dry_run import run_dry
from jobs.common.build.finish import finish_partitions
from jobs.common.build.leftovers import removing_held_indexes, sweep_leftovers
from jobs.common.build.record import request_columns, scan_columns
from jobs.common.build.repair import repairs_of_last_audits
from jobs.common.build.report import build_as_json, catalog_damage, exit_code, lost_counts, print_report
from jobs.common.build.request import BuildRequest
from jobs.common.build.waves import Scanned, scan_in_waves
from jobs.common.build.workers import workers_beginning
from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.create import catalog_version, make_tables
from jobs.common.catalog.partition_rows import record_partitions
from jobs.common.damage.known import KnownDamage
from jobs.common.spark.masters import is_local
from jobs.common.spark.session import session
from jobs.common.spark.stop_file import StopFile, stop_file
from kidxlib.build.changes import Changes
from kidxlib.build.discover import find_segments
from kidxlib.build.plan import Plan, log_dirs_to_lock
from kidxlib.catalog.builds import BuildRow
from kidxlib.errors import UsageError
from kidxlib.run.result import RunResult
from kidxlib.storage.lock import locked
from kidxlib.terminal.console import note, print_json, print_line, warn
from kidxlib.terminal.options.directories import ensure_no_overlap
from kidxlib.terminal.progress import begin_phase


def run_build(request: BuildRequest, *, dry_run: bool, as_json: bool) -> RunResult:
    """List the sources, and read what is new or has changed; in a dry run only say what that would be."""
    begin_phase("listing")
    plan = find_segments(request.sources, request.topics, request.target, request.recover_options)
    for warning in plan.warnings:
        warn(warning)
    return (run_dry if dry_run else _build)(request, plan, as_json)


def _build(request: BuildRequest, plan: Plan, as_json: bool) -> RunResult:
    start = time.monotonic()
    build_id = request.context.run_id()
    note(f"{plan.segments.num_rows:,} segments, {decimal(plan.log_bytes)}, in {len(plan.partitions):,} partitions")
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(_session_alone(request, plan))
        catalog = open_catalog(request, spark)
        ensure_no_overlap(request.target.index_dir, catalog.path, request.sources)
        found = catalog_version(catalog)
        with workers_beginning(spark, found is None):
            is_new = make_tables(catalog, request.context.database, found)
        if request.repair:
            plan = repairs_of_last_audits(catalog, plan, request.sources)
        begin_phase("comparing with the catalog")
        sweep_leftovers(request, plan, catalog)
        changes = find_changes(request, plan, None if is_new else catalog)
        with workers_beginning(spark, found is not None and changes.to_read.num_rows > 0):
            marked = catalog.mark(changes, build_id)
        stop = stack.enter_context(stop_file(spark, catalog.staging_path))
        stack.enter_context(removing_held_indexes(request, plan))
        scanned = scan_in_waves(request, plan, changes.to_read, catalog, build_id, stop)
        finished_rows, notes, damage = _finish(request, plan, changes, catalog, build_id, scanned, stop)
        counts = {
            "partitions": len(plan.partitions),
            "segments": scanned.counts.segments,
            "unchanged": changes.unchanged,
            "gone": changes.gone.num_rows,
            "rows_changed": marked + scanned.rows_changed + finished_rows,
        }
        row = BuildRow.of(
            {
                "build_id": build_id,
                "started_at": request.context.now,
                "seconds": round(time.monotonic() - start, 3),
                **counts,
                **request_columns(request, spark.version),
                **scan_columns(scanned),
                "left_alone": {reason.value: count for reason, count in sorted(plan.skipped.counts.items())},
                "finished": len(changes.to_finish),
            }
        )
        begin_phase("recording the build")
        catalog.append_build(row)
    if as_json:
        of_catalog = {"catalog": catalog.path, "new_catalog": is_new}
        print_json({**build_as_json(request, row, scanned, notes, damage, changes), **of_catalog})
    else:
        print_report(request, catalog, row, scanned, notes, damage)
        if is_new:
            print_line(f"new catalog made at {catalog.path}")
    return RunResult(
        code=exit_code(plan, damage, changes),
        run_id=build_id,
        counts={**counts, **lost_counts(changes), "not_well": scanned.counts.problem_count, **damage.counts},
        bytes=scanned.counts.log_bytes,
        catalog_segments=damage.figures,
    )


@contextlib.contextmanager
def _session_alone(request: BuildRequest, plan: Plan) -> Iterator[SparkSession]:
    """A session; in place, under the log dirs' locks.

    Raises:
        UsageError: in place, and executors would be elsewhere.
    """
    with contextlib.ExitStack() as stack:
        if request.in_place:
            for log_dir in log_dirs_to_lock(plan):
                stack.enter_context(locked(log_dir))
        spark = stack.enter_context(session("build_index", request.context.event_log_dir))
        if request.in_place and not is_local(spark):
            raise UsageError("--in-place: only with a local master, so that the log dir's lock covers every writer")
        yield spark


def _finish(
    request: BuildRequest,
    plan: Plan,
    changes: Changes,
    catalog: Catalog,
    build_id: str,
    scanned: Scanned,
    stop: StopFile,
) -> tuple[int, list[str], KnownDamage]:
    """Finish the partitions, and record how they were listed.

    Returns:
        How many rows of `segments` that changed, what a person should know, and the damage that is known now.
    """
    begin_phase("finishing partitions")
    # Both need the segments and not each other, and both are mostly waiting.
    with ThreadPoolExecutor(2) as beside:
        recorded = beside.submit(record_partitions, catalog, plan, build_id, all_topics=request.all_topics)
        rows = finish_partitions(request, plan, changes, catalog, build_id, scanned.counts, stop)
        known = beside.submit(catalog_damage, request, catalog)
        return rows, recorded.result(), known.result()
