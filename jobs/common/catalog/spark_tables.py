"""A catalog's tables through Spark: where no other writer reaches them, or where settings want Spark's commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.catalog.commit_retry import TableChangedError, while_others_commit
from jobs.common.catalog.create import MakingTable, register
from jobs.common.catalog.merge import in_order, same_key
from jobs.common.spark.conditions import as_column
from jobs.common.spark.hadoop import hadoop_path
from jobs.common.spark.local_rows import of_arrow
from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.rows import Table
from kidxlib.catalog.updates import not_overtaken
from kidxlib.tables.grouped import ROWS, Ends
from kidxlib.tables.protocol import ArrowStream, Question, TablesToRead
from kidxlib.tables.scope import scope_of
from kidxlib.tables.version import version_of

#: A column of the rows of a merge.
_DELETED: Final = "_deleted"


class SparkTables:
    """See `kidxlib.tables.protocol.Tables`. What a change needs is read by executors, and worked out on the driver.

    Args:
        path: without a slash at its end.
        database: where the tables are registered, if anywhere.
    """

    def __init__(self, spark: SparkSession, path: str, database: str | None = None) -> None:
        self.path = path
        self.spark, self._database = spark, database

    def version(self, table: Table) -> int | None:
        """See `Tables.version`."""
        version = int(self.snapshot(table).version())
        return None if version < 0 else version

    def catalog_version(self, table: Table) -> int | None:
        """See `Tables.catalog_version`."""
        snapshot = self.snapshot(table)
        if snapshot.version() < 0:
            return None
        jvm: Any = self.spark.sparkContext._jvm
        properties = jvm.scala.jdk.javaapi.CollectionConverters.asJava(snapshot.metadata().configuration())
        return version_of(self.place(table), dict(properties))

    def for_workers(self) -> TablesToRead | None:
        """See `Tables.for_workers`."""
        return None

    def make(self, table: Table) -> None:
        """See `Tables.make`. A table of an older version is brought to this one."""
        place = self.place(table)
        while_others_commit(place, self.lock_place, MakingTable(self.spark, place, table))
        if self._database is not None:
            register(self.spark, self._database, table, place)

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        """See `Tables.read`."""
        schema, rows = table.schema(names), self._rows(table, where, version)
        return schema.empty_table() if rows is None else rows.select(*schema.names).toArrow().cast(schema)

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        """See `TablesToRead.counts`."""
        schema, rows = table.schema(names), self._rows(table, where, version)
        whole = schema.append(ROWS)
        if rows is None:
            return whole.empty_table()
        return rows.groupBy(*schema.names).agg(F.count("*").alias(ROWS.name)).toArrow().cast(whole)

    def ends(self, table: Table, by: Sequence[str], ends: Ends, where: Sequence[Condition] = ()) -> pa.Table:
        """See `TablesToRead.ends`."""
        schema, rows = ends.schema(table, by), self._rows(table, where)
        if rows is None:
            return schema.empty_table()
        first, last = F.min(ends.order).alias("first"), F.max_by(ends.of_last, ends.order).alias("last")
        return rows.groupBy(*schema.names[:-2]).agg(first, last).toArrow().cast(schema)

    def ask(self, question: Question) -> pa.Table:
        """See `TablesToAsk.ask`."""
        rows: dict[str, Any] = {table.name: self._rows(table, ()) for table in question.tables}
        if None in rows.values():
            return question.schema.empty_table()
        # No views are made by these names: a session that was there may have its own.
        named = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in rows)
        asked = self.spark.sql(f"WITH {named} ({question.sql})", **rows)
        return asked.toArrow().cast(question.schema)

    def change(
        self,
        table: Table,
        found: Found,
        change: Change,
        *,
        by: Sequence[str],
        since: int | None = None,
        build_id: str = "",
    ) -> int:
        """See `Tables.change`."""
        scope = scope_of(found, by)
        if self.version(table) is None:
            self.make(table)

        def commit() -> int:
            version = self.version(table)
            known, still_found = self.read(table, None, scope, version), found
            if since is not None and version is not None and version > since:
                before = self.read(table, [*table.key, "build_id"], scope, since)
                still_found = not_overtaken(found, before, known, build_id)
            changed = change(known, still_found)
            if not changed.is_empty:
                # On a local disk the lock is held. Elsewhere another writer may have committed since the read.
                if self.version(table) != version:
                    raise TableChangedError(self.place(table))
                self._merge(table, changed)
            return changed.counted

        return while_others_commit(self.place(table), self.lock_place, commit)

    def append(self, table: Table, rows: pa.Table | ArrowStream) -> None:
        """See `Tables.append`."""
        addition = TableChange.adding(table, pa.table(rows))
        if self.version(table) is None:
            self.make(table)
        while_others_commit(self.place(table), self.lock_place, lambda: self._merge(table, addition))

    @property
    def lock_place(self) -> str:
        """Where `kidxlib.tables.commit_lock` finds the catalog: its path where that is a local one, else its URL.

        Hadoop decides, as a path without a scheme may be one of HDFS.
        """
        directory, file_system = hadoop_path(self.spark, self.path)
        uri = file_system.makeQualified(directory).toUri()
        return str(uri.getPath() if uri.getScheme() == "file" else uri.toString())

    def place(self, table: Table) -> str:
        """The directory or URL of a table."""
        return f"{self.path}/{table.name}"

    def snapshot(self, table: Table) -> Any:
        """Delta's own snapshot of the latest version, without a query; of version −1 where there is no table."""
        jvm: Any = self.spark.sparkContext._jvm
        nothing = jvm.scala.Option.empty()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.place(table))
        return log.update(False, nothing, nothing)

    def _rows(self, table: Table, where: Sequence[Condition], version: int | None = None) -> DataFrame | None:
        """The rows of which all conditions are true; None where there is no such table."""
        if version is None and self.snapshot(table).version() < 0:
            return None
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        rows = reader.load(self.place(table))
        for condition in where:
            rows = rows.where(as_column(condition))
        return rows

    def _merge(self, table: Table, change: TableChange) -> None:
        target = DeltaTable.forPath(self.spark, self.place(table)).alias("old")
        values: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in table.column_names}
        written = in_order(of_arrow(self.spark, pa.concat_tables([change.inserts, change.updates])), table)
        if not change.deletes.num_rows:
            merge = target.merge(written.alias("new"), same_key(table))
            if change.updates.num_rows:  # a merge that only inserts is a simpler one
                merge = merge.whenMatchedUpdate(set=values)
            merge.whenNotMatchedInsert(values=values).execute()
            return
        deletes = of_arrow(self.spark, change.deletes.select(table.key)).withColumn(_DELETED, F.lit(True))
        rows = written.withColumn(_DELETED, F.lit(False)).unionByName(deletes, allowMissingColumns=True)
        merge = target.merge(rows.alias("new"), same_key(table)).whenMatchedDelete(f"new.{_DELETED}")
        merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values).execute()
