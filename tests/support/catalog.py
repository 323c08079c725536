"""Rows of the catalog's tables, made up for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.tables.delta_tables import DeltaTables

_NUMBERS: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp)


def filled(schema: pa.Schema | pa.StructType, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with some values; others are null, or of no interest."""
    found: dict[str, Any] = {}
    for field in schema:
        if field.nullable:
            found[field.name] = None
        elif any(is_number(field.type) for is_number in _NUMBERS):
            found[field.name] = 0
        elif pa.types.is_map(field.type):
            found[field.name] = {}
        else:
            found[field.name] = False if pa.types.is_boolean(field.type) else "-"
    return {**found, **values}


def append_rows(catalog: Path, table: Table, *rows: Mapping[str, Any]) -> None:
    """Add rows to a table, which is made where there is none."""
    whole = [filled(table.schema(), row) for row in rows]
    DeltaTables(str(catalog)).append(table, pa.Table.from_pylist(whole, table.schema()))
