"""Reads segments into a DataFrame in bulk, with the plan of `kidxlib.read`: tasks scan logs for producer events, and
rows go to Spark through `mapInArrow`.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kidxlib.errors import KidxError, UsageError
from kidxlib.indexing.source import RemoteOptions, existing_index_dir, parse_topics
from kidxlib.reading.plan import ReadPlan, plan_reads
from kidxlib.reading.request import (
    Offsets,
    Paths,
    Times,
    ensure_isolation_means_something,
    read_request,
    requested_schema,
)
from kidxlib.reading.transactions import LogToScan, ScanLogs, ScannedLog, scan_for_transactions
from kidxlib.reading.walk import raise_damage, warn_of_damage
from kidxlib.run.context import existing_catalog_tables
from kidxlib.spark.planning import PART_BYTES, divide_into_tasks
from kidxlib.spark.source import nullable_source_schema
from kidxlib.spark.task_rows import task_rows

_log: Final = logging.getLogger(__name__)

#: How many tasks a job has: the driver's memory holds all their results at the same time.
_TASKS_AT_ONCE: Final = 256


def _scan_by_tasks(spark: SparkSession) -> ScanLogs:
    """A scan in tasks, or in this process if one task is enough."""

    def scan(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
        tasks = divide_into_tasks(logs)
        if len(tasks) < 2:
            yield from map(scan_for_transactions, logs)
            return
        for start in range(0, len(tasks), _TASKS_AT_ONCE):
            yield from _scanned(spark, tasks[start : start + _TASKS_AT_ONCE])

    return scan


def _scanned(spark: SparkSession, tasks: Sequence[Sequence[LogToScan]]) -> Iterator[ScannedLog]:
    """The results of one job, log by log."""
    pickled = [pickle.dumps(logs) for logs in tasks]  # a task unpickles only its own logs

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                result = pickle.dumps(list(map(_scanned_or_error, pickle.loads(pickled[int(str(number))]))))
                yield pa.record_batch({"id": pa.array([number], pa.int64()), "result": pa.array([result], pa.binary())})

    job = spark.range(0, len(pickled), 1, len(pickled)).mapInArrow(rows, "id long, result binary")
    in_order: list[Any] = job.toArrow().sort_by("id")["result"].to_pylist()
    for result in in_order:
        for scanned in pickle.loads(result):
            if isinstance(scanned, Exception):
                raise scanned
            yield scanned


def _scanned_or_error(log: LogToScan) -> ScannedLog | Exception:
    """The result of a scan, or an error for the driver to raise."""
    try:
        return scan_for_transactions(log)
    except (KidxError, OSError) as error:
        return error


def read(
    spark: SparkSession,
    path: Paths,
    *,
    topics: str = ".*",
    offsets: Offsets | None = None,
    times: Times | None = None,
    isolation: str = "read_uncommitted",
    mode: str = "records",
    columns: Iterable[str] | None = None,
    include_headers: bool = False,
    index_dir: str | os.PathLike[str] | None = None,
    catalog: str | os.PathLike[str] | None = None,
    to_log_end: bool | None = None,
    on_damage: Literal["fail", "skip"] = "fail",
    layout: str | None = None,
    tiered_metadata: Sequence[str | os.PathLike[str]] = (),
) -> DataFrame:
    """A DataFrame with the rows of `kidxlib.read`. This process plans it now; tasks read it each time it is used. If
    only committed records are read, tasks also scan logs for transactions, now, in jobs of their own.

    Rows come faster than from the source `kafka_segment`: Spark hands on the rows of `mapInArrow` as they are. Filters
    are not pushed down; the arguments say what is read.

    Args:
        spark: a session. Executors see the path, or the object store, and have the package.
        path, topics, offsets, times, isolation, mode, columns, include_headers, index_dir, to_log_end, layout,
            tiered_metadata: as of `kidxlib.read`.
        catalog: as of `kidxlib.read`; only this process reads it, with delta-rs.
        on_damage: `fail` ends a query with an error; `skip` goes on, and executors' logs tell what is lost.

    Returns:
        Columns in the types of the source `kafka_segment`. Partitions are in the order of topics, partitions and
        offsets.
    """
    if on_damage not in ("fail", "skip"):
        raise UsageError(f"on_damage {on_damage!r}: expected 'fail' or 'skip'")
    columns_read = requested_schema(mode, columns, include_headers=include_headers)
    ensure_isolation_means_something(mode, isolation)
    request = read_request(
        path,
        topics=parse_topics(topics, "topics"),
        offsets=offsets,
        times=times,
        isolation=isolation,
        index_dir=None if index_dir is None else existing_index_dir("index_dir", os.fspath(index_dir)),
        to_log_end=to_log_end,
        remote=RemoteOptions(layout, tuple(os.fspath(log_dir) for log_dir in tiered_metadata)),
    )
    goes_on = on_damage == "skip"
    tables = None if catalog is None else existing_catalog_tables("catalog", os.fspath(catalog))
    scan = _scan_by_tasks(spark)
    plan = plan_reads(request, goes_on=goes_on, scan=scan, part_bytes=PART_BYTES, catalog=tables)
    _log.info("%s", plan)
    plan.warn_of_left_out()
    return _frame(spark, plan, mode, nullable_source_schema(columns_read), goes_on=goes_on)


def _frame(spark: SparkSession, plan: ReadPlan, mode: str, schema: StructType, *, goes_on: bool) -> DataFrame:
    expected = to_arrow_schema(schema, timezone="UTC")
    tasks = [pickle.dumps(reads) for reads in divide_into_tasks(plan.reads)]  # a task unpickles only its own reads
    on_damage = warn_of_damage if goes_on else raise_damage

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                yield from task_rows(pickle.loads(tasks[int(str(number))]), mode, expected, on_damage, goes_on=goes_on)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(rows, schema)
