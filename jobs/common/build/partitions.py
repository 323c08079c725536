"""Partitions on executors: each is finished where it lies in one piece and in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.common.spark.partitioning import by_partition
from jobs.common.spark.schema import spark_schema
from jobs.common.spark.stop_file import StopFile
from kidxlib.build.finish.partition import finish
from kidxlib.build.tasks import PartitionTask
from kidxlib.catalog.results import FINISHED
from kidxlib.engine.row_batches import row_batches
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.finish_work import finished_rows, known_partitions


def finish_on_executors(
    rows: DataFrame, tasks: Mapping[PartitionKey, PartitionTask], shares: int, stop: StopFile
) -> DataFrame:
    """Rows of `FINISHED`, computed where they are used: write them somewhere once, and read that.

    Args:
        rows: of `TO_FINISH`.
        tasks: what is to be published of each partition.
        shares: how many Spark tasks do it.
        stop: partitions that are not begun when it is there are left out.
    """
    known_tasks = rows.sparkSession.sparkContext.broadcast(dict(tasks))

    def finish_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finished = finish(stop.until_stopped(known_partitions(batches, known_tasks.value)))
        yield from row_batches(itertools.chain.from_iterable(map(finished_rows, finished)), FINISHED)

    return by_partition(rows, shares).mapInArrow(finish_all, spark_schema(FINISHED))
