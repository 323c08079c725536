"""What a table is made of, what a query for one row costs in it, and whether it is worth to write it anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.catalog.matching import Values
from kidxlib.catalog.rows import Table
from kidxlib.tables.layout import FILE_BYTES, counted_bytes
from kidxlib.tables.maintenance import Maintenance

#: So many rows stand for all that a point query may ask for.
_QUERIES: Final = 100
#: Files need not be as full as they may be, so that a few new ones do not have all others written anew.
_SLACK: Final = 1.5
#: A MERGE of Spark's, or of delta-rs itself, puts all files that it touches into few, in no order.
_LARGE_BYTES: Final = FILE_BYTES * 3 // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a table is made of.

    Attributes:
        files, bytes, rows: of its current version.
        point_query_rows: rows in the files that a query for one row has to read, by the statistics that Delta keeps of
            each file, on average; None where the table is not sorted for queries, or has no row.
        point_query_files: how many files these are.
        needs_rewrite: whether its files are too many, too large, or in no order. Of files that were just written anew
            that is never so.
    """

    files: int
    bytes: int
    rows: int
    point_query_rows: int | None
    point_query_files: float | None
    needs_rewrite: bool


def table_state(maintenance: Maintenance, table: Table) -> TableState:
    """What the latest version of a table is made of.

    Raises:
        CatalogError: it cannot be read.
    """
    files = maintenance.files(table)
    sizes, counts = ([int(each or 0) for each in files[name].to_pylist()] for name in ("size_bytes", "num_records"))
    read_rows, read_files = (
        _point_queries(maintenance, table, files) if table.sort_by and files.num_rows else (None, None)
    )
    counted = [counted_bytes(size, rows) for size, rows in zip(sizes, counts, strict=True)]
    enough = max(1, math.ceil(_SLACK * sum(counted) / FILE_BYTES))
    # Of files in order a query reads the one with the row; and for each column of the order the two, at most, in which
    # the rows begin and end that have the same value in it.
    is_mixed = read_files is not None and read_files > 2 * len(table.order) - 1
    return TableState(
        files=files.num_rows,
        bytes=sum(sizes),
        rows=sum(counts),
        point_query_rows=read_rows,
        point_query_files=read_files,
        needs_rewrite=files.num_rows > enough or max(counted, default=0) > _LARGE_BYTES or is_mixed,
    )


def _point_queries(maintenance: Maintenance, table: Table, files: pa.Table) -> tuple[int | None, float | None]:
    """Rows and files that some queries read, on average."""
    queries = maintenance.sample(table, _QUERIES).to_pylist()
    if not queries:
        return None, None
    read = [files.filter(_may_hold(files, table.key, query)) for query in queries]
    rows = sum(int(pc.sum(each["num_records"]).as_py() or 0) for each in read)
    return round(rows / len(queries)), round(sum(each.num_rows for each in read) / len(queries), 2)


def _may_hold(files: pa.Table, key: Sequence[str], row: dict[str, Any]) -> Values:
    """Which files may hold a row. Of long texts Delta may keep the beginning, which it then makes greater."""
    found: Values = pa.repeat(True, files.num_rows)
    for name in key:
        value = pa.scalar(row[name], files.schema.field(f"min.{name}").type)
        least, greatest = (files[f"{bound}.{name}"] for bound in ("min", "max"))
        inside: Values = pc.and_(pc.less_equal(least, value), pc.greater_equal(greatest, value))
        found = pc.and_(found, inside.fill_null(True))
    return found
