"""What is shown of the catalog's tables: a table on screen, or a JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from kidxlib.operations.maintenance.maintain import MaintainedTable
from kidxlib.terminal.tables import print_table

_COLUMNS: Final = (
    *("table", "files before", "files after", "bytes before", "bytes after"),
    *("rows for a point query before", "rows for a point query after", "rows expired", "files to vacuum"),
)


def print_tables(tables: Sequence[MaintainedTable], *, applied: bool) -> None:
    """Show a row per table."""
    print_table(
        "tables" if applied else "tables; nothing was written: --apply does it",
        _COLUMNS,
        [
            (
                table.table,
                table.before.files,
                _after(table, "files"),
                table.before.bytes,
                _after(table, "bytes"),
                "-" if table.before.point_query_rows is None else table.before.point_query_rows,
                _after(table, "point_query_rows"),
                table.expired_rows,
                table.vacuumed_files,
            )
            for table in tables
        ],
        text_columns=1,
    )


def tables_as_json(tables: Sequence[MaintainedTable]) -> list[dict[str, Any]]:
    """A value of the JSON object's key `tables`."""
    return [asdict(table) for table in tables]


def _after(table: MaintainedTable, name: str) -> int | str:
    value = None if table.after is None else getattr(table.after, name)
    return "-" if value is None else int(value)
