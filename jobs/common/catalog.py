"""The catalog: Delta tables under one folder, or the same tables registered in a database of a metastore.

Rows are written once, from results that lie on disk already: a job's results go to a staging folder first, so that no
retry of a catalog commit makes executors read a log again.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, TypeVar

from delta import exceptions as delta_exceptions
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.tables import (
    BUILDS,
    CATALOG_VERSION,
    PARTITIONS,
    RESULT_SCHEMA,
    SEGMENTS,
    TABLES,
    Table,
    spark_schema,
)
from kidxlib.build import IntervalSource
from kidxlib.errors import CatalogError, UsageError
from kidxlib.plan import Changes, Known, KnownSegment, PartitionKey
from kidxlib.recover import RecoverOptions, Status
from kidxlib.storage import FileVersion

VERSION_PROPERTY: Final = "kidx.catalogVersion"
#: Tries of one commit while other jobs commit to the same table, and the longest pause between two, in seconds.
COMMIT_ATTEMPTS: Final = 10
COMMIT_PAUSE_MAX: Final = 10.0

#: The years that every reader of a SQL timestamp can show (1 to 9999), in milliseconds since the epoch.
_SQL_TIMESTAMP_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
_STAGING: Final = "_staging"


class _TableInTheMakingError(Exception):
    """Another job is just making this table: its log folder is there, its first commit is not."""


#: What a commit raises that another one overtook. In Python these have no base of their own.
_CONFLICTS: Final = (
    delta_exceptions.ConcurrentAppendException,
    delta_exceptions.ConcurrentDeleteDeleteException,
    delta_exceptions.ConcurrentDeleteReadException,
    delta_exceptions.ConcurrentTransactionException,
    delta_exceptions.ConcurrentWriteException,
    delta_exceptions.DeltaConcurrentModificationException,
    delta_exceptions.MetadataChangedException,
    delta_exceptions.ProtocolChangedException,
    _TableInTheMakingError,
)

_R = TypeVar("_R")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog by the path or URL of its folder."""

    spark: SparkSession
    path: str

    def table_path(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    def exists(self) -> bool:
        """Whether the tables are there, of any version."""
        return all(DeltaTable.isDeltaTable(self.spark, self.table_path(table)) for table in TABLES)

    def read(self, table: Table) -> DataFrame:
        return self.spark.read.format("delta").load(self.table_path(table))

    def known_segments(self, sources: Sequence[str], topics: re.Pattern[str]) -> Known:
        """What the catalog says of the segments of some sources and topics."""
        known: dict[PartitionKey, dict[int, KnownSegment]] = defaultdict(dict)
        columns = (
            *SEGMENTS.key,
            *("log_bytes", "log_mtime_ns", "log_inode", "topic_id", "interval_bytes", "max_index_bytes", "crc_checked"),
            *("interval_source", "status", "active", "index_folder", "offset_index_bytes", "time_index_bytes"),
            "catalog_version",
        )
        rows = self.read(SEGMENTS).where(F.col("source").isin(*sources)).select(*columns).toArrow()
        for batch in rows.to_batches():
            for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                source, topic, partition, base_offset, size, mtime_ns, inode, topic_id, interval, room, crc = row[:11]
                interval_source, status, active, index_folder, offset_index_bytes, time_index_bytes, version = row[11:]
                if not topics.fullmatch(topic):
                    continue
                known[source, topic, partition][base_offset] = KnownSegment(
                    version=None if size is None else FileVersion(size, mtime_ns, inode),
                    topic_id=topic_id,
                    options=RecoverOptions(interval_bytes=interval, max_index_bytes=room, verify_crc=crc),
                    interval_source=IntervalSource(interval_source),
                    status=Status(status),
                    active=active,
                    index_folder=index_folder,
                    offset_index_bytes=offset_index_bytes,
                    time_index_bytes=time_index_bytes,
                    current=version == CATALOG_VERSION,
                )
        return known

    def last_rate(self) -> float | None:
        """Bytes a second at which the last build that read anything did so; None where none did."""
        rows = self.read(BUILDS).where("log_bytes > 0 AND scan_seconds > 0").orderBy(F.desc("started_at")).limit(1)
        row = rows.select((F.col("log_bytes") / F.col("scan_seconds")).alias("rate")).head()
        return float(row["rate"]) if row else None

    @contextlib.contextmanager
    def staging(self, name: str) -> Iterator[Callable[[DataFrame], DataFrame]]:
        """A function that computes a DataFrame of `RESULT_SCHEMA` once, into a folder that goes at the end."""
        path = f"{self.path}/{_STAGING}/{name}"

        def materialise(results: DataFrame) -> DataFrame:
            results.write.parquet(path)
            return self.spark.read.schema(RESULT_SCHEMA).parquet(path)

        try:
            yield materialise
        finally:
            folder, file_system = hadoop_path(self.spark, path)
            file_system.delete(folder, True)

    def sweep_staging(self, older_than_ms: int) -> None:
        """Remove what killed runs left in the staging folder, where it was last written before `older_than_ms`."""
        folder, file_system = hadoop_path(self.spark, f"{self.path}/{_STAGING}")
        if file_system.exists(folder):
            for entry in file_system.listStatus(folder):
                if entry.getModificationTime() < older_than_ms:
                    file_system.delete(entry.getPath(), True)

    def merge_segments(self, results: DataFrame, build_id: str) -> int:
        """Bring the rows of `segments` up to date with `results`; rows that say the same are not touched.

        Returns:
            How many rows were added or changed; where none was, no commit is made.
        """
        rows = (
            # A log that vanished before it was read is marked by the next listing, which keeps its facts.
            results.where(F.col("status") != Status.GONE.value)
            .withColumn("max_timestamp", _sql_timestamp("max_timestamp_ms"))
            .withColumn("log_mtime", F.timestamp_micros(F.expr("log_mtime_ns div 1000")))
            .withColumn("build_id", F.lit(build_id))
            .select(*SEGMENTS.column_names)
        )
        return self._commit(SEGMENTS, lambda target: _merge_segments(target, rows))

    def known_partitions(self, sources: Collection[str]) -> list[dict[str, Any]]:
        """The rows of `partitions` of some sources."""
        return self.read(PARTITIONS).where(F.col("source").isin(*sources)).toArrow().to_pylist()

    def offsets(self, sources: Collection[str]) -> dict[PartitionKey, tuple[int, int | None]]:
        """By partition, the first segment's base offset and the last segment's next offset, of what is not gone."""
        last = F.max(F.struct("base_offset", "next_offset"))["next_offset"]
        rows = self.read(SEGMENTS).where(F.col("source").isin(*sources) & (F.col("status") != Status.GONE.value))
        rows = rows.groupBy(*PARTITIONS.key).agg(F.min("base_offset").alias("first"), last.alias("next"))
        return {
            (row["source"], row["topic"], row["partition"]): (row["first"], row["next"])
            for row in rows.toArrow().to_pylist()
        }

    def merge_partitions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace rows of `partitions`; each has a value for every column."""
        values = [tuple(row[name] for name in PARTITIONS.column_names) for row in rows]
        new = self.spark.createDataFrame(values, spark_schema(PARTITIONS.columns))

        def commit(target: DeltaTable) -> None:
            merge = target.alias("old").merge(new.alias("new"), _same_key(PARTITIONS))
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

        self._commit(PARTITIONS, commit)

    def mark(self, changes: Changes, build_id: str) -> int:
        """Write into `segments` what a listing alone shows: segments that are gone, or active now, or no longer.

        Returns:
            How many rows were changed.
        """
        marks: list[tuple[str, str, int, int, bool | None, bool]]
        marks = [(*key, base_offset, None, True) for key, base_offset in changes.gone]
        marks += [(*key, base_offset, active, False) for key, base_offset, active in changes.active]
        if not marks:
            return 0
        rows = self.spark.createDataFrame(
            marks, "source string, topic string, partition int, base_offset bigint, active boolean, gone boolean"
        )

        def commit(target: DeltaTable) -> None:
            (
                target.alias("old")
                .merge(rows.alias("new"), _same_key(SEGMENTS))
                .whenMatchedUpdate(
                    set={
                        "status": F.when(F.col("new.gone"), Status.GONE.value).otherwise(F.col("old.status")),
                        "active": F.coalesce(F.col("new.active"), F.lit(False)),
                        "build_id": F.lit(build_id),
                    }
                )
                .execute()
            )

        self._commit(SEGMENTS, commit)
        return len(marks)

    def append_build(self, build: dict[str, Any]) -> None:
        """Add the row of one run; `build` has a value for every column."""
        values = tuple(build[name] for name in BUILDS.column_names)
        row = self.spark.createDataFrame([values], spark_schema(BUILDS.columns)).coalesce(1)
        path = self.table_path(BUILDS)
        self._commit(BUILDS, lambda _: row.write.format("delta").mode("append").save(path))

    def _commit(self, table: Table, commit: Callable[[DeltaTable], _R]) -> _R:
        path = self.table_path(table)
        return _while_others_commit(path, lambda: commit(DeltaTable.forPath(self.spark, path)))


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path, and the file system that holds it, as Hadoop's own objects."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    folder = jvm.org.apache.hadoop.fs.Path(path)
    return folder, folder.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


def find_catalog(spark: SparkSession, path: str | None, database: str | None) -> Catalog:
    """A catalog by its folder, or by the folder of a database; its tables need not exist.

    Raises:
        UsageError: there is no such database.
    """
    if database is not None:
        if database == "default":
            raise UsageError("--database default: its folder is the whole warehouse; make a database for it")
        if not spark.catalog.databaseExists(database):
            raise UsageError(f"--database {database}: no such database; make it with CREATE DATABASE {database}")
        path = spark.catalog.getDatabase(database).locationUri
    assert path is not None
    return Catalog(spark, path.rstrip("/"))


def make_tables(catalog: Catalog, database: str | None) -> None:
    """Make the tables that are missing, add columns that this version has, and register them in the database if any.

    Raises:
        CatalogError: something else stands where a table should be, or a newer version wrote it.
    """
    for table in TABLES:
        location = catalog.table_path(table)
        _while_others_commit(location, partial(_make_or_upgrade, catalog.spark, location, table))
        if database is not None:
            name = f"`{database}`.`{table.name}`"
            catalog.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{_sql_text(location)}'")


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
            f"{location}: written with catalog version {version}, this code has {CATALOG_VERSION}; use a newer release"
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
        folder, file_system = hadoop_path(spark, f"{location}/_delta_log")
        if file_system.exists(folder):
            raise _TableInTheMakingError(location) from error
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


def _same_key(table: Table) -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}") == F.col(f"new.{name}") for name in table.key])


def _merge_segments(target: DeltaTable, rows: DataFrame) -> int:
    """Add the rows that are new by key and replace those that differ in more than `build_id`; return their number."""
    compared = [name for name in SEGMENTS.column_names if name not in (*SEGMENTS.key, "build_id")]
    same = reduce(Column.__and__, [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in compared])
    joined = rows.alias("new").join(target.toDF().alias("old"), _same_key(SEGMENTS), "left")
    changed = joined.where(F.col("old.source").isNull() | ~same).select("new.*")
    count = changed.count()
    if count:
        merge = target.alias("old").merge(changed.alias("new"), _same_key(SEGMENTS))
        merge.whenMatchedUpdateAll(condition=~same).whenNotMatchedInsertAll().execute()
    return count


def _while_others_commit(location: str, commit: Callable[[], _R]) -> _R:
    """Run `commit` again, after a random pause, as long as another job changed the same table at the same moment."""
    for attempt in range(1, COMMIT_ATTEMPTS + 1):
        try:
            return commit()
        except _CONFLICTS as error:
            _log.info("%s: another job committed at the same moment, attempt %d: %s", location, attempt, error)
        time.sleep(random.uniform(0, min(COMMIT_PAUSE_MAX, 2.0**attempt)))
    raise CatalogError(
        f"{location}: other jobs changed the table at each of {COMMIT_ATTEMPTS} attempts to commit; "
        "the index files are in place: run the same command again to record them"
    )


def _sql_timestamp(milliseconds: str) -> Column:
    """A column of Kafka's milliseconds as a SQL timestamp; null where Kafka has none (−1) or no calendar shows it."""
    value = F.col(milliseconds)
    return F.when((value != -1) & value.between(*_SQL_TIMESTAMP_MS), F.timestamp_millis(value))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _sql_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
