"""What a build would read, and how long that would take."""

from __future__ import annotations

from rich.filesize import decimal

from kidxlib.build.plan import Plan
from kidxlib.build.skipped import unlistable_as_json
from kidxlib.catalog.tables import LAYOUT_VERSION
from kidxlib.operations.backend import Backend
from kidxlib.operations.build.planning.comparison import find_changes
from kidxlib.operations.build.planning.cost import cost_of
from kidxlib.operations.build.planning.recorded import ensure_as_recorded
from kidxlib.operations.build.repair import repairs_of_last_audits
from kidxlib.operations.build.report import catalog_damage, exit_code, listed_log_dirs, lost_counts
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.damage.known_damage import KnownDamage
from kidxlib.operations.damage.lost import Lost
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import print_json, print_line, rate
from kidxlib.text.counted import counted


def run_dry(request: BuildRequest, plan: Plan, backend: Backend, as_json: bool) -> RunResult:
    """Compare, and print what a build would do."""
    catalog, of_log_dirs = backend.catalog, listed_log_dirs(request, plan)
    ensure_as_recorded(request, catalog)
    if request.repair:
        plan = repairs_of_last_audits(catalog, plan, request.sources)
    current = (catalog.oldest_version() or 0) >= LAYOUT_VERSION
    changes = find_changes(request, plan, catalog if current else None, backend.engine)
    last_rate = catalog.last_rate() if current else None
    is_known = current or catalog.has_segments()  # of an older release, damage is known all the same
    if is_known:
        damage = catalog_damage(request, catalog, plan, of_log_dirs, changes)
    else:
        damage = KnownDamage(lost=Lost(of_log_dirs.partitions))
    log_bytes, to_read = changes.bytes_to_read, changes.to_read.num_rows
    seconds = log_bytes / last_rate if last_rate else None
    cost = cost_of(plan, changes, request.context.asked(backend.engine.requests()))
    counts = {"segments": to_read, "unchanged": changes.unchanged, "gone": changes.gone.num_rows}
    result = RunResult(
        code=exit_code(plan, damage, changes),
        counts={**counts, **lost_counts(changes), "unlistable": len(plan.unlistable), **damage.counts},
        bytes=log_bytes,
        catalog_segments=damage.figures if is_known else None,
    )
    if as_json:
        shown = {
            "to_read": to_read,
            "to_read_bytes": log_bytes,
            "unchanged": changes.unchanged,
            "unchanged_bytes": changes.unchanged_bytes,
            "gone": changes.gone.num_rows,
            **lost_counts(changes),
            **unlistable_as_json(plan.unlistable.values()),
            "estimated_seconds": seconds,
            "cost": cost.as_json(),
            "damage": damage.as_json(),
        }
        print_json(shown)
        return result
    print_line(f"would read {counted(to_read, 'segment')}, {decimal(log_bytes)}")
    print_line(f"unchanged: {counted(changes.unchanged, 'segment')}, {decimal(changes.unchanged_bytes)}")
    print_line(f"missing:   {counted(changes.gone.num_rows, 'segment')} of the catalog")
    damage.show(many_sources=len(request.sources) > 1)
    if cost:
        print_line(f"requests:  {cost}")
    if not to_read:
        return result
    if seconds is None:
        print_line("estimate:  none, as no build of this catalog has read anything yet")
    else:
        print_line(f"estimate:  {seconds:.0f} s at the last build's {rate(log_bytes, seconds)}")
    return result
