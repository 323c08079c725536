"""Compaction on executors: each partition where its rows lie in one piece and in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.common.compaction.changes import change_row
from jobs.common.compaction.tasks import compaction_task
from jobs.common.spark.executors import NEVER, may_map
from jobs.common.spark.schema import spark_schema
from jobs.common.spark.stop_file import StopFile
from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import COMPACTED
from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.compaction.partition import compact
from kidxlib.compaction.task import CompactionOptions, Mode
from kidxlib.engine.row_batches import row_batches


def compact_on_executors(
    rows: DataFrame, sources: Mapping[str, str], options: CompactionOptions, mode: Mode, stop: StopFile = NEVER
) -> DataFrame:
    """Rows of `COMPACTED`, computed where they are used: with `Mode.APPLY` write them somewhere once.

    Args:
        rows: of `Catalog.to_compact`.
        sources: the paths of sources by name.
        stop: partitions that are not begun when it is there are left out.
    """

    def compact_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        segments = (
            (tuple(key.values()), segment)
            for batch in batches
            for key, segment in zip(
                batch.select(PARTITIONS.key).to_pylist(), SegmentToCompact.of_arrow(batch), strict=True
            )
        )
        partitions = groupby(segments, key=lambda row: row[0])
        tasks = (compaction_task(key, [segment for _, segment in rows], sources) for key, rows in partitions)
        to_do = stop.until_stopped(task for task in tasks if task is not None)
        yield from row_batches(map(change_row, compact(to_do, options, mode, may_map())), COMPACTED)

    shares = rows.sparkSession.sparkContext.defaultParallelism * BINS_PER_CORE
    ordered = rows.repartition(shares, *PARTITIONS.key).sortWithinPartitions(*SEGMENTS.key)
    return ordered.mapInArrow(compact_all, spark_schema(COMPACTED))
