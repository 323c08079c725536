"""A catalog's tables through Spark, if no other writer reaches them: made, merged into, brought to this version
(`SparkTables`), and kept small and fast (`SparkMaintenance`).

A Delta table has a log directory before its first commit. A first build that is killed, or finds the disk full, leaves
such a directory, and Delta never makes a table there. An error could name it. But after all other kills the same
command helps if it is repeated (docs/operations.md), as a scheduler does. So the next run removes a log directory on
which no run works.

Tables up to version 6 are clustered, which delta-rs refuses to write. No command of Delta removes that: DROP FEATURE
does not know clustering; REPLACE TABLE ... AS SELECT may lower the protocol, but not while there is clustering, and it
forgets which columns are never null; RENAME COLUMN turns on column mapping. So Delta's own transactions remove it, in
two commits. The first one removes the clustering. The second one gives the table this version's schema and properties,
the version among them; it rewrites the rows only if a column is renamed. History stays, and a run that is stopped
between the two can be repeated.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
from delta import exceptions
from delta.tables import DeltaTable, DeltaTableBuilder
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.spark.local_rows import as_column, of_arrow, spark_type
from jobs.common.spark.session import hadoop_path, spark_message
from kidxlib.catalog.change import Change, Found, TableChange
from kidxlib.catalog.conditions import Condition, scope_of
from kidxlib.catalog.rows import Column as SparkColumn
from kidxlib.catalog.rows import Table
from kidxlib.catalog.tables import (
    CATALOG_VERSION,
    FILE_BYTES,
    READER_VERSION,
    SMALL_FILE_BYTES,
    catalog_version_of,
    delta_properties,
)
from kidxlib.catalog.updates import not_overtaken
from kidxlib.errors import CatalogError
from kidxlib.tables.delta_commits import committing_threads
from kidxlib.tables.protocol import (
    ROWS,
    VACUUM_KEEPS,
    ArrowStream,
    FirstAndLast,
    SqlQuestion,
    TablesToRead,
    files_schema,
)

#: Tries of one commit while other jobs commit to the same table, and the longest pause between two, in seconds.
ATTEMPTS: Final = 10
_PAUSE_MAX: Final = 10.0

_R = TypeVar("_R")


class TableInTheMakingError(Exception):
    """Another job is making this table: its log directory is there, its first commit is not."""


class TableChangedError(Exception):
    """Another job has committed to this table since it was read."""


#: The errors of an overtaken commit, which have no common base in Python.
_CONFLICTS: Final = (
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
    exceptions.DeltaConcurrentModificationException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
    TableChangedError,
    TableInTheMakingError,
)


def while_others_commit(location: str, lock_place: str, commit: Callable[[], _R]) -> _R:
    """Commit to the table at a location by Spark, under the catalog's lock; again, after a random pause without the
    lock, as long as another job changed the same table at the same moment.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with committing_threads(lock_place):
                return commit()
        except _CONFLICTS as error:
            _log.info("%s: another job committed at the same moment, attempt %d: %s", location, attempt, error)
        time.sleep(random.uniform(0, min(_PAUSE_MAX, 2.0**attempt)))
    raise CatalogError(
        f"{location}: other jobs changed the table at each of {ATTEMPTS} attempts to commit; "
        "the index files are in place: run the same command again to record them"
    )


#: A column of a merge's rows.
_DELETED: Final = "_deleted"

#: A run that makes a table writes to its log directory far more often.
_LEFT_AFTER_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)

#: With this setting, a transaction that replaces a table may lower its protocol.
_DOWNGRADE: Final = "spark.databricks.delta.replace.protocolDowngradeAllowed"

#: Delta's name for the columns that a table is clustered by.
_CLUSTERING: Final = "delta.clustering"


def _are_same(names: Sequence[str]) -> Column:
    """Whether rows `old` and `new` have the same values in some columns."""
    return reduce(Column.__and__, [F.col(f"old.{name}") == F.col(f"new.{name}") for name in names])


@dataclass(frozen=True, slots=True)
class _UncommittedLog:
    """The contents of a log directory without commits; equal at two times if no run works on it in between.

    Attributes:
        path: the directory.
        entries: path, size and time of each file and directory, a directory after what it holds.
    """

    path: str
    entries: tuple[tuple[str, int, int], ...]
    _statuses: tuple[Any, ...] = field(compare=False, repr=False)
    _file_system: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, spark: SparkSession, location: str) -> Self | None:
        """The log directory of a table; None if there is none, or it contains more than Delta's temporary files."""
        path = f"{location}/_delta_log"
        directory, file_system = hadoop_path(spark, path)
        if is_instance_of(spark.sparkContext._gateway, file_system, "org.apache.hadoop.fs.ChecksumFileSystem"):
            file_system = file_system.getRawFileSystem()  # also lists files of checksums
        if not file_system.exists(directory):
            return None
        statuses = tuple(_below(file_system, file_system.getFileStatus(directory)))
        if not all(status.isDirectory() or status.getPath().getName().startswith(".") for status in statuses):
            return None
        entries = tuple((str(file.getPath()), file.getLen(), file.getModificationTime()) for file in statuses)
        return cls(path, entries, statuses, file_system)

    def remove(self) -> bool:
        """Remove the directory; whether that succeeded. Only empty directories are removed: no new commit is lost."""
        try:
            return all(self._file_system.delete(status.getPath(), False) for status in self._statuses)
        except Py4JJavaError:  # a directory is not empty
            return False


def _below(file_system: Any, status: Any) -> Iterator[Any]:
    if status.isDirectory():
        for inner in file_system.listStatus(status.getPath()):
            yield from _below(file_system, inner)
    yield status


def upgrade(spark: SparkSession, location: str, table: Table) -> None:
    """Give a Delta table, by way of Spark, this release's columns, properties and protocol, and their version."""
    delta = _jvm(spark).org.apache.spark.sql.delta
    transaction = _begun(spark, location)
    protocol = transaction.protocol()
    if protocol.minReaderVersion() > READER_VERSION:
        raise CatalogError(
            f"{location}: has a feature that other readers do not know (reader version {protocol.minReaderVersion()}); "
            "remove it with ALTER TABLE … DROP FEATURE, then run this again"
        )
    if _is_clustered(spark, transaction):
        _commit(spark, transaction, [delta.actions.DomainMetadata(_CLUSTERING, "{}", True)])
        transaction = _begun(spark, location)
    spark.conf.set(_DOWNGRADE, "true")  # no job replaces a table, so nothing else asks for it
    old = transaction.metadata()
    present = json.loads(old.schemaString())["fields"]
    # Old names by present names.
    taken_from = {table.renamed.get(field["name"], field["name"]): field["name"] for field in present}
    renamed = {name: new for new, name in taken_from.items() if name != new}
    known = {*table.column_names, *table.renamed}  # other columns are not kidx's, and stay
    fields = [*map(_field, table.columns), *(field for field in present if field["name"] not in known)]
    transaction.updateMetadataForNewTable(_metadata(old, table, fields))
    _commit(spark, transaction, _rewritten(spark, location, table, transaction, taken_from) if renamed else ())
    _log.warning(
        "%s: brought to catalog version %d (added: %s; renamed: %s)",
        *(location, CATALOG_VERSION),
        ", ".join(name for name in table.column_names if name not in taken_from) or "no column",
        ", ".join(f"{name} to {new}" for name, new in renamed.items()) or "no column",
    )


def _begun(spark: SparkSession, location: str) -> Any:
    nothing = _jvm(spark).scala.Option.empty()
    return DeltaTable.forPath(spark, location)._jdt.deltaLog().startTransaction(nothing, nothing)


def _is_clustered(spark: SparkSession, transaction: Any) -> bool:
    domains = _jvm(spark).scala.jdk.javaapi.CollectionConverters.asJava(transaction.snapshot().domainMetadata())
    return any(domain.domain() == _CLUSTERING and not domain.removed() for domain in domains)


def _commit(spark: SparkSession, transaction: Any, actions: Iterable[Any]) -> None:
    jvm = _jvm(spark)
    sequence = jvm.java.util.ArrayList()
    for action in actions:
        sequence.add(action)
    operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    transaction.commit(jvm.org.apache.spark.api.python.PythonUtils.toSeq(sequence), operation)


def _metadata(old: Any, table: Table, fields: list[dict[str, Any]]) -> Any:
    properties = old.configuration()
    for name, value in delta_properties(table).items():
        properties = properties.updated(name, value)
    return old.copy(
        *(old.id(), old.name(), table.comment, old.format(), json.dumps({"type": "struct", "fields": fields})),
        *(old.partitionColumns(), properties, old.createdTime()),
    )


def _field(column: SparkColumn) -> dict[str, Any]:
    kind, metadata = json.loads(spark_type(column).json()), {"comment": column.comment}
    return {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": metadata}


def _rewritten(
    spark: SparkSession, location: str, table: Table, transaction: Any, taken_from: Mapping[str, str]
) -> Iterator[Any]:
    """Actions of one commit that write all rows to new files, sorted as in a new table, and remove the old files. The
    transaction reads all files, so it fails if another run has committed rows since it began.
    """
    converters = _jvm(spark).scala.jdk.javaapi.CollectionConverters
    files = converters.asJava(transaction.filterFiles())
    names = [field["name"] for field in json.loads(transaction.metadata().schemaString())["fields"]]
    columns = [(F.col(taken_from[name]) if name in taken_from else F.lit(None)).alias(name) for name in names]
    count = max(1, math.ceil(sum(file.size() for file in files) / FILE_BYTES))
    rows = spark.read.format("delta").load(location).select(*columns)
    rows = rows.repartitionByRange(count, *table.order).sortWithinPartitions(*table.order)
    for file in files:
        yield file.remove()
    yield from converters.asJava(transaction.writeFiles(rows._jdf))


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _version(spark: SparkSession, location: str) -> int | None:
    if not DeltaTable.isDeltaTable(spark, location):
        return None
    # Not by DeltaTable.detail(), which counts the table's files.
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{location}`").collect()}
    return catalog_version_of(location, properties)


class _MakingTable:
    """Makes a table or brings it up to date. Called again as long as another run works on the table."""

    def __init__(self, spark: SparkSession, location: str, table: Table) -> None:
        self._spark, self._location, self._table = spark, location, table
        self._seen: _UncommittedLog | None = None
        self._seen_at = 0.0

    def __call__(self) -> None:
        version = _version(self._spark, self._location)
        if version is None:
            self._make()
        elif version < CATALOG_VERSION:
            upgrade(self._spark, self._location, self._table)

    def _make(self) -> None:
        try:
            _builder(self._spark, self._location, self._table).execute()
        except AnalysisException as error:
            directory, file_system = hadoop_path(self._spark, f"{self._location}/_delta_log")
            if not file_system.exists(directory):
                raise CatalogError(
                    f"{self._location}: cannot make the table {self._table.name}: {spark_message(error)}; "
                    "give --catalog a new or empty directory"
                ) from error
            # There may be a commit by now that Delta does not see yet.
            if (log := _UncommittedLog.of(self._spark, self._location)) is not None:
                self._remove_if_left(log)
            raise TableInTheMakingError(self._location) from error

    def _remove_if_left(self, log: _UncommittedLog) -> None:
        """Remove a log directory without a commit if it has not changed for a while: its run was killed."""
        now = time.monotonic()
        if log != self._seen:
            self._seen, self._seen_at = log, now
        elif now >= self._seen_at + _LEFT_AFTER_SECONDS:
            if log.remove():
                _log.warning("%s: removed, left by a run that ended while it made this table", log.path)
            elif log == _UncommittedLog.of(self._spark, self._location):
                raise CatalogError(
                    f"{log.path}: left by a run that ended while it made this table: remove that directory"
                )


def _builder(spark: SparkSession, location: str, table: Table) -> DeltaTableBuilder:
    """Makes a table without rows. A table from a query's rows would forget which columns are never null."""
    builder = DeltaTable.createIfNotExists(spark).location(location).comment(table.comment)
    for name, value in delta_properties(table).items():
        builder = builder.property(name, value)
    for column in table.columns:
        builder = builder.addColumn(column.name, spark_type(column), nullable=column.nullable, comment=column.comment)
    return builder


class SparkTables:
    """See `kidxlib.tables.protocol.Tables`. Executors read the rows for a change, and the driver computes it. The path
    has no slash at its end. If there is a database, the tables are registered there.
    """

    def __init__(self, spark: SparkSession, path: str, database: str | None = None) -> None:
        self.path = path
        self.spark, self._database = spark, database

    def version(self, table: Table) -> int | None:
        version = int(self.snapshot(table).version())
        return None if version < 0 else version

    def catalog_version(self, table: Table) -> int | None:
        snapshot = self.snapshot(table)
        if snapshot.version() < 0:
            return None
        converters = _jvm(self.spark).scala.jdk.javaapi.CollectionConverters
        properties = converters.asJava(snapshot.metadata().configuration())
        return catalog_version_of(self.place(table), dict(properties))

    def for_workers(self) -> TablesToRead | None:
        return None

    def make(self, table: Table) -> None:
        """See `Tables.make`. A table of an older version is brought to this one."""
        place = self.place(table)
        while_others_commit(place, self.lock_place, _MakingTable(self.spark, place, table))
        if self._database is not None:
            name, location = f"`{self._database}`.`{table.name}`", place.replace("\\", "\\\\").replace("'", "\\'")
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING DELTA LOCATION '{location}'")

    def read(
        self,
        table: Table,
        names: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        version: int | None = None,
    ) -> pa.Table:
        schema, rows = table.schema(names), self._rows(table, where, version)
        return schema.empty_table() if rows is None else rows.select(*schema.names).toArrow().cast(schema)

    def counts(
        self, table: Table, names: Sequence[str], where: Sequence[Condition] = (), version: int | None = None
    ) -> pa.Table:
        schema, rows = table.schema(names), self._rows(table, where, version)
        whole = schema.append(ROWS)
        if rows is None:
            return whole.empty_table()
        return rows.groupBy(*schema.names).agg(F.count("*").alias(ROWS.name)).toArrow().cast(whole)

    def first_and_last(
        self, table: Table, by: Sequence[str], columns: FirstAndLast, where: Sequence[Condition] = ()
    ) -> pa.Table:
        schema, rows = columns.schema(table, by), self._rows(table, where)
        if rows is None:
            return schema.empty_table()
        first, last = F.min(columns.order).alias("first"), F.max_by(columns.last_column, columns.order).alias("last")
        return rows.groupBy(*schema.names[:-2]).agg(first, last).toArrow().cast(schema)

    def ask(self, question: SqlQuestion) -> pa.Table:
        rows: dict[str, Any] = {table.name: self._rows(table, ()) for table in question.tables}
        if None in rows.values():
            return question.schema.empty_table()
        # No views with these names are made, as the user's session may have its own.
        named = ", ".join(f"{name} AS (SELECT * FROM {{{name}}})" for name in rows)
        answer = self.spark.sql(f"WITH {named} ({question.sql})", **rows)
        return answer.toArrow().cast(question.schema)

    def change_rows(
        self,
        table: Table,
        found: Found,
        change: Change,
        *,
        by: Sequence[str],
        since: int | None = None,
        build_id: str = "",
    ) -> int:
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
        addition = TableChange.adding(table, pa.table(rows))
        if self.version(table) is None:
            self.make(table)
        while_others_commit(self.place(table), self.lock_place, lambda: self._merge(table, addition))

    @property
    def lock_place(self) -> str:
        """The catalog's local path, or else its URL, for `kidxlib.tables.delta_commits`. Hadoop decides which: a path
        without a scheme may be in HDFS.
        """
        directory, file_system = hadoop_path(self.spark, self.path)
        uri = file_system.makeQualified(directory).toUri()
        return str(uri.getPath() if uri.getScheme() == "file" else uri.toString())

    def place(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    def snapshot(self, table: Table) -> Any:
        """Delta's snapshot of the latest version, without a query; version −1 if there is no table."""
        jvm = _jvm(self.spark)
        nothing = jvm.scala.Option.empty()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.place(table))
        return log.update(False, nothing, nothing)

    def _rows(self, table: Table, where: Sequence[Condition], version: int | None = None) -> DataFrame | None:
        """The rows that meet all conditions; None if there is no such table."""
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
        # Each file has the table's order. A global order, which compaction makes from time to time, would compute the
        # rows twice, once to find the bounds.
        written = of_arrow(self.spark, pa.concat_tables([change.inserts, change.updates]))
        written = written.sortWithinPartitions(*table.order)
        if not change.deletes.num_rows:
            merge = target.merge(written.alias("new"), _are_same(table.key))
            if change.updates.num_rows:  # a merge that only inserts is a simpler one
                merge = merge.whenMatchedUpdate(set=values)
            merge.whenNotMatchedInsert(values=values).execute()
            return
        deletes = of_arrow(self.spark, change.deletes.select(table.key)).withColumn(_DELETED, F.lit(True))
        rows = written.withColumn(_DELETED, F.lit(False)).unionByName(deletes, allowMissingColumns=True)
        merge = target.merge(rows.alias("new"), _are_same(table.key)).whenMatchedDelete(f"new.{_DELETED}")
        merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values).execute()


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
            keys = of_arrow(self.tables.spark, rows).alias("new")
            target.alias("old").merge(keys, _are_same(rows.column_names)).whenMatchedDelete().execute()

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
        except _CONFLICTS:
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
