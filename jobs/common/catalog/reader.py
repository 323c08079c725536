"""What the catalog is asked: its tables, and what jobs need of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.catalog.known_segments import known_segments
from jobs.common.catalog.status import is_present
from jobs.common.spark.hadoop import hadoop_path
from jobs.common.spark.local_rows import of_driver
from kidxlib.build.changes import FirstPresent
from kidxlib.catalog.builds import BUILDS
from kidxlib.catalog.partitions import PARTITIONS, PartitionRow
from kidxlib.catalog.rows import Table
from kidxlib.catalog.segment_views import SegmentToFinish
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import PRODUCER_EVENTS
from kidxlib.format.topic_partition import PartitionKey

_PARTITION_KEY: Final = PARTITIONS.schema(PARTITIONS.key)
_TOPIC: Final = pa.schema([pa.field("topic", pa.string())])


@dataclass(frozen=True, slots=True)
class CatalogReader:
    """What is asked of a catalog by the path or URL of its directory; nothing here changes it."""

    spark: SparkSession
    path: str

    @property
    def lock_place(self) -> str:
        """Where `kidxlib.tables.commit_lock` finds the catalog: its path where that is a local one, else its URL.

        Hadoop decides, as a path without a scheme may be one of HDFS.
        """
        directory, file_system = hadoop_path(self.spark, self.path)
        uri = file_system.makeQualified(directory).toUri()
        return str(uri.getPath() if uri.getScheme() == "file" else uri.toString())

    def table_path(self, table: Table) -> str:
        return f"{self.path}/{table.name}"

    def read(self, table: Table) -> DataFrame:
        return self.spark.read.format("delta").load(self.table_path(table))

    def known_segments(self, sources: Sequence[str], topics: re.Pattern[str]) -> pa.Table:
        """The rows of `KNOWN` that the catalog has of some sources and topics."""
        return known_segments(self.read(SEGMENTS).where(F.col("source").isin(*sources)), topics)

    def index_directories_of_others(self, sources: Sequence[str]) -> dict[str, str]:
        """The index directories of every source but these, and whose they are."""
        rows = self.read(SEGMENTS).where(~F.col("source").isin(*sources) & is_present())
        rows = rows.select("index_directory", "source").distinct()
        return {row["index_directory"]: row["source"] for row in rows.toArrow().to_pylist()}

    def last_rate(self) -> float | None:
        """Bytes a second at which the last build that read anything did so; None where none did."""
        rows = self.read(BUILDS).where("log_bytes > 0 AND scan_seconds > 0").orderBy(F.desc("started_at")).limit(1)
        row = rows.select((F.col("log_bytes") / F.col("scan_seconds")).alias("rate")).head()
        return float(row["rate"]) if row else None

    def to_finish(self, partitions: Mapping[PartitionKey, FirstPresent]) -> DataFrame:
        """What some partitions are folded from: rows for `finish_on_executors`.

        Segments that are gone or deleted count as long as they lie before the first one that is present, and are of the
        same topic: retention took them, and what was seen in them still holds. After it, compaction may have merged
        them into others.
        """
        first_present = (pa.field("present_topic_id", pa.string()), pa.field("first_present", pa.int64()))
        rows = [(*key, first.topic_id, first.base_offset) for key, first in partitions.items()]
        columns = pa.schema([*_PARTITION_KEY, *first_present])
        wanted = F.broadcast(of_driver(self.spark, rows, columns))
        usable = is_present() | (
            (F.col("base_offset") < F.col("first_present")) & F.col("topic_id").eqNullSafe(F.col("present_topic_id"))
        )
        segments = self.read(SEGMENTS).join(wanted, list(PARTITIONS.key)).where(usable)
        event_columns = [name for name in PRODUCER_EVENTS.column_names if name not in SEGMENTS.key]
        events = self.read(PRODUCER_EVENTS).join(wanted, list(PARTITIONS.key), "left_semi")
        events = events.join(segments.select(*SEGMENTS.key), list(SEGMENTS.key), "left_semi")
        heads = segments.select(
            *SEGMENTS.key,
            F.lit(-1).cast("bigint").alias("position"),
            F.struct(*SegmentToFinish.names()).alias("segment"),
        )
        events = events.select(*SEGMENTS.key, "position", F.struct(*event_columns).alias("event"))
        return heads.unionByName(events, allowMissingColumns=True)

    def withdrawn(self, finished: DataFrame) -> DataFrame:
        """The segments that finishing found to be quarantined, with their logs, and `status_before`."""
        now = self.read(SEGMENTS).select(*SEGMENTS.key, F.col("status").alias("status_before"), "log_path")
        return finished.where("status IS NOT NULL").join(now, list(SEGMENTS.key))

    def known_partitions(self, sources: Collection[str]) -> list[PartitionRow]:
        """The rows of `partitions` of some sources."""
        return PartitionRow.of_arrow(self.read(PARTITIONS).where(F.col("source").isin(*sources)).toArrow())

    def offsets(self, sources: Collection[str]) -> dict[PartitionKey, tuple[int, int | None]]:
        """The first base offset and the last next offset of the segments that are present, by partition."""
        last = F.max(F.struct("base_offset", "next_offset"))["next_offset"]
        rows = self.read(SEGMENTS).where(F.col("source").isin(*sources) & is_present())
        rows = rows.groupBy(*PARTITIONS.key).agg(F.min("base_offset").alias("first"), last.alias("next"))
        return {
            (row["source"], row["topic"], row["partition"]): (row["first"], row["next"])
            for row in rows.toArrow().to_pylist()
        }

    def topics(self, *, gone_too: bool = False) -> dict[str, set[str]]:
        """The topics that have segments in a source, or had, by source."""
        found: dict[str, set[str]] = defaultdict(set)
        rows = self.read(SEGMENTS) if gone_too else self.read(SEGMENTS).where(is_present())
        for row in rows.select("source", "topic").distinct().collect():
            found[row["source"]].add(row["topic"])
        return dict(found)

    def source_paths(self) -> dict[str, str]:
        """The path of each source, as the last build that read it was given it."""
        builds = self.read(BUILDS).select("started_at", F.explode("sources").alias("source", "path"))
        rows = builds.groupBy("source").agg(F.max_by("path", "started_at").alias("path")).collect()
        return {row["source"]: row["path"] for row in rows}
