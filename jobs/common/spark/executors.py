"""Segments over executors: bins of work, and rows back for each segment."""

from __future__ import annotations

import itertools
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.counters import Counters
from jobs.common.spark.local_rows import one_a_task
from jobs.common.spark.schema import spark_schema
from jobs.common.spark.source_access import why_unseen
from jobs.common.spark.stop_file import StopFile
from kidxlib.build.source import Source
from kidxlib.build.tasks import ScanTask
from kidxlib.engine.row_batches import row_batches
from kidxlib.engine.work import ItemRows
from kidxlib.errors import UsageError
from kidxlib.storage.location import Location
from kidxlib.storage.s3 import ObjectPath
from kidxlib.terminal.phase import Span

_T = TypeVar("_T", bound=ScanTask)

NEVER: Final = StopFile()


def may_map() -> bool:
    """Whether this attempt of a Spark task may map files. The attempt before may have died of a mapped file that shrank
    or has a bad sector; reads cannot kill this one.
    """
    attempt = TaskContext.get()
    return attempt is None or attempt.attemptNumber() == 0


def on_executors(
    spark: SparkSession,
    bins: Sequence[Sequence[_T]],
    sources: Sequence[Source],
    counters: Counters,
    do: Callable[[Iterable[_T], bool], Iterator[ItemRows]],
    schema: pa.Schema,
    stop: StopFile = NEVER,
) -> DataFrame:
    """Do something with segments, each bin of them in one Spark task. The rows are computed where they are used: write
    them somewhere once, and read that.

    Args:
        do: with the segments of a bin, and whether it may map files.
        schema: of the rows that it gives.
        stop: segments that are not begun when it is there are left out.

    Raises:
        UsageError: in the task, where an executor does not see the directory of a source that has segments in `bins`.
    """
    segments, log_bytes, span = counters.segments, counters.log_bytes, counters.span
    to_read = {task.segment.source for bin_ in bins for task in bin_}
    directories = [source.path for source in sources if source.name in to_read]

    def rows_of_bins(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any] | pa.RecordBatch]:
        use_mmap = may_map()
        for work in itertools.chain.from_iterable(batch.column("work") for batch in batches):
            begin = time.time()
            for done in do(stop.until_stopped(pickle.loads(work.as_buffer())), use_mmap):
                yield from done.batches
                yield from done.rows
                segments.add(done.segments)
                log_bytes.add(done.log_bytes)
            span.add(Span(begin, time.time()))

    def do_bins(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for directory in directories:
            ensure_seen(directory)
        yield from row_batches(rows_of_bins(batches), schema)

    return one_a_task(spark, [pickle.dumps(bin_) for bin_ in bins]).mapInArrow(do_bins, spark_schema(schema))


def ensure_seen(directory: Location) -> None:
    """Raises `UsageError` where this executor does not see a source's directory."""
    if why := why_unseen(directory):
        what_to_do = (
            "give executors the endpoint and credentials that the driver has, as docs/object-stores.md says"
            if isinstance(directory, ObjectPath)
            else "mount it at the same path on every executor"
        )
        raise UsageError(f"executor {socket.gethostname()} does not see the source {directory} ({why}); {what_to_do}")
