"""The catalog: Delta tables under one directory, or the same tables registered in a database of a metastore.

Rows are written once, from results that lie on disk already: a job's results go to a staging directory first, so that
no retry of a catalog commit makes executors read a log again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.commit_retry import while_others_commit
from jobs.common.catalog.merge import (
    merge_finished_rows,
    merge_scanned,
    merge_whole_rows,
    replace_rows,
    same_key,
)
from jobs.common.catalog.reader import CatalogReader
from jobs.common.spark.hadoop import hadoop_path
from jobs.common.spark.local_rows import of_arrow, of_driver
from kidxlib.build.changes import Changes
from kidxlib.catalog.builds import BUILDS, BuildRow
from kidxlib.catalog.partitions import PARTITIONS, PartitionRow
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segments import LATER_NAMES, SEGMENTS
from kidxlib.catalog.transactions import ABORTED_TRANSACTIONS, PRODUCER_EVENTS
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.outcome import Status
from kidxlib.run.catalog_place import STAGING

#: The years that every reader of a SQL timestamp can show (1 to 9999), in milliseconds since the epoch.
_SQL_TIMESTAMP_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
_PARTITION_KEY: Final = PARTITIONS.schema(PARTITIONS.key)
_SEGMENT_KEY: Final = SEGMENTS.schema(SEGMENTS.key)

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Catalog(CatalogReader):
    """A catalog that is asked, and written to: each change is one commit of one table."""

    @property
    def staging_path(self) -> str:
        """The directory for what runs have not yet recorded."""
        return f"{self.path}/{STAGING}"

    @contextlib.contextmanager
    def staging(self, name: str) -> Iterator[Callable[[DataFrame], DataFrame]]:
        """A function that computes a DataFrame once, into a directory that goes at the end."""
        path = f"{self.staging_path}/{name}"

        def materialise(results: DataFrame) -> DataFrame:
            results.write.parquet(path)
            return self.spark.read.schema(results.schema).parquet(path)

        try:
            yield materialise
        finally:
            directory, file_system = hadoop_path(self.spark, path)
            file_system.delete(directory, True)

    def sweep_staging(self, older_than_ms: int) -> None:
        """Remove what killed runs left in the staging directory, where it was last written before `older_than_ms`."""
        directory, file_system = hadoop_path(self.spark, self.staging_path)
        if file_system.exists(directory):
            for entry in file_system.listStatus(directory):
                if entry.getModificationTime() < older_than_ms:
                    file_system.delete(entry.getPath(), True)

    def record_scanned(self, segments: DataFrame, events: DataFrame, build_id: str) -> int:
        """Record segments that were read; `events` are all that is known of what producers did in them.

        Returns:
            How many rows of `segments` were added or changed.
        """
        # The events first: a segment that is recorded is not read again.
        self._replace_events(segments, events)
        return self._record_segments(segments, build_id)

    def _record_segments(self, results: DataFrame, build_id: str) -> int:
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
        return self.commit(SEGMENTS, lambda target: merge_scanned(target, rows))

    def _replace_events(self, results: DataFrame, events: DataFrame) -> None:
        """Make `events` all that `producer_events` has of the segments in `results`."""
        scope = results.select(*SEGMENTS.key)
        self.commit(PRODUCER_EVENTS, lambda target: replace_rows(target, PRODUCER_EVENTS, scope, events))

    def merge_finished(self, finished: DataFrame, build_id: str) -> int:
        """Write into `segments` what finishing their partitions added; rows that say the same are not touched.

        Returns:
            How many rows were changed that this build had not changed before.
        """
        rows = finished.withColumn("build_id", F.lit(build_id))
        return self.commit(SEGMENTS, lambda target: merge_finished_rows(target, rows))

    def replace_aborted(self, partitions: Collection[PartitionKey], aborted: DataFrame) -> None:
        """Make `aborted` all that `aborted_transactions` has of some partitions."""
        scope = of_driver(self.spark, partitions, _PARTITION_KEY)
        self.commit(ABORTED_TRANSACTIONS, lambda target: replace_rows(target, ABORTED_TRANSACTIONS, scope, aborted))

    def merge_partitions(self, rows: Sequence[PartitionRow]) -> None:
        """Add or replace rows of `partitions`."""
        new = of_driver(self.spark, [tuple(row.values().values()) for row in rows], PARTITIONS.schema())

        self.commit(PARTITIONS, lambda target: merge_whole_rows(target, PARTITIONS, new))

    def mark(self, changes: Changes, build_id: str) -> int:
        """Write into `segments` what a listing alone shows: segments that are gone, moved, or active or not by now.

        Returns:
            How many rows were changed.
        """
        gone = changes.gone.num_rows
        status, inactive = pa.repeat(pa.scalar(Status.GONE.value), gone), pa.repeat(pa.scalar(False), gone)
        of_gone = changes.gone.append_column("active", inactive).append_column("status", status)
        marks = pa.concat_tables([of_gone, changes.relisted], promote_options="default")
        if not marks.num_rows:
            return 0
        marked = ("active", "log_path", "status")
        of_segments = SEGMENTS.schema()
        schema = pa.schema([*_SEGMENT_KEY, *(of_segments.field(name).with_nullable(True) for name in marked)])
        rows = of_arrow(self.spark, marks.select(schema.names).cast(schema))
        known = {name: F.coalesce(F.col(f"new.{name}"), F.col(f"old.{name}")) for name in marked}

        def commit(target: DeltaTable) -> None:
            merge = target.alias("old").merge(rows.alias("new"), same_key(SEGMENTS))
            merge.whenMatchedUpdate(set={**known, "build_id": F.lit(build_id)}).execute()

        self.commit(SEGMENTS, commit)
        return marks.num_rows

    def append_build(self, build: BuildRow) -> None:
        """Add the row of one run."""
        row = of_driver(self.spark, [tuple(build.values().values())], BUILDS.schema())
        path = self.table_path(BUILDS)
        self.commit(BUILDS, lambda _: row.write.format("delta").mode("append").save(path))

    def commit(self, table: Table, change: Callable[[DeltaTable], _R]) -> _R:
        """Change one table; again, as long as another job changes it at the same moment.

        Raises:
            CatalogError: other jobs commit all the time.
        """
        path = self.table_path(table)
        return while_others_commit(path, self.lock_place, lambda: change(DeltaTable.forPath(self.spark, path)))


def _sql_timestamp(milliseconds: str) -> Column:
    """A column of Kafka's milliseconds as a SQL timestamp; null where Kafka has none (−1) or no calendar shows it."""
    value = F.col(milliseconds)
    return F.when((value != -1) & value.between(*_SQL_TIMESTAMP_MS), F.timestamp_millis(value))
