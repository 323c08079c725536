"""Spark's Python workers, begun before there is work for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from jobs.common.build.segments import build_on_executors
from jobs.common.spark.counters import Counters


@contextlib.contextmanager
def workers_beginning(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """Start a Python worker on each core within the context, if wanted, and let it import what tasks need. That takes a
    second or two, while the driver prepares the work.
    """
    with ThreadPoolExecutor(1) as beside:
        begun = beside.submit(_begin_workers, spark) if wanted else None
        yield
        if begun is not None:
            begun.result()


def _begin_workers(spark: SparkSession) -> None:
    cores = spark.sparkContext.defaultParallelism
    nothing = build_on_executors(spark, [()] * cores, (), Counters(spark))
    nothing.write.format("noop").mode("overwrite").save()
