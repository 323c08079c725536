"""The maintenance of a catalog's tables that Spark alone reaches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.spark_tables import CONFLICTS, SparkTables, while_others_commit
from jobs.common.spark.local_rows import of_arrow, spark_type
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import FILE_BYTES, SMALL_FILE_BYTES
from kidxlib.tables.delta_commits import committing_threads
from kidxlib.tables.protocol import VACUUM_KEEPS, files_schema

#: The size of files that OPTIMIZE writes; by default a GB, with which a table has one file.
_OPTIMIZED_BYTES: Final = "spark.databricks.delta.optimize.maxFileSize"
#: OPTIMIZE joins smaller files; by default a GB.
_SMALL_BYTES: Final = "spark.databricks.delta.optimize.minFileSize"
_HOUR_MS: Final = timedelta(hours=1) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class SparkMaintenance:
    tables: SparkTables

    def files(self, table: Table) -> pa.Table:
        schema, snapshot = files_schema(table), self.tables.snapshot(table)
        if snapshot.version() < 0:
            return schema.empty_table()
        types = {column.name: spark_type(column).simpleString() for column in table.columns}
        fields = ", ".join(f"{name}: {types[name]}" for name in table.statistics)
        statistics = f"numRecords bigint, minValues struct<{fields}>, maxValues struct<{fields}>"
        files = DataFrame(snapshot.allFiles().toDF(), self.tables.spark)
        rows = files.select("path", "size", F.from_json("stats", statistics).alias("stats")).select(
            "path",
            F.col("size").alias("size_bytes"),
            F.col("stats.numRecords").alias("num_records"),
            *(F.col(f"stats.minValues.{name}").alias(f"min.{name}") for name in table.statistics),
            *(F.col(f"stats.maxValues.{name}").alias(f"max.{name}") for name in table.statistics),
        )
        return rows.toArrow().cast(schema)

    def sample(self, table: Table, rows: int) -> pa.Table:
        schema = table.schema(table.key)
        if self.tables.version(table) is None:
            return schema.empty_table()
        keys = self.tables.spark.read.format("delta").load(self.tables.place(table)).select(*schema.names)
        return keys.orderBy(F.xxhash64(*schema.names)).limit(rows).toArrow().cast(schema)

    def expire(self, table: Table, expired: Callable[[], pa.Table]) -> None:
        def commit(target: DeltaTable) -> None:
            if not (rows := expired()).num_rows:
                return
            same = reduce(
                Column.__and__, [F.col(f"old.{name}") == F.col(f"expired.{name}") for name in rows.column_names]
            )
            keys = of_arrow(self.tables.spark, rows).alias("expired")
            target.alias("old").merge(keys, same).whenMatchedDelete().execute()

        self._commit(table, commit)

    def rewrite(self, table: Table) -> None:
        """See `Maintenance.rewrite`. Spark's Z-order uses the rank of a value, which makes a good order. Concurrent
        commits lose nothing.
        """
        self.tables.spark.conf.set(_OPTIMIZED_BYTES, FILE_BYTES)
        if table.sort_by:
            self._commit(table, lambda target: target.optimize().executeZOrderBy(*table.sort_by))
        else:
            self._commit(table, lambda target: target.optimize().executeCompaction())

    def compact(self, table: Table, paths: Collection[str]) -> bool:
        """See `Maintenance.compact`. Spark orders all rows of a table or none. For a part of the files, Spark joins
        small files unsorted, and chooses them itself.
        """
        is_all = self.files(table).num_rows == len(paths)
        self.tables.spark.conf.set(_OPTIMIZED_BYTES, FILE_BYTES)
        self.tables.spark.conf.set(_SMALL_BYTES, SMALL_FILE_BYTES)
        optimize = DeltaTable.forPath(self.tables.spark, self.tables.place(table)).optimize()
        try:
            with committing_threads(self.tables.lock_place):
                optimize.executeZOrderBy(*table.sort_by) if is_all and table.sort_by else optimize.executeCompaction()
        except CONFLICTS:
            return False
        return True

    def vacuum(self, table: Table, *, apply: bool) -> int:
        snapshot = self.tables.snapshot(table)
        if snapshot.version() < 0:
            return 0
        spark, path = self.tables.spark, self.tables.place(table).replace("`", "``")
        log = spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        by_table = -(-int(log.tombstoneRetentionMillis(snapshot.metadata())) // _HOUR_MS)
        vacuum = f"VACUUM delta.`{path}` RETAIN {max(by_table, VACUUM_KEEPS // timedelta(hours=1))} HOURS"
        removable = spark.sql(f"{vacuum} DRY RUN").count()
        if apply and removable:
            self._commit(table, lambda _: spark.sql(vacuum))
        return removable

    def _commit(self, table: Table, change: Callable[[DeltaTable], object]) -> None:
        """Change an existing table, again as long as another job changes it at the same moment."""
        if self.tables.version(table) is None:
            return
        place = self.tables.place(table)
        while_others_commit(place, self.tables.lock_place, lambda: change(DeltaTable.forPath(self.tables.spark, place)))
