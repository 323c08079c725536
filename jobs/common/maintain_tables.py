"""The catalog's tables made smaller and faster: old rows go, small files become one, files that no version needs go."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog import Catalog
from jobs.common.commits import while_others_commit
from jobs.common.tables import (
    ABORTED_TRANSACTIONS,
    BUILDS,
    PARTITIONS,
    PRODUCER_EVENTS,
    SEGMENTS,
    TABLES,
    Table,
)
from kidxlib.compaction_policy import Expiry
from kidxlib.recover import ABSENT

#: So many rows stand for all that a point query may ask for.
_QUERIES: Final = 100
#: Tables that nothing is derived from, and the column that says when a row was made. Their names are those in `Expiry`.
_RECORDED_AT: Final = {"retention_plans": "planned_at", "findings": "audited_at"}


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table is made of.

    Attributes:
        files, bytes: of its current version.
        point_query_rows: rows in the files that a query for one row has to read, by the statistics that Delta keeps of
            each file, on average; None where the table is not clustered, or has no row.
    """

    files: int
    bytes: int
    point_query_rows: int | None


@dataclass(frozen=True, slots=True)
class MaintainedTable:
    """A table before and after.

    Attributes:
        after: None where nothing was done.
        expired_rows: rows that go.
        vacuumed_files: files that no version needs which is young enough; they go.
    """

    table: str
    before: TableState
    after: TableState | None
    expired_rows: int
    vacuumed_files: int


def maintain_tables(catalog: Catalog, expiry: Expiry, now: datetime, *, apply: bool) -> list[MaintainedTable]:
    """Look at all tables, and where `apply` is given expire rows, optimize and vacuum.

    Readers are not disturbed: each commit is a version of its own, and files of versions that readers may still have
    open stay for `VACUUM_KEEPS`. Run again after a stop it goes on.

    Args:
        now: by the machine's clock, which VACUUM goes by too.

    Raises:
        CatalogError: other jobs commit all the time.
    """
    expired = _expired(catalog, expiry, now)
    counts = {name: rows.count() for name, rows in expired.items()}
    before = _for_each_table(lambda table: table_state(catalog, table))
    if apply:
        # Segments first: what is left elsewhere of their rows belongs to none then, and goes in the next run too.
        for table in sorted(TABLES, key=lambda table: table is not SEGMENTS):
            if counts.get(table.name):
                _delete(catalog, table, expired[table.name])
        _for_each_table(lambda table: _optimize(catalog, table))
    vacuumed = _for_each_table(lambda table: _vacuum(catalog, table, apply=apply))
    after = _for_each_table(lambda table: table_state(catalog, table)) if apply else {}
    return [
        MaintainedTable(
            table=table.name,
            before=before[table.name],
            after=after.get(table.name),
            expired_rows=counts.get(table.name, 0),
            vacuumed_files=vacuumed[table.name],
        )
        for table in TABLES
    ]


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
        f"{column.name}: {column.type.simpleString()}" for column in table.columns if column.name in table.key
    )
    schema = f"numRecords bigint, minValues struct<{fields}>, maxValues struct<{fields}>"
    return files.select("size", F.from_json("stats", schema).alias("stats"))


def _point_query_rows(catalog: Catalog, table: Table, files: list[Any]) -> int | None:
    if not table.cluster_by:
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
    """Whether a file may hold a value; Delta cuts long strings, and pads the greatest."""
    return least is None or most is None or least <= value <= most


def _expired(catalog: Catalog, expiry: Expiry, now: datetime) -> dict[str, DataFrame]:
    """Keys of the rows that are to go, by table."""
    expired: dict[str, DataFrame] = {}
    if expiry.gone_segments is not None:
        gone = _not_needed(catalog, now - expiry.gone_segments)
        expired[SEGMENTS.name] = gone
        left = catalog.read(SEGMENTS).select(*SEGMENTS.key).join(gone, list(SEGMENTS.key), "left_anti")
        for table in (ABORTED_TRANSACTIONS, PRODUCER_EVENTS):
            keys = catalog.read(table).select(*table.key)
            expired[table.name] = keys.join(left, list(SEGMENTS.key), "left_anti")
    if expiry.builds is not None:
        expired[BUILDS.name] = _builds_of_the_past(catalog, now - expiry.builds)
    for table in TABLES:
        age = getattr(expiry, table.name) if table.name in _RECORDED_AT else None
        if age is not None:
            old = catalog.read(table).where(F.col(_RECORDED_AT[table.name]) < F.lit(now - age))
            expired[table.name] = old.select(*table.key)
    return expired


def _not_needed(catalog: Catalog, before: datetime) -> DataFrame:
    """Segments that are gone since then, and that no transaction of a later one is derived from.

    What retention took from the front of a partition still tells of transactions and producers behind it
    (`Catalog.to_finish`): it stays for as long as there is a segment behind it, of the same topic id.
    """
    segments = catalog.read(SEGMENTS)
    is_absent = F.col("status").isin(*(status.value for status in ABSENT))
    first = F.min(F.struct("base_offset", "topic_id"))
    present = segments.where(~is_absent).groupBy(*PARTITIONS.key).agg(first.alias("first"))
    builds = catalog.read(BUILDS).select("build_id", "started_at")
    gone = segments.where(is_absent).join(builds, "build_id", "left").join(present, list(PARTITIONS.key), "left")
    is_of_use = (F.col("base_offset") < F.col("first.base_offset")) & F.col("topic_id").eqNullSafe(
        F.col("first.topic_id")
    )
    old = F.coalesce("deleted_at", "started_at") < F.lit(before)
    return gone.where(old & ~F.coalesce(is_of_use, F.lit(False))).select(*SEGMENTS.key)


def _builds_of_the_past(catalog: Catalog, before: datetime) -> DataFrame:
    """Builds of before then, but for those that something refers to: rows of segments and partitions, the path of each
    source (`Catalog.source_paths`), and the rate of the last that read anything (`Catalog.last_rate`).
    """
    builds = catalog.read(BUILDS)
    latest = builds.select("build_id", "started_at", F.explode("sources").alias("source", "path"))
    latest = latest.groupBy("source").agg(F.max_by("build_id", "started_at").alias("build_id"))
    reading = builds.where("log_bytes > 0 AND scan_seconds > 0").orderBy(F.desc("started_at")).limit(1)
    needed = [rows.select("build_id") for rows in (latest, reading, catalog.read(SEGMENTS), catalog.read(PARTITIONS))]
    old = builds.where(F.col("started_at") < F.lit(before)).select("build_id")
    return old.join(reduce(DataFrame.union, needed), "build_id", "left_anti")


def _delete(catalog: Catalog, table: Table, keys: DataFrame) -> None:
    path = catalog.table_path(table)
    same: Column = reduce(Column.__and__, [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in table.key])

    def commit() -> None:
        target = DeltaTable.forPath(catalog.spark, path)
        target.alias("old").merge(keys.distinct().alias("new"), same).whenMatchedDelete().execute()

    while_others_commit(path, commit)


def _optimize(catalog: Catalog, table: Table) -> None:
    """Small files together; of clustered tables by their columns."""
    path = catalog.table_path(table)
    while_others_commit(path, lambda: DeltaTable.forPath(catalog.spark, path).optimize().executeCompaction())


def _vacuum(catalog: Catalog, table: Table, *, apply: bool) -> int:
    """Remove files that no version needs that was current in the last seven days of the clock; or only count them."""
    path = catalog.table_path(table).replace("`", "``")
    found = catalog.spark.sql(f"VACUUM delta.`{path}` DRY RUN").count()
    if apply and found:
        catalog.spark.sql(f"VACUUM delta.`{path}`")
    return found


def _for_each_table(do: Callable[[Table], Any]) -> dict[str, Any]:
    """Do it for all tables at the same time: most of it is waiting."""
    with ThreadPoolExecutor(len(TABLES)) as threads:
        return dict(zip((table.name for table in TABLES), threads.map(do, TABLES), strict=True))
