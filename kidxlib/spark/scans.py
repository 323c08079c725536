"""Logs scanned by tasks of Spark for what producers did in them, which the driver puts together."""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from kidxlib.errors import KidxError
from kidxlib.reading.transactions import LogToScan, ScanLogs, ScannedLog, scan_log
from kidxlib.spark.rows import tasks_of

#: Of one job: what they find is in the driver's memory at the same time.
_TASKS_AT_ONCE: Final = 256


def scan_by_tasks(spark: SparkSession) -> ScanLogs:
    """Scans logs by tasks; where there are few bytes of them, as one task would take, by this process."""

    def scan(logs: Sequence[LogToScan]) -> Generator[ScannedLog, None, None]:
        tasks = tasks_of(logs)
        if len(tasks) < 2:
            yield from map(scan_log, logs)
            return
        for start in range(0, len(tasks), _TASKS_AT_ONCE):
            yield from _scanned(spark, tasks[start : start + _TASKS_AT_ONCE])

    return scan


def _scanned(spark: SparkSession, tasks: Sequence[Sequence[LogToScan]]) -> Iterator[ScannedLog]:
    """What one job finds, log by log."""
    # As bytes: a task makes what it scans of its own.
    pickled = [pickle.dumps(logs) for logs in tasks]

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                found = pickle.dumps(list(map(_scanned_or_error, pickle.loads(pickled[int(str(number))]))))
                yield pa.record_batch({"id": pa.array([number], pa.int64()), "found": pa.array([found], pa.binary())})

    job = spark.range(0, len(pickled), 1, len(pickled)).mapInArrow(rows, "id long, found binary")
    in_order: list[Any] = job.toArrow().sort_by("id")["found"].to_pylist()
    for found in in_order:
        for scanned in pickle.loads(found):
            if isinstance(scanned, Exception):
                raise scanned
            yield scanned


def _scanned_or_error(log: LogToScan) -> ScannedLog | Exception:
    """What a scan finds, or why it ends: the driver tells that as its own."""
    try:
        return scan_log(log)
    except (KidxError, OSError) as error:
        return error
