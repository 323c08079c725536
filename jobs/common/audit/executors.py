"""An audit on executors: segments in any order, then each partition where it lies in one piece and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.audit.segment_rows import from_segment_row, to_segment_row
from jobs.common.spark.counters import Counters
from jobs.common.spark.executors import on_executors
from jobs.common.spark.local_rows import of_driver
from jobs.common.spark.partitioning import by_partition
from jobs.common.spark.schema import spark_schema
from kidxlib.audit.partition import audit_partition
from kidxlib.audit.plan import PartitionAudit
from kidxlib.audit.rows import Kind, rows_of_partition, rows_of_segment
from kidxlib.audit.segment import audit_segment
from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.source import Source
from kidxlib.build.tasks import ScanTask
from kidxlib.catalog.audit_results import AUDITED, FOUND, AuditedSegmentRow
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.transactions import PRODUCER_EVENTS
from kidxlib.engine.row_batches import row_batches
from kidxlib.engine.work import ItemRows
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.events import event_batches, with_events

#: What tells a row of a partition as such from its segments.
_NO_SEGMENT: Final = -1


def audit_segments(
    spark: SparkSession,
    bins: Sequence[Sequence[ScanTask]],
    sources: Sequence[Source],
    audits: Mapping[PartitionKey, PartitionAudit],
    counters: Counters,
    *,
    deep: bool,
) -> DataFrame:
    """Rows of `AUDITED`; see `on_executors`. Nothing is written beside the source."""
    known_audits = spark.sparkContext.broadcast(dict(audits))

    def audit(tasks: Iterable[ScanTask], use_mmap: bool) -> Iterator[ItemRows]:
        for task in tasks:
            segment = task.segment
            of_partition = known_audits.value[segment.partition_key]
            clean_shutdown = of_partition.last_stop.clean_shutdown
            audited = audit_segment(task, use_mmap, deep=deep, clean_shutdown=clean_shutdown)
            found = rows_of_segment(segment.source, of_partition, audited)
            rows = [{Kind.FILE.value: row.values()} for row in found]
            events = event_batches(segment, audited.scanned.producer_events, AUDITED)
            row = {"segment": to_segment_row(segment, audited).values()}
            yield ItemRows(segments=1, log_bytes=task.log_bytes, batches=events, rows=[*rows, row])

    return on_executors(spark, bins, sources, counters, audit, AUDITED)


def audit_partitions(audited: DataFrame, audits: Mapping[PartitionKey, PartitionAudit]) -> DataFrame:
    """All that is found, as rows of `FOUND`, computed where they are used.

    Args:
        audited: what `audit_segments` gave, computed.
        audits: what there is to audit of each partition, with or without segments.
    """
    spark = audited.sparkSession
    known_audits = spark.sparkContext.broadcast(dict(audits))

    def found_in(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, dict[str, Any]]]:
        for key, rows in groupby(with_events(batches), key=lambda row: _partition_key(row[0])):
            segments = (
                from_segment_row(AuditedSegmentRow.of_dict(head["segment"]), events)
                for head, events in rows
                if head["base_offset"] != _NO_SEGMENT
            )
            task = known_audits.value[key]
            found = rows_of_partition(key[0], task, audit_partition(task, segments))
            yield from ({kind.value: row.values()} for kind, of_kind in found.by_kind().items() for row in of_kind)

    def audit_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from row_batches(found_in(batches), FOUND)

    key, no_position = list(SEGMENTS.key), F.lit(-1).cast("bigint").alias("position")
    partitions = of_driver(spark, [(*key_, _NO_SEGMENT) for key_ in audits], _KEY_SCHEMA)
    segments = audited.where("segment IS NOT NULL").select(
        *(f"segment.{name}" for name in key), no_position, F.struct("segment.*").alias("segment")
    )
    event_columns = [F.col(f"event.{name}") for name in PRODUCER_EVENTS.column_names if name not in key]
    events = audited.where("event IS NOT NULL").select(
        *(f"event.{name}" for name in key), "event.position", F.struct(*event_columns).alias("event")
    )
    rows = partitions.select(*key, no_position)
    for more in (segments, events):
        rows = rows.unionByName(more, allowMissingColumns=True)
    shares = min(len(audits), spark.sparkContext.defaultParallelism * BINS_PER_CORE)
    found = by_partition(rows, shares).mapInArrow(audit_all, spark_schema(FOUND))
    files = audited.where(f"{Kind.FILE} IS NOT NULL").select(Kind.FILE.value)
    return found.unionByName(files, allowMissingColumns=True)


_KEY_SCHEMA: Final = SEGMENTS.schema(SEGMENTS.key)


def _partition_key(head: dict[str, Any]) -> PartitionKey:
    source, topic, partition = (head[name] for name in PARTITIONS.key)
    return source, topic, partition
