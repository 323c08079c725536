"""Rows of the catalog's tables, made up for tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.rows import Table
from kidxlib.tables.delta_tables import DeltaTables

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def filled(schema: pa.Schema | pa.StructType, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with some values; others are null, or of no interest."""
    found: dict[str, Any] = {}
    for field in schema:
        if field.nullable:
            found[field.name] = None
        elif pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            found[field.name] = 0
        elif pa.types.is_timestamp(field.type):
            found[field.name] = _EPOCH
        elif pa.types.is_map(field.type):
            found[field.name] = {}
        elif pa.types.is_list(field.type):
            found[field.name] = []
        elif pa.types.is_binary(field.type):
            found[field.name] = b"-"
        else:
            found[field.name] = False if pa.types.is_boolean(field.type) else "-"
    return {**found, **values}


def append_rows(catalog: Path, table: Table, *rows: Mapping[str, Any]) -> None:
    """Add rows to a table, which is made where there is none."""
    whole = [filled(table.schema(), row) for row in rows]
    DeltaTables(str(catalog)).append(table, pa.Table.from_pylist(whole, table.schema()))
