"""A build from the listing to the catalog's last commit."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from kidxlib.build.plan import Plan
from kidxlib.catalog.builds import BUILDS, BuildRow
from kidxlib.catalog.tables import TABLES
from kidxlib.operations.backend import OpenBackend
from kidxlib.operations.build.build_run import BuildRun, Scanned
from kidxlib.operations.build.dry_run import run_dry
from kidxlib.operations.build.finishing.finish import finish_partitions_of
from kidxlib.operations.build.held_log_dirs import ensure_locks_cover_workers, hold_log_dirs
from kidxlib.operations.build.leftovers import removing_held_indexes, sweep_leftovers
from kidxlib.operations.build.partition_rows import record_partitions
from kidxlib.operations.build.planning.comparison import find_changes
from kidxlib.operations.build.planning.listed_plan import listed_plan
from kidxlib.operations.build.planning.recorded import ensure_as_recorded
from kidxlib.operations.build.recording.record import found_columns, request_columns, scan_columns
from kidxlib.operations.build.repair import repairs_of_last_audits
from kidxlib.operations.build.report import (
    Built,
    build_as_json,
    catalog_damage,
    listed_log_dirs,
    print_report,
    result_of,
)
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.build.waves import recording_phase, scan_in_waves
from kidxlib.operations.damage.known_damage import KnownDamage
from kidxlib.operations.damage.lost import OfLogDirs
from kidxlib.operations.maintenance.after_build.optimize import OptimizedTable, optimize_tables
from kidxlib.run.result import RunResult
from kidxlib.tables.maintenance import MaintenanceOf
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import print_json
from kidxlib.terminal.options.directories import ensure_no_overlap
from kidxlib.terminal.progress import begin_phase


def run_build(
    request: BuildRequest, open_backend: OpenBackend, maintenance_of: MaintenanceOf, *, dry_run: bool, as_json: bool
) -> RunResult:
    """List the sources, and read what is new or has changed; in a dry run only say what that would be.

    Args:
        open_backend: called once the log dirs' locks are held.
        maintenance_of: puts the tables in order at the end.
    """
    plan = listed_plan(request)
    if dry_run:
        with open_backend() as backend:
            return run_dry(request, plan, backend, as_json)
    built = _build(request, plan, open_backend, maintenance_of)
    if as_json:
        print_json(build_as_json(request, built))
    else:
        print_report(request, built)
    return result_of(built)


def _build(request: BuildRequest, plan: Plan, open_backend: OpenBackend, maintenance_of: MaintenanceOf) -> Built:
    start = time.monotonic()
    build_id, of_log_dirs = request.context.run_id(), listed_log_dirs(request, plan)
    with contextlib.ExitStack() as stack:
        log_dirs = stack.enter_context(contextlib.ExitStack())
        hold_log_dirs(request, plan, log_dirs)
        backend = stack.enter_context(open_backend())
        catalog = backend.catalog
        ensure_no_overlap(request.target.index_dir, catalog.path, request.sources)
        is_new = not catalog.has_segments()
        ensure_as_recorded(request, catalog)
        if request.repair:
            plan = repairs_of_last_audits(catalog, plan, request.sources)
        begin_phase("comparing with the catalog")
        changes = find_changes(request, plan, None if is_new else catalog, backend.engine)
        sweep_leftovers(request, plan, backend)
        ensure_locks_cover_workers(request, changes, backend)
        catalog.make_tables()
        log_dirs.enter_context(removing_held_indexes(request, plan))
        with catalog.holding() as commit:
            marked = catalog.mark(changes, build_id, commit)
            run = BuildRun(request, plan, backend, build_id, commit)
            scanned = scan_in_waves(run, changes)
            notes, damage = _finish(run, scanned, of_log_dirs)
            begin_phase(recording_phase(request))
        row = BuildRow.of(
            {
                "build_id": build_id,
                "seconds": round(time.monotonic() - start, 3),
                "rows_changed": marked + scanned.rows_changed,
                **request_columns(request, backend.versions),
                **found_columns(plan, changes),
                **scan_columns(scanned),
            }
        )
        begin_phase("recording the build")
        catalog.append_build(row)
        log_dirs.close()  # a broker may start
        return Built(
            plan=plan,
            changes=changes,
            scanned=scanned,
            row=row,
            notes=notes,
            damage=damage,
            requests=request.context.asked(backend.engine.requests()),
            catalog=catalog.path,
            is_new=is_new,
            optimized=_optimize(request, row, catalog.tables, maintenance_of),
        )


def _optimize(
    request: BuildRequest, row: BuildRow, tables: Tables, maintenance_of: MaintenanceOf
) -> list[OptimizedTable]:
    """Put tables in order where the settings say so. A build that has changed nothing has added to one alone."""
    if request.optimize is None:
        return []
    return optimize_tables(maintenance_of(tables), TABLES if row.rows_changed else (BUILDS,), request.optimize)


def _finish(run: BuildRun, scanned: Scanned, of_log_dirs: OfLogDirs) -> tuple[list[str], KnownDamage]:
    """Finish the partitions that are not yet, and record how they were listed.

    Args:
        of_log_dirs: what should be there.

    Returns:
        What a person should know, and the damage that is known now.
    """
    request, catalog = run.request, run.backend.catalog
    begin_phase("finishing partitions")
    # Both need the segments and not each other, and both are mostly waiting.
    with ThreadPoolExecutor(2) as beside:
        recorded = beside.submit(record_partitions, catalog, run.plan, run.build_id, all_topics=request.all_topics)
        finish_partitions_of(run, run.plan.partitions, scanned)
        known = beside.submit(catalog_damage, request, catalog, run.plan, of_log_dirs)
        return recorded.result(), known.result()
