"""Rows of a catalog whose files do not exist: what benchmarks of whole catalogs are made of."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.catalog.rows import Table, rows_of_columns
from kidxlib.catalog.tables import CATALOG_VERSION
from kidxlib.tables.delta_tables import DeltaTables

#: The generated catalogs' time, ms since the epoch.
NOW_MS: Final = 1_790_000_000_000
HOUR_MS: Final = 3_600_000
#: Columns of `segments` that all rows have alike.
OF_SEGMENTS: Final[dict[str, Any]] = {
    "interval_bytes": 4096,
    "max_index_bytes": 10_485_760,
    "interval_source": "settings",
    "crc_checked": True,
    "log_mtime_ns": NOW_MS * 1_000_000,
    "catalog_version": CATALOG_VERSION,
    "build_id": "generated",
}
#: Columns of `partitions` that all rows have alike.
OF_PARTITIONS: Final[dict[str, Any]] = {
    "first_base_offset": 0,
    "clean_shutdown": True,
    "present": True,
    "build_id": "-",
}


def joined(*parts: Values) -> Values:
    return pc.binary_join_element_wise(*parts, "")


def append(tables: DeltaTables, table: Table, columns: dict[str, Any], alike: dict[str, Any], count: int) -> None:
    schema = table.schema()
    for name, value in alike.items():
        columns[name] = pa.repeat(pa.scalar(value, schema.field(name).type), count)
    tables.append(table, rows_of_columns(columns, count, schema))
