"""The catalog: Delta tables under one folder, or the same tables registered in a database of a metastore.

Rows are written once, from results that lie on disk already: a job's results go to a staging folder first, so that no
retry of a catalog commit makes executors read a log again.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Final, TypeVar

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from jobs.common.commits import while_others_commit
from jobs.common.driver_rows import of_driver
from jobs.common.finish_partitions import SEGMENT_COLUMNS
from jobs.common.hadoop import hadoop_path
from jobs.common.known_segments import KnownSegments
from jobs.common.tables import (
    ABORTED_TRANSACTIONS,
    BUILDS,
    COARSENED_NAMES,
    FINDINGS,
    FINISHED_NAMES,
    LATER_NAMES,
    LOG_VERSION_NAMES,
    PARTITIONS,
    PRODUCER_EVENTS,
    READ_NAMES,
    RETENTION_PLANS,
    SEGMENTS,
    Table,
    spark_schema,
)
from kidxlib.build import IntervalSource
from kidxlib.plan import Changes, FirstPresent, Known, PartitionKey
from kidxlib.recover import ABSENT, Status

#: The years that every reader of a SQL timestamp can show (1 to 9999), in milliseconds since the epoch.
_SQL_TIMESTAMP_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
STAGING: Final = "_staging"
#: What compaction needs of a row of `segments`.
TO_COMPACT_COLUMNS: Final = (
    *SEGMENTS.key,
    *("status", "active", *LOG_VERSION_NAMES, "valid_bytes", "max_timestamp_ms", "interval_bytes", "max_index_bytes"),
    *("offsets_increase", "producer_state", "offset_index_crc32c", "time_index_crc32c", "transaction_index_crc32c"),
    *("log_path", "index_folder"),
)
_PARTITION_KEY: Final = PARTITIONS.schema(PARTITIONS.key)
_SEGMENT_KEY: Final = SEGMENTS.schema(SEGMENTS.key)
_TOPIC: Final = t.StructType([t.StructField("topic", t.StringType())])

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog by the path or URL of its folder."""

    spark: SparkSession
    path: str

    def table_path(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    def read(self, table: Table) -> DataFrame:
        return self.spark.read.format("delta").load(self.table_path(table))

    def known_segments(self, sources: Sequence[str], topics: re.Pattern[str]) -> Known:
        """What the catalog says of the segments of some sources and topics."""
        return KnownSegments(self.read(SEGMENTS).where(F.col("source").isin(*sources)), topics)

    def index_folders_of_others(self, sources: Sequence[str]) -> dict[str, str]:
        """The index folders of every source but these, and whose they are."""
        rows = self.read(SEGMENTS).where(~F.col("source").isin(*sources) & is_present())
        rows = rows.select("index_folder", "source").distinct()
        return {row["index_folder"]: row["source"] for row in rows.toArrow().to_pylist()}

    def last_rate(self) -> float | None:
        """Bytes a second at which the last build that read anything did so; None where none did."""
        rows = self.read(BUILDS).where("log_bytes > 0 AND scan_seconds > 0").orderBy(F.desc("started_at")).limit(1)
        row = rows.select((F.col("log_bytes") / F.col("scan_seconds")).alias("rate")).head()
        return float(row["rate"]) if row else None

    @property
    def staging_path(self) -> str:
        """The folder for what runs have not yet recorded."""
        return f"{self.path}/{STAGING}"

    @contextlib.contextmanager
    def staging(self, name: str) -> Iterator[Callable[[DataFrame], DataFrame]]:
        """A function that computes a DataFrame once, into a folder that goes at the end."""
        path = f"{self.staging_path}/{name}"

        def materialise(results: DataFrame) -> DataFrame:
            results.write.parquet(path)
            return self.spark.read.schema(results.schema).parquet(path)

        try:
            yield materialise
        finally:
            folder, file_system = hadoop_path(self.spark, path)
            file_system.delete(folder, True)

    def sweep_staging(self, older_than_ms: int) -> None:
        """Remove what killed runs left in the staging folder, where it was last written before `older_than_ms`."""
        folder, file_system = hadoop_path(self.spark, self.staging_path)
        if file_system.exists(folder):
            for entry in file_system.listStatus(folder):
                if entry.getModificationTime() < older_than_ms:
                    file_system.delete(entry.getPath(), True)

    def record_scanned(self, segments: DataFrame, events: DataFrame, build_id: str) -> int:
        """Record segments that were read; `events` are all that is known of what producers did in them.

        Returns:
            How many rows of `segments` were added or changed.
        """
        # The events first: a segment that is recorded is not read again.
        self._replace_events(segments, events)
        return self._merge_segments(segments, build_id)

    def _merge_segments(self, results: DataFrame, build_id: str) -> int:
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
            .select(*(name for name in SEGMENTS.column_names if name not in LATER_NAMES))
        )
        return self._commit(SEGMENTS, lambda target: _merge_segments(target, rows))

    def _replace_events(self, results: DataFrame, events: DataFrame) -> None:
        """Make `events` all that `producer_events` has of the segments in `results`."""
        scope = results.select(*SEGMENTS.key)
        self._commit(PRODUCER_EVENTS, lambda target: _replace(target, PRODUCER_EVENTS, scope, events))

    def to_finish(self, partitions: Mapping[PartitionKey, FirstPresent]) -> DataFrame:
        """What some partitions are folded from: rows for `finish_on_executors`.

        Segments that are gone or deleted count as long as they lie before the first one that is present, and are of the
        same topic: retention took them, and what was seen in them still holds. Behind it, compaction may have merged
        them into others.
        """
        first_present = (
            t.StructField("present_topic_id", t.StringType()),
            t.StructField("first_present", t.LongType()),
        )
        rows = [(*key, first.topic_id, first.base_offset) for key, first in partitions.items()]
        columns = t.StructType([*_PARTITION_KEY, *first_present])
        wanted = F.broadcast(of_driver(self.spark, rows, columns))
        usable = is_present() | (
            (F.col("base_offset") < F.col("first_present")) & F.col("topic_id").eqNullSafe(F.col("present_topic_id"))
        )
        segments = self.read(SEGMENTS).join(wanted, list(PARTITIONS.key)).where(usable)
        event_columns = [name for name in PRODUCER_EVENTS.column_names if name not in SEGMENTS.key]
        events = self.read(PRODUCER_EVENTS).join(wanted, list(PARTITIONS.key), "left_semi")
        events = events.join(segments.select(*SEGMENTS.key), list(SEGMENTS.key), "left_semi")
        return segments.select(
            *SEGMENTS.key, F.lit(-1).cast("bigint").alias("position"), F.struct(*SEGMENT_COLUMNS).alias("segment")
        ).unionByName(
            events.select(*SEGMENTS.key, "position", F.struct(*event_columns).alias("event")), allowMissingColumns=True
        )

    def withdrawn(self, finished: DataFrame) -> DataFrame:
        """The segments that finishing found to be quarantined, with their logs, and `status_before`."""
        now = self.read(SEGMENTS).select(*SEGMENTS.key, F.col("status").alias("status_before"), "log_path")
        return finished.where("status IS NOT NULL").join(now, list(SEGMENTS.key))

    def merge_finished(self, finished: DataFrame, build_id: str) -> int:
        """Write into `segments` what finishing their partitions added; rows that say the same are not touched.

        Returns:
            How many rows were changed that this build had not changed before.
        """
        rows = finished.withColumn("build_id", F.lit(build_id))
        return self._commit(SEGMENTS, lambda target: _merge_finished(target, rows))

    def replace_aborted(self, partitions: Collection[PartitionKey], aborted: DataFrame) -> None:
        """Make `aborted` all that `aborted_transactions` has of some partitions."""
        scope = of_driver(self.spark, partitions, _PARTITION_KEY)
        self._commit(ABORTED_TRANSACTIONS, lambda target: _replace(target, ABORTED_TRANSACTIONS, scope, aborted))

    def known_partitions(self, sources: Collection[str]) -> list[dict[str, Any]]:
        """The rows of `partitions` of some sources."""
        return self.read(PARTITIONS).where(F.col("source").isin(*sources)).toArrow().to_pylist()

    def offsets(self, sources: Collection[str]) -> dict[PartitionKey, tuple[int, int | None]]:
        """By partition, the first segment's base offset and the last segment's next offset, of what is not gone."""
        last = F.max(F.struct("base_offset", "next_offset"))["next_offset"]
        rows = self.read(SEGMENTS).where(F.col("source").isin(*sources) & is_present())
        rows = rows.groupBy(*PARTITIONS.key).agg(F.min("base_offset").alias("first"), last.alias("next"))
        return {
            (row["source"], row["topic"], row["partition"]): (row["first"], row["next"])
            for row in rows.toArrow().to_pylist()
        }

    def merge_partitions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace rows of `partitions`; each has a value for every column."""
        values = [tuple(row[name] for name in PARTITIONS.column_names) for row in rows]
        new = of_driver(self.spark, values, spark_schema(PARTITIONS.columns))

        def commit(target: DeltaTable) -> None:
            merge = target.alias("old").merge(new.alias("new"), _same_key(PARTITIONS))
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

        self._commit(PARTITIONS, commit)

    def mark(self, changes: Changes, build_id: str) -> int:
        """Write into `segments` what a listing alone shows: segments that are gone, moved, or active or not by now.

        Returns:
            How many rows were changed.
        """
        marks: list[tuple[str, str, int, int, bool, str | None, str | None]]
        marks = [(*key, base_offset, False, None, Status.GONE.value) for key, base_offset in changes.gone]
        for task in changes.relisted:
            segment, topic_partition = task.segment, task.segment.topic_partition
            key = (segment.source, topic_partition.topic, topic_partition.partition)
            marks.append((*key, segment.base_offset, segment.active, segment.path, None))
        if not marks:
            return 0
        marked = ("active", "log_path", "status")
        types = {column.name: column.type for column in SEGMENTS.columns}
        schema = t.StructType([*_SEGMENT_KEY, *(t.StructField(name, types[name]) for name in marked)])
        rows = of_driver(self.spark, marks, schema)
        known = {
            name: F.coalesce(F.col(f"new.{name}"), F.col(f"old.{name}")) for name in ("active", "log_path", "status")
        }

        def commit(target: DeltaTable) -> None:
            merge = target.alias("old").merge(rows.alias("new"), _same_key(SEGMENTS))
            merge.whenMatchedUpdate(set={**known, "build_id": F.lit(build_id)}).execute()

        self._commit(SEGMENTS, commit)
        return len(marks)

    def topics(self, *, gone_too: bool = False) -> dict[str, set[str]]:
        """By source, the topics that have segments in it, or had."""
        found: dict[str, set[str]] = defaultdict(set)
        rows = self.read(SEGMENTS) if gone_too else self.read(SEGMENTS).where(is_present())
        for row in rows.select("source", "topic").distinct().collect():
            found[row["source"]].add(row["topic"])
        return dict(found)

    def to_plan(self, sources: Collection[str], topics: Collection[str]) -> DataFrame:
        """The segments that are present, with the offsets that checkpoints gave of their partitions."""
        wanted = F.broadcast(of_driver(self.spark, [(topic,) for topic in topics], _TOPIC))
        segments = self.read(SEGMENTS).where(F.col("source").isin(*sources) & is_present())
        partitions = self.read(PARTITIONS).select(*PARTITIONS.key, "log_start_offset", "high_watermark")
        columns = ("next_offset", "status", "log_bytes", "valid_bytes", "max_timestamp_ms", "log_mtime_ns", "log_inode")
        return (
            segments.select(*SEGMENTS.key, "topic_id", "records", *columns, "log_path", "index_folder")
            .join(wanted, "topic", "left_semi")
            .join(partitions, list(PARTITIONS.key), "left")
        )

    def to_compact(self, sources: Collection[str], topics: Collection[str]) -> DataFrame:
        """All segments of some sources and topics, those that are gone too."""
        wanted = F.broadcast(of_driver(self.spark, [(topic,) for topic in topics], _TOPIC))
        segments = self.read(SEGMENTS).where(F.col("source").isin(*sources))
        return segments.select(*TO_COMPACT_COLUMNS).join(wanted, "topic", "left_semi")

    def record_coarsened(self, changes: DataFrame) -> None:
        """Write into `segments` which indexes compaction has replaced, where their logs are what they were.

        Args:
            changes: rows of `COMPACTED_SCHEMA`, of segments whose indexes are in place.
        """
        rows = changes.select(*SEGMENTS.key, *COARSENED_NAMES, *LOG_VERSION_NAMES)
        if rows.isEmpty():
            return
        values: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in COARSENED_NAMES}
        values["interval_source"] = F.lit(IntervalSource.COMPACTION.value)

        def commit(target: DeltaTable) -> None:
            merge = target.alias("old").merge(rows.alias("new"), _same_key(SEGMENTS))
            merge.whenMatchedUpdate(condition=_same(LOG_VERSION_NAMES), set=values).execute()

        self._commit(SEGMENTS, commit)

    def append_plan(self, planned: DataFrame) -> None:
        """Add the rows of one plan."""
        path = self.table_path(RETENTION_PLANS)
        self._commit(RETENTION_PLANS, lambda _: planned.write.format("delta").mode("append").save(path))

    def plan(self, plan_id: str) -> DataFrame:
        """The rows of a plan."""
        return self.read(RETENTION_PLANS).where(F.col("plan_id") == plan_id)

    def record_audit(self, findings: DataFrame, audit_id: str, now: datetime) -> None:
        """Make `findings` all that there is of an audit, in one commit: one that is run again replaces its own rows."""
        columns = {"audit_id": F.lit(audit_id), "audited_at": F.lit(now)}
        rows = findings.withColumns(columns).select(*FINDINGS.column_names)
        path = self.table_path(FINDINGS)
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", f"audit_id = '{audit_id}'")
        self._commit(FINDINGS, lambda _: writer.save(path))

    def audited_sources(self) -> list[str]:
        """The sources that were ever audited."""
        return [row["source"] for row in self.read(FINDINGS).select("source").distinct().collect()]

    def last_findings(self, sources: Collection[str], verdicts: Collection[str]) -> DataFrame:
        """Rows of `findings` with one of some verdicts, of the audit that last looked at their partition: an audit of
        other topics says nothing of it. Without those of segments that are gone from their source.
        """
        all_findings = self.read(FINDINGS).where(F.col("source").isin(*sources))
        found = all_findings.where(F.col("verdict").isin(*verdicts))
        last = F.max(F.struct("audited_at", "audit_id"))["audit_id"].alias("audit_id")
        audited = all_findings.join(found.select(*PARTITIONS.key).distinct(), list(PARTITIONS.key), "left_semi")
        audits = audited.groupBy(*PARTITIONS.key).agg(last)
        absent = F.col("status").isin(*(status.value for status in ABSENT))
        gone = self.read(SEGMENTS).where(F.col("source").isin(*sources) & absent).select(*SEGMENTS.key)
        there = found.join(gone, list(SEGMENTS.key), "left_anti")
        return there.join(audits, [*PARTITIONS.key, "audit_id"], "left_semi")

    def source_paths(self) -> dict[str, str]:
        """The path of each source, as the last build that read it was given it."""
        builds = self.read(BUILDS).select("started_at", F.explode("sources").alias("source", "path"))
        rows = builds.groupBy("source").agg(F.max_by("path", "started_at").alias("path")).collect()
        return {row["source"]: row["path"] for row in rows}

    def mark_deleted(self, segments: Collection[tuple[str, str, int, int]], now: datetime) -> None:
        """Write into `segments` which of them were deleted, and when; those that are marked already stay as they are.

        Args:
            segments: keys.
        """
        rows = of_driver(self.spark, segments, _SEGMENT_KEY)
        status = F.lit(Status.DELETED.value)
        values: dict[str, Column | str] = {"status": status, "active": F.lit(False), "deleted_at": F.lit(now)}

        def commit(target: DeltaTable) -> None:
            merge = target.alias("old").merge(rows.alias("new"), _same_key(SEGMENTS))
            merge.whenMatchedUpdate(condition=F.col("old.status") != status, set=values).execute()

        self._commit(SEGMENTS, commit)

    def append_build(self, build: dict[str, Any]) -> None:
        """Add the row of one run; `build` has a value for every column."""
        values = [build[name] for name in BUILDS.column_names]
        row = of_driver(self.spark, [values], spark_schema(BUILDS.columns))
        path = self.table_path(BUILDS)
        self._commit(BUILDS, lambda _: row.write.format("delta").mode("append").save(path))

    def _commit(self, table: Table, commit: Callable[[DeltaTable], _R]) -> _R:
        path = self.table_path(table)
        return while_others_commit(path, lambda: commit(DeltaTable.forPath(self.spark, path)))


def is_present() -> Column:
    """Of a row of `segments`: it was in its source when that was last listed, and was not deleted since."""
    return ~F.col("status").isin(*(status.value for status in ABSENT))


def _same_key(table: Table) -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}") == F.col(f"new.{name}") for name in table.key])


def _merge_segments(target: DeltaTable, rows: DataFrame) -> int:
    """Add the rows that are new by key and replace those that differ in what a scan finds; return their number.

    What was added to a row that is replaced becomes null: its partition is to be finished again.
    """
    compared = [name for name in rows.columns if name not in (*SEGMENTS.key, "build_id", *READ_NAMES)]
    same = _same(compared)
    joined = rows.alias("new").join(target.toDF().alias("old"), _same_key(SEGMENTS), "left")
    is_new = F.col("old.source").isNull()
    changed = joined.where(is_new | ~same).select("new.*", is_new.alias("is_new"))
    counted = changed.groupBy("is_new").count().collect()
    values: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in rows.columns}
    values |= dict.fromkeys(LATER_NAMES, F.lit(None))
    if counted:
        merge = target.alias("old").merge(changed.alias("new"), _same_key(SEGMENTS)).whenNotMatchedInsert(values=values)
        if not all(row["is_new"] for row in counted):  # a merge that only inserts is a simpler one
            merge = merge.whenMatchedUpdate(condition=~same, set=values)
        merge.execute()
    return sum(row["count"] for row in counted)


#: A segment that finishing quarantines loses these, as its index files were withdrawn.
_OF_INDEXES: Final = tuple(name for name in SEGMENTS.column_names if name.startswith(("offset_index_", "time_index_")))


def _merge_finished(target: DeltaTable, rows: DataFrame) -> int:
    failed = F.col("new.status").isNotNull()
    values: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in (*FINISHED_NAMES, "build_id")}
    for name in ("status", "reason", "reason_position", "reason_detail"):
        values[name] = F.when(failed, F.col(f"new.{name}")).otherwise(F.col(f"old.{name}"))
    for name in _OF_INDEXES:
        values[name] = F.when(~failed, F.col(f"old.{name}"))
    same = _same(FINISHED_NAMES) & (~failed | F.col("old.status").eqNullSafe(F.col("new.status")))
    joined = rows.alias("new").join(target.toDF().alias("old"), _same_key(SEGMENTS))
    is_first_change = ~F.col("old.build_id").eqNullSafe(F.col("new.build_id"))
    changed = joined.where(~same).select("new.*", is_first_change.alias("is_first_change"))
    counted = changed.agg(F.count("*").alias("all"), F.count_if("is_first_change").alias("first")).head()
    assert counted is not None
    if counted["all"]:
        merge = target.alias("old").merge(changed.alias("new"), _same_key(SEGMENTS))
        merge.whenMatchedUpdate(condition=~same, set=values).execute()
    return int(counted["first"])


def _replace(target: DeltaTable, table: Table, scope: DataFrame, rows: DataFrame) -> None:
    """Make `rows` all that a table has within `scope`, which has some columns of its key; commit only what differs."""
    old = target.toDF().join(scope, scope.columns, "left_semi")
    new: dict[str, Column | str] = {name: F.col(f"new.{name}") for name in table.column_names}
    if old.isEmpty():
        if not rows.isEmpty():
            merge = target.alias("old").merge(rows.alias("new"), _same_key(table))
            merge.whenNotMatchedInsert(values=new).execute()
        return
    compared = [name for name in table.column_names if name not in table.key]
    is_new, is_gone = F.col("old.source").isNull(), F.col("new.source").isNull()
    joined = rows.alias("new").join(old.alias("old"), _same_key(table), "full_outer")
    key = [F.coalesce(f"new.{name}", f"old.{name}").alias(name) for name in table.key]
    values = [F.col(f"new.{name}") for name in compared]
    changed = joined.where(is_new | is_gone | ~_same(compared)).select(*key, *values, is_gone.alias("is_gone"))
    if changed.isEmpty():
        return
    merge = target.alias("old").merge(changed.alias("new"), _same_key(table))
    merge.whenMatchedDelete("new.is_gone").whenMatchedUpdate(set=new).whenNotMatchedInsert(values=new).execute()


def _same(names: Collection[str]) -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}").eqNullSafe(F.col(f"new.{name}")) for name in names])


def _sql_timestamp(milliseconds: str) -> Column:
    """A column of Kafka's milliseconds as a SQL timestamp; null where Kafka has none (−1) or no calendar shows it."""
    value = F.col(milliseconds)
    return F.when((value != -1) & value.between(*_SQL_TIMESTAMP_MS), F.timestamp_millis(value))
