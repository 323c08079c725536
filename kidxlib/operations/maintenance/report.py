"""What is shown of the catalog's tables: a table on screen, or a JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from kidxlib.operations.maintenance.maintain import MaintainedTable
from kidxlib.terminal.tables import print_table

#: What is measured of a table before, and after where something was done: attribute and name.
_MEASURED: Final = (("files", "files"), ("bytes", "bytes"), ("point_query_rows", "rows for a point query"))
_COUNTED: Final = (("expired_rows", "rows expired"), ("vacuumed_files", "files to vacuum"))


def print_tables(tables: Sequence[MaintainedTable], *, applied: bool) -> None:
    """Show a row per table."""
    measured = [
        name for _, column in _MEASURED for name in ((f"{column} before", f"{column} after") if applied else (column,))
    ]
    print_table(
        "tables" if applied else "tables; nothing was written: --apply does it",
        ("table", *measured, *(name for _, name in _COUNTED)),
        [
            (table.table, *_measured(table, applied), *(getattr(table, name) for name, _ in _COUNTED))
            for table in tables
        ],
        text_columns=1,
    )


def _measured(table: MaintainedTable, applied: bool) -> Iterator[int | str]:
    for name, _ in _MEASURED:
        for state in (table.before, table.after) if applied else (table.before,):
            value = None if state is None else getattr(state, name)
            yield "-" if value is None else int(value)


def tables_as_json(tables: Sequence[MaintainedTable]) -> list[dict[str, Any]]:
    """A value of the JSON object's key `tables`."""
    return [asdict(table) for table in tables]
