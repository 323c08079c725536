"""Tables put in order after a build, each in one commit that gives way to others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kidxlib.catalog.rows import Table
from kidxlib.errors import CatalogError
from kidxlib.operations.maintenance.after_build.choice import OptimizeLimits, files_to_merge
from kidxlib.tables.maintenance import Maintenance
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn
from kidxlib.terminal.progress import begin_phase
from kidxlib.text.counted import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedTable:
    """A table of which files were worth to be merged.

    Attributes:
        merged_files: how many these are.
        files_before, files_after: of the whole table.
        gave_way: another run has changed it meanwhile, so it stays as that has left it.
    """

    table: str
    merged_files: int
    files_before: int
    files_after: int
    gave_way: bool


def optimize_tables(maintenance: Maintenance, tables: Iterable[Table], limits: OptimizeLimits) -> list[OptimizedTable]:
    """Merge files of tables where it pays. What goes wrong with it is a warning: all that was asked for is done."""
    optimized: list[OptimizedTable] = []
    with interrupts.telling(lambda: "the build is done and recorded; tables that were not put in order are as before"):
        for table in tables:
            try:
                optimized += _optimized(maintenance, table, limits)
            except CatalogError as error:
                warn(f"{error}; the build is recorded")
    return optimized


def _optimized(maintenance: Maintenance, table: Table, limits: OptimizeLimits) -> list[OptimizedTable]:
    files = maintenance.files(table)
    merged = files_to_merge(table, files, limits)
    if not merged:
        return []
    begin_phase("putting tables in order")
    is_done = maintenance.compact(table, merged)
    return [
        OptimizedTable(
            table=table.name,
            merged_files=len(merged),
            files_before=files.num_rows,
            files_after=maintenance.files(table).num_rows if is_done else files.num_rows,
            gave_way=not is_done,
        )
    ]


def optimized_as_json(optimized: Sequence[OptimizedTable]) -> list[dict[str, Any]]:
    """A value of the JSON object's key `optimized`."""
    return [asdict(table) for table in optimized]


def optimized_as_line(optimized: Sequence[OptimizedTable]) -> str:
    """What the summary says of it; empty where there was nothing to do."""
    return "; ".join(map(_said, optimized))


def _said(table: OptimizedTable) -> str:
    if table.gave_way:
        return f"{table.table} left for a later build, as another run has changed it"
    return f"{table.table} put in order: {counted(table.files_after, 'file')}, where there were {table.files_before:,}"
