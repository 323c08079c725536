"""The catalog: Delta tables under one folder, or the same tables registered in a database of a metastore.

Rows are written once, from results that lie on disk already: a job's results go to a staging folder first, so that no
retry of a catalog commit makes executors read a log again.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, TypeVar

from delta.exceptions import DeltaConcurrentModificationException
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.tables import BUILDS, CATALOG_VERSION, RESULT_SCHEMA, SEGMENTS, TABLES, Table, spark_schema
from kidxlib.errors import CatalogError, UsageError

VERSION_PROPERTY: Final = "kidx.catalogVersion"
#: Tries of one commit while other jobs commit to the same table, and the longest pause between two, in seconds.
COMMIT_ATTEMPTS: Final = 8
COMMIT_PAUSE_MAX: Final = 10.0

#: The years that every reader of a SQL timestamp can show (1 to 9999), in milliseconds since the epoch.
_SQL_TIMESTAMP_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)

_R = TypeVar("_R")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Catalog:
    """An opened catalog: its tables exist and have this version's columns."""

    spark: SparkSession
    path: str

    def table_path(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    @contextlib.contextmanager
    def staging(self, build_id: str) -> Iterator[Callable[[DataFrame], DataFrame]]:
        """A function that computes a DataFrame of `RESULT_SCHEMA` once, into a folder that goes at the end."""
        path = f"{self.path}/_staging/{build_id}"

        def materialise(results: DataFrame) -> DataFrame:
            results.write.parquet(path)
            return self.spark.read.schema(RESULT_SCHEMA).parquet(path)

        try:
            yield materialise
        finally:
            _delete_folder(self.spark, path)

    def merge_segments(self, results: DataFrame, build_id: str) -> int:
        """Bring the rows of `segments` up to date with `results`; rows that say the same are not touched.

        Returns:
            How many rows were added or changed; where none was, no commit is made.
        """
        rows = (
            results.withColumn("max_timestamp", _sql_timestamp("max_timestamp_ms"))
            .withColumn("log_mtime", F.timestamp_micros(F.expr("log_mtime_ns div 1000")))
            .withColumn("build_id", F.lit(build_id))
            .select(*SEGMENTS.column_names)
        )
        return self._commit(SEGMENTS, lambda target: _merge(target, rows, SEGMENTS, same_but_for=("build_id",)))

    def append_build(self, build: dict[str, Any]) -> None:
        """Add the row of one run."""
        row = self.spark.createDataFrame(
            [tuple(build[name] for name in BUILDS.column_names)], spark_schema(BUILDS.columns)
        )
        path = self.table_path(BUILDS)
        self._commit(BUILDS, lambda _: row.write.format("delta").mode("append").save(path))

    def _commit(self, table: Table, commit: Callable[[DeltaTable], _R]) -> _R:
        return _while_others_commit(
            self.table_path(table), lambda: commit(DeltaTable.forPath(self.spark, self.table_path(table)))
        )


def open_catalog(spark: SparkSession, path: str | None, database: str | None) -> Catalog:
    """Open a catalog by folder or by database, making tables that are missing and adding columns that this version has.

    Raises:
        UsageError: there is no such database.
        CatalogError: something else stands where a table should be, or a newer version wrote it.
    """
    if database is not None:
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"--database {database}: no such database; make it with CREATE DATABASE {database}")
        path = spark.catalog.getDatabase(database).locationUri
    assert path is not None
    catalog = Catalog(spark, path.rstrip("/"))
    for table in TABLES:
        location = catalog.table_path(table)
        _while_others_commit(location, partial(_make_or_upgrade, spark, location, table))
        if database is not None:
            spark.sql(f"CREATE TABLE IF NOT EXISTS `{database}`.`{table.name}` USING DELTA LOCATION '{location}'")
    return catalog


def _make_or_upgrade(spark: SparkSession, location: str, table: Table) -> None:
    if not DeltaTable.isDeltaTable(spark, location):
        _make(spark, location, table)
        return
    found = DeltaTable.forPath(spark, location)
    properties = found.detail().select("properties").head()
    version = properties[0].get(VERSION_PROPERTY) if properties else None
    if version is None:
        raise CatalogError(f"{location}: a Delta table, but not one of this project's; give --catalog another folder")
    if int(version) > CATALOG_VERSION:
        raise CatalogError(
            f"{location}: written with catalog version {version}, this code has {CATALOG_VERSION}: use a newer one"
        )
    if int(version) < CATALOG_VERSION:
        _upgrade(spark, location, table, found.toDF().columns)


def _make(spark: SparkSession, location: str, table: Table) -> None:
    builder = (
        DeltaTable.createIfNotExists(spark)
        .location(location)
        .comment(table.comment)
        .property(VERSION_PROPERTY, str(CATALOG_VERSION))
        # Every Delta reader can open a table without them.
        .property("delta.enableDeletionVectors", "false")
    )
    for column in table.columns:
        builder = builder.addColumn(column.name, column.type, nullable=column.nullable, comment=column.comment)
    if table.cluster_by:
        builder = builder.clusterBy(*table.cluster_by)
    try:
        builder.execute()
    except AnalysisException as error:
        raise CatalogError(f"{location}: cannot make the table {table.name}: {_first_line(error)}") from error


def _upgrade(spark: SparkSession, location: str, table: Table, present: list[str]) -> None:
    missing = [column for column in table.columns if column.name not in present]
    if missing:
        columns = ", ".join(
            f"`{column.name}` {column.type.simpleString()} COMMENT '{_sql_text(column.comment)}'" for column in missing
        )
        spark.sql(f"ALTER TABLE delta.`{location}` ADD COLUMNS ({columns})")
    spark.sql(f"ALTER TABLE delta.`{location}` SET TBLPROPERTIES ('{VERSION_PROPERTY}' = '{CATALOG_VERSION}')")
    names = ", ".join(column.name for column in missing) or "no column"
    _log.warning("%s: brought to catalog version %d (added: %s)", location, CATALOG_VERSION, names)


def _merge(target: DeltaTable, rows: DataFrame, table: Table, same_but_for: tuple[str, ...]) -> int:
    def old(name: str) -> Column:
        return F.col(f"old.{name}")

    def new(name: str) -> Column:
        return F.col(f"new.{name}")

    key = reduce(Column.__and__, [old(name) == new(name) for name in table.key])
    compared = [name for name in table.column_names if name not in (*table.key, *same_but_for)]
    same = reduce(Column.__and__, [old(name).eqNullSafe(new(name)) for name in compared])
    changed = rows.alias("new").join(target.toDF().alias("old"), key, "left").where(old(table.key[0]).isNull() | ~same)
    changed = changed.select("new.*")
    count = changed.count()
    if count:
        (
            target.alias("old")
            .merge(changed.alias("new"), key)
            .whenMatchedUpdateAll(condition=~same)
            .whenNotMatchedInsertAll()
            .execute()
        )
    return count


def _while_others_commit(location: str, commit: Callable[[], _R]) -> _R:
    """Run `commit` again, after a random pause, as long as another job changed the same table at the same moment."""
    for attempt in range(1, COMMIT_ATTEMPTS + 1):
        try:
            return commit()
        except DeltaConcurrentModificationException as error:
            lost = error
        _log.info("%s: another job changed the table at the same moment (%s), attempt %d", location, lost, attempt)
        time.sleep(random.uniform(0, min(COMMIT_PAUSE_MAX, 2.0**attempt)))
    raise CatalogError(
        f"{location}: other jobs changed the table at each of {COMMIT_ATTEMPTS} attempts to commit; "
        "the index files are in place, run the same command again to record them"
    )


def _sql_timestamp(milliseconds: str) -> Column:
    """A column of Kafka's milliseconds as a SQL timestamp; null where Kafka has none (−1) or no calendar shows it."""
    value = F.col(milliseconds)
    return F.when((value != -1) & value.between(*_SQL_TIMESTAMP_MS), F.timestamp_millis(value))


def _delete_folder(spark: SparkSession, path: str) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    folder = jvm.org.apache.hadoop.fs.Path(path)
    folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).delete(folder, True)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _sql_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
