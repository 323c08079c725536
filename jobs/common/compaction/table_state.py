"""What a table is made of, and what a query for one row costs in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.spark.schema import spark_type
from kidxlib.catalog.rows import Table

#: So many rows stand for all that a point query may ask for.
_QUERIES: Final = 100


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table is made of.

    Attributes:
        files, bytes: of its current version.
        point_query_rows: rows in the files that a query for one row has to read, by the statistics that Delta keeps of
            each file, on average; None where the table is not sorted for queries, or has no row.
    """

    files: int
    bytes: int
    point_query_rows: int | None


def table_state(catalog: Catalog, table: Table) -> TableState:
    """What the current version of a table is made of."""
    files = _files(catalog, table).collect()
    return TableState(
        files=len(files),
        bytes=sum(file["size"] for file in files),
        point_query_rows=_point_query_rows(catalog, table, [file["stats"] for file in files]),
    )


def _files(catalog: Catalog, table: Table) -> DataFrame:
    """The files of a table's current version: `size`, and `stats` with the least and greatest value of columns."""
    snapshot = DeltaTable.forPath(catalog.spark, catalog.table_path(table))._jdt.deltaLog().unsafeVolatileSnapshot()
    files = DataFrame(snapshot.allFiles().toDF(), catalog.spark)
    fields = ", ".join(
        f"{column.name}: {spark_type(column).simpleString()}" for column in table.columns if column.name in table.key
    )
    schema = f"numRecords bigint, minValues struct<{fields}>, maxValues struct<{fields}>"
    return files.select("size", F.from_json("stats", schema).alias("stats"))


def _point_query_rows(catalog: Catalog, table: Table, files: list[Any]) -> int | None:
    if not table.sort_by:
        return None
    rows = catalog.read(table).select(*table.key).orderBy(F.xxhash64(*table.key)).limit(_QUERIES).collect()
    if not rows:
        return None

    def may_hold(stats: Any, row: Any) -> bool:
        return stats["minValues"] is None or all(
            _within(stats["minValues"][name], row[name], stats["maxValues"][name]) for name in table.key
        )

    read: int = sum(stats["numRecords"] for row in rows for stats in files if may_hold(stats, row))
    return round(read / len(rows))


def _within(least: Any, value: Any, most: Any) -> bool:
    """Whether a file may hold a value; Delta truncates long strings, and pads the greatest."""
    return least is None or most is None or least <= value <= most
