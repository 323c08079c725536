"""Rows of the catalog's tables: made up for tests, and those of whole catalogs to compare."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
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


def rows_of_catalog(catalog: Path, left_out: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """What a build has found: the rows of each such table, by key.

    Args:
        left_out: columns that are others in each run.
    """
    tables = DeltaTables(str(catalog))
    found = {}
    for table in (SEGMENTS, PARTITIONS, PARTITION_STATES, ABORTED_TRANSACTIONS, PRODUCER_EVENTS):
        rows = tables.read(table, [name for name in table.column_names if name not in left_out])
        order = [name for name in table.key if name not in left_out]
        found[table.name] = rows.sort_by([(name, "ascending") for name in order]).to_pylist()
    return found
