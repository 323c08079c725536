"""What a build comes to: the damage that is known, the exit code, and what is shown."""

from __future__ import annotations

from typing import Any, Final

from kidxlib.build.changes import Changes
from kidxlib.build.plan import Plan
from kidxlib.catalog.builds import BuildRow
from kidxlib.catalog.segments import FillableFacts
from kidxlib.format.not_segments import NotASegment
from kidxlib.operations.build.request import BuildRequest
from kidxlib.operations.build.waves import Scanned
from kidxlib.operations.catalog import TablesCatalog
from kidxlib.operations.known_damage import KnownDamage
from kidxlib.terminal.build import print_counts, print_rate, print_skipped
from kidxlib.terminal.console import print_line, warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options.sources import as_line


def catalog_damage(request: BuildRequest, catalog: TablesCatalog, changes: Changes | None = None) -> KnownDamage:
    """How the catalog's segments stand.

    Args:
        changes: what a listing found that is not recorded; None where all is.
    """
    sources = [source.name for source in request.sources]
    return catalog.damage(sources, request.topics, None if changes is None else changes.gone)


def lost_counts(changes: Changes) -> dict[str, int]:
    return {"partitions_gone": len(changes.emptied), "partitions_cut_off": len(changes.missing_at_end)}


def unknown_facts(scanned: Scanned, changes: Changes) -> dict[str, int]:
    """The facts that `--fill-facts` fills, and of how many segments that are there each is not known."""
    return {name: changes.unknown_facts.get(name, 0) + scanned.counts.unknown_facts[name] for name in _FILLABLE}


_FILLABLE: Final = FillableFacts.names()


def exit_code(plan: Plan, damage: KnownDamage, changes: Changes) -> ExitCode:
    """The exit code of a build, by all that is known of what was asked for, whether this run found it or an earlier
    one. Only this run knows that segments which are missing were the last of their partition.
    """
    missing = [(name, path) for name, path in plan.empty.items() if damage.present(name)]
    for name, path in missing:
        warn(
            f"{path}: no segment found, but the catalog has {damage.present(name):,} of source {name}, which stay "
            "there: is it mounted? If they will not come back, kidx forget-source removes them"
        )
    unlistable = plan.skipped.counts[NotASegment.UNLISTABLE_DIRECTORY]
    return ExitCode.PROBLEMS_FOUND if damage.damaged or unlistable or missing or changes.missing_at_end else ExitCode.OK


def build_as_json(
    request: BuildRequest,
    row: BuildRow,
    scanned: Scanned,
    notes: list[str],
    damage: KnownDamage,
    changes: Changes,
) -> dict[str, Any]:
    """A build's JSON object but for its catalog: the row of `builds`, and what that does not have."""
    shown = {**row.values(), **scanned.counts.as_json(), "started_at": request.context.now.isoformat(), "notes": notes}
    shown |= {"options": request.recorded(), **lost_counts(changes), "unknown_facts": unknown_facts(scanned, changes)}
    return {**shown, "damage": damage.as_json()}


def print_report(
    request: BuildRequest,
    catalog: TablesCatalog,
    row: BuildRow,
    scanned: Scanned,
    notes: list[str],
    damage: KnownDamage,
    changes: Changes,
) -> None:
    """Show what was made, where it is, and what to do next."""
    print_counts(f"build {row.build_id}", scanned.counts)
    if row.unchanged or row.gone:
        print_line(f"not read: {row.unchanged:,} segments are unchanged; {row.gone:,} are missing from their source")
    damage.show()
    print_skipped(row.skipped.items())
    for text in notes:
        print_line(f"note: {text}")
    if request.repair and not row.partitions:
        print_line("repair:      nothing, the last audit found nothing broken")
    else:
        print_rate(row.log_bytes, scanned.read_seconds, row.seconds)
    print_line(f"source:      {as_line(request.sources)}")
    where = "beside the segments" if request.in_place else request.target.index_dir
    print_line(f"index files: {where}")
    if unknown := [f"{name} of {count:,}" for name, count in unknown_facts(scanned, changes).items() if count]:
        print_line(f"not known:   {', '.join(unknown)} segments; --fill-facts SIZE reads their logs for it")
    print_line(f"catalog:     {catalog.path} ({row.rows_changed:,} rows of segments added or changed)")
    print_line("next:        ask the catalog; docs/catalog.md has questions with their SQL")
