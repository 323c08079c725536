"""Rows of the catalog's tables: made up for tests, kept from earlier releases, or read to compare whole catalogs."""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.partitions import ABORTED_TRANSACTIONS, PARTITION_STATES, PARTITIONS, PRODUCER_EVENTS
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.tables.delta_tables import DeltaTables

_KEPT: Final = Path(__file__).parents[1] / "catalogs"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def filled(schema: pa.Schema | pa.StructType, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with some values; the others are null, or zero or empty where null is not allowed."""
    return {**{field.name: None if field.nullable else _empty(field.type) for field in schema}, **values}


def _empty(kind: pa.DataType) -> Any:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return 0
    if pa.types.is_timestamp(kind):
        return _EPOCH
    if pa.types.is_map(kind):
        return {}
    if pa.types.is_list(kind):
        return []
    if pa.types.is_binary(kind):
        return b"-"
    return False if pa.types.is_boolean(kind) else "-"


def filled_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table with some values, as `filled`; what is no column is left out."""
    return pa.Table.from_pylist([filled(table.schema(), row) for row in rows], table.schema())


def append_rows(catalog: Path, table: Table, *rows: Mapping[str, Any]) -> None:
    """Add rows to a table, which is made if it is missing."""
    DeltaTables(str(catalog)).append(table, filled_rows(table, rows))


def kept_catalog(version: int, directory: Path) -> Path:
    """A catalog that an earlier release has made, in a directory."""
    with tarfile.open(_KEPT / f"version-{version}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "catalog"


def rows_of_catalog(catalog: Path, left_out: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows that a build has recorded, by table, sorted by key, without columns that differ in each run."""
    tables = DeltaTables(str(catalog))
    by_table = {}
    for table in (SEGMENTS, PARTITIONS, PARTITION_STATES, ABORTED_TRANSACTIONS, PRODUCER_EVENTS):
        rows = tables.read(table, [name for name in table.column_names if name not in left_out])
        order = [name for name in table.key if name not in left_out]
        by_table[table.name] = rows.sort_by([(name, "ascending") for name in order]).to_pylist()
    return by_table
