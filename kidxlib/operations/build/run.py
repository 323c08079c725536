"""A build from the listing to the catalog's last commit."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan
from kidxlib.catalog.builds import BuildRow
from kidxlib.operations.backend import Backend, OpenBackend
from kidxlib.operations.build.dry_run import run_dry
from kidxlib.operations.build.finishing.finish import finish_changed
from kidxlib.operations.build.held_log_dirs import ensure_locks_cover_workers, hold_log_dirs
from kidxlib.operations.build.leftovers import removing_held_indexes, sweep_leftovers
from kidxlib.operations.build.partition_rows import record_partitions
from kidxlib.operations.build.planning.comparison import find_changes
from kidxlib.operations.build.planning.listed_plan import listed_plan
from kidxlib.operations.build.record import request_columns, scan_columns
from kidxlib.operations.build.repair import repairs_of_last_audits
from kidxlib.operations.build.report import build_as_json, catalog_damage, exit_code, lost_counts, print_report
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.build.waves import Scanned, is_one_wave, scan_in_waves
from kidxlib.operations.known_damage import KnownDamage
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line
from kidxlib.terminal.options.directories import ensure_no_overlap
from kidxlib.terminal.progress import begin_phase


def run_build(request: BuildRequest, open_backend: OpenBackend, *, dry_run: bool, as_json: bool) -> RunResult:
    """List the sources, and read what is new or has changed; in a dry run only say what that would be.

    Args:
        open_backend: called once the log dirs' locks are held.
    """
    plan = listed_plan(request)
    if dry_run:
        with open_backend() as backend:
            return run_dry(request, plan, backend, as_json)
    return _build(request, plan, open_backend, as_json)


def _build(request: BuildRequest, plan: Plan, open_backend: OpenBackend, as_json: bool) -> RunResult:
    start = time.monotonic()
    build_id = request.context.run_id()
    with contextlib.ExitStack() as stack:
        hold_log_dirs(request, plan, stack)
        backend = stack.enter_context(open_backend())
        catalog = backend.catalog
        ensure_no_overlap(request.target.index_dir, catalog.path, request.sources)
        is_new = not catalog.has_segments()
        if request.repair:
            plan = repairs_of_last_audits(catalog, plan, request.sources)
        begin_phase("comparing with the catalog")
        sweep_leftovers(request, plan, backend)
        changes = find_changes(request, plan, None if is_new else catalog, backend.engine)
        ensure_locks_cover_workers(request, changes, backend)
        catalog.make_tables()
        stack.enter_context(removing_held_indexes(request, plan))
        # Of several waves each is recorded before the next is read.
        is_one = is_one_wave(request, changes.to_read, backend.engine)
        with catalog.one_commit() if is_one else contextlib.nullcontext():
            marked = catalog.mark(changes, build_id)
            scanned = scan_in_waves(request, plan, changes.to_read, backend, build_id)
            finished_rows, notes, damage = _finish(request, plan, changes, backend, build_id, scanned)
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
                **request_columns(request, backend.versions),
                **scan_columns(scanned),
                "skipped": {reason.value: count for reason, count in sorted(plan.skipped.counts.items())},
                "finished": len(changes.to_finish),
            }
        )
        begin_phase("recording the build")
        catalog.append_build(row)
    if as_json:
        of_catalog = {"catalog": catalog.path, "new_catalog": is_new}
        print_json({**build_as_json(request, row, scanned, notes, damage, changes), **of_catalog})
    else:
        print_report(request, catalog, row, scanned, notes, damage, changes)
        if is_new:
            print_line(f"new catalog made at {catalog.path}")
    return RunResult(
        code=exit_code(plan, damage, changes),
        run_id=build_id,
        counts={**counts, **lost_counts(changes), "not_well": scanned.counts.problem_count, **damage.counts},
        bytes=scanned.counts.log_bytes,
        catalog_segments=damage.figures,
    )


def _finish(
    request: BuildRequest,
    plan: Plan,
    changes: Changes,
    backend: Backend,
    build_id: str,
    scanned: Scanned,
) -> tuple[int, list[str], KnownDamage]:
    """Finish the partitions, and record how they were listed.

    Returns:
        How many rows of `segments` that changed, what a person should know, and the damage that is known now.
    """
    begin_phase("finishing partitions")
    # Both need the segments and not each other, and both are mostly waiting.
    with ThreadPoolExecutor(2) as beside:
        recorded = beside.submit(record_partitions, backend.catalog, plan, build_id, all_topics=request.all_topics)
        rows = finish_changed(request, plan, changes, backend, build_id, scanned.counts)
        known = beside.submit(catalog_damage, request, backend.catalog)
        return rows, recorded.result(), known.result()
