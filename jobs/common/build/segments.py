"""Segments read on executors, biggest first, and one row of facts back for each."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.counters import Counters
from jobs.common.spark.executors import NEVER, on_executors
from jobs.common.spark.stop_file import StopFile
from kidxlib.build.source import Source
from kidxlib.build.tasks import BuildTask
from kidxlib.catalog.results import SCANNED
from kidxlib.operations.build.scan_work import scan_segments


def build_on_executors(
    spark: SparkSession,
    bins: Sequence[Sequence[BuildTask]],
    sources: Sequence[Source],
    counters: Counters,
    stop: StopFile = NEVER,
) -> DataFrame:
    """Rows of `SCANNED`, one per segment and one per event; see `on_executors`."""
    return on_executors(spark, bins, sources, counters, scan_segments, SCANNED, stop)
