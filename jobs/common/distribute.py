"""Segments over executors: bins of work, biggest first, and one row of facts back for each segment."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jobs.common.driver_rows import one_a_task
from jobs.common.events import event_batches, from_leader_epochs
from jobs.common.stop_file import StopFile
from jobs.common.tables import CATALOG_VERSION, SCANNED_ARROW_SCHEMA, SCANNED_SCHEMA
from kidxlib.build import BuildTask, BuiltSegment, build
from kidxlib.discover import Source
from kidxlib.errors import UsageError
from kidxlib.fold import NO_EVENTS
from kidxlib.objects import Location, ObjectPath, is_object
from kidxlib.progress import Done, Span
from kidxlib.recover import Status
from kidxlib.summary import NOT_WELL_KEPT

_ROWS_PER_ARROW_BATCH: Final = 1000
_NEVER: Final = StopFile()


class _SpanParam(AccumulatorParam[Span]):
    def zero(self, value: Span) -> Span:
        return Span()

    def addInPlace(self, value1: Span, value2: Span) -> Span:  # noqa: N802
        return value1 | value2


class Counters:
    """How much executors have done so far, counted as tasks end.

    Attributes:
        span: of the wave that is being read, by the executors' clocks.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.segments: Accumulator[int] = spark.sparkContext.accumulator(0)
        self.log_bytes: Accumulator[int] = spark.sparkContext.accumulator(0)
        self.span: Accumulator[Span] = spark.sparkContext.accumulator(Span(), _SpanParam())
        self._seconds = 0.0

    def begin_wave(self) -> None:
        """From now on further segments are read: the time until then is not to count."""
        self._seconds += self.span.value.seconds
        self.span.value = Span()

    def done(self) -> Done:
        return Done(self.segments.value, self.log_bytes.value, self._seconds + self.span.value.seconds)


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """What came of one segment.

    Attributes:
        batches: of rows, which go out before the others.
        rows: further ones.
    """

    task: BuildTask
    batches: Iterable[pa.RecordBatch]
    rows: Sequence[dict[str, Any]]


def build_on_executors(
    spark: SparkSession,
    bins: Sequence[Sequence[BuildTask]],
    sources: Sequence[Source],
    counters: Counters,
    stop: StopFile = _NEVER,
) -> DataFrame:
    """Rows of `SCANNED_SCHEMA`, one per segment and one per event; see `on_executors`.

    Running a task twice gives the same files and the same row, but for `published`.
    """
    return on_executors(spark, bins, sources, counters, _build, SCANNED_SCHEMA, stop)


@contextlib.contextmanager
def workers_beginning(spark: SparkSession, wanted: bool) -> Iterator[None]:
    """While the context lasts a Python worker begins for each core, where it is wanted, and imports what tasks need: a
    second or two that pass beside what the driver has to do before there is work.
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


def _build(tasks: Iterable[BuildTask], may_map: bool) -> Iterator[SegmentRows]:
    for built in build(tasks, may_map):
        events = built.recovered.producer_events if built.recovered else NO_EVENTS
        event_rows = event_batches(built.task.segment, events, SCANNED_ARROW_SCHEMA)
        yield SegmentRows(built.task, event_rows, [{"segment": result_row(built)}])


def on_executors(
    spark: SparkSession,
    bins: Sequence[Sequence[BuildTask]],
    sources: Sequence[Source],
    counters: Counters,
    do: Callable[[Iterable[BuildTask], bool], Iterator[SegmentRows]],
    schema: StructType,
    stop: StopFile = _NEVER,
) -> DataFrame:
    """Do something with segments, each bin of them in one Spark task. The rows are computed where they are used: write
    them somewhere once, and read that.

    Args:
        do: with the segments of a bin, and whether it may map files.
        schema: of the rows that it gives.
        stop: segments that are not begun when it is there are left out.

    Raises:
        UsageError: in the task, where an executor does not see the folder of a source that has segments in `bins`.
    """
    segments, log_bytes, span = counters.segments, counters.log_bytes, counters.span
    to_read = {task.segment.source for bin_ in bins for task in bin_}
    folders = [source.path for source in sources if source.name in to_read]
    arrow_schema = to_arrow_schema(schema)

    def do_bins(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for folder in folders:
            if why := _unseen(folder):
                what_to_do = (
                    "give executors the endpoint and credentials that the driver has, as docs/object-stores.md says"
                    if isinstance(folder, ObjectPath)
                    else "mount it at the same path on every executor"
                )
                raise UsageError(
                    f"executor {socket.gethostname()} does not see the source {folder} ({why}); {what_to_do}"
                )
        attempt = TaskContext.get()
        # The attempt before may have died of a mapped file that shrank or has a bad sector; reads cannot kill this one.
        may_map = attempt is None or attempt.attemptNumber() == 0
        rows: list[dict[str, Any]] = []
        for batch in batches:
            for work in batch.column("work"):
                begin = time.time()
                for done in do(stop.until_stopped(pickle.loads(work.as_buffer())), may_map):
                    yield from done.batches
                    rows += done.rows
                    segments.add(1)
                    log_bytes.add(done.task.log_bytes)
                    if len(rows) >= _ROWS_PER_ARROW_BATCH:
                        yield pa.RecordBatch.from_pylist(rows, arrow_schema)
                        rows.clear()
                span.add(Span(begin, time.time()))
        if rows:
            yield pa.RecordBatch.from_pylist(rows, arrow_schema)

    return one_a_task(spark, [pickle.dumps(bin_) for bin_ in bins]).mapInArrow(do_bins, schema)


def _unseen(folder: Location) -> str | None:
    """Why this machine sees nothing of what was listed in a folder; None where it sees something.

    Where a mount is missing its folder is mostly there, and empty. Read from there, every log would be one that was
    deleted since it was listed, which is no error.
    """
    try:
        if isinstance(folder, ObjectPath):
            return None if folder.exists() else "no object with this prefix"
        with os.scandir(folder) as entries:
            return None if any(True for _ in entries) else "an empty folder"
    except OSError as error:
        return error.strerror or str(error)


def refuse_unseen_logs(results: DataFrame) -> None:
    """A log that an executor did not find was deleted meanwhile, as retention does; if it is still there, it was not.

    Args:
        results: with `status` and `log_path` of segments.

    Raises:
        UsageError: an executor has something else than the source mounted at its path.
    """
    gone = results.where(F.col("status") == Status.GONE.value).select("log_path").limit(NOT_WELL_KEPT).collect()
    for row in gone:
        if not is_object(row["log_path"]) and os.path.lexists(row["log_path"]):
            raise UsageError(
                f"an executor does not find {row['log_path']}, which is there; "
                "mount the same folder at the same path on every executor"
            )


def result_row(built: BuiltSegment) -> dict[str, Any]:
    """What became of a segment, as the `segment` of a row of `SCANNED_SCHEMA`."""
    segment, options, end, recovered = built.task.segment, built.task.options, built.end, built.recovered
    row: dict[str, Any] = {
        "source": segment.source,
        "topic": segment.topic_partition.topic,
        "partition": segment.topic_partition.partition,
        "base_offset": segment.base_offset,
        "topic_id": built.task.topic_id,
        "status": end.status.value,
        "reason": end.reason,
        "reason_position": end.position if end.reason else None,
        "reason_detail": end.detail,
        "active": segment.active,
        "interval_bytes": options.interval_bytes,
        "max_index_bytes": options.max_index_bytes,
        "interval_source": built.task.interval_source.value,
        "crc_checked": options.verify_crc,
        "log_path": segment.path,
        "index_folder": str(built.task.index_folder),
        "catalog_version": CATALOG_VERSION,
        "published": built.published.value,
    }
    if built.version is not None:
        row["log_bytes"] = built.version.size
        row["log_mtime_ns"] = built.version.mtime_ns
        row["log_inode"] = built.version.inode
    if built.reads is not None:
        row |= {"read_requests": built.reads.requests, "read_bytes": built.reads.read_bytes}
    if recovered is not None:
        facts = recovered.facts
        row |= {
            name: getattr(facts, name)
            for name in (
                "next_offset",
                "valid_bytes",
                "batches",
                "records",
                "max_timestamp_ms",
                "offset_of_max_timestamp",
                "first_leader_epoch",
                "last_leader_epoch",
                "magics",
                "codecs",
                "transactional_batches",
                "control_batches",
                "map_end_offset",
                "offsets_increase",
            )
        }
        row["leader_epochs"] = from_leader_epochs(recovered.leader_epochs)
    for name, index in (("offset_index", built.offset_index), ("time_index", built.time_index)):
        if index is not None:
            row |= {f"{name}_entries": index.entries, f"{name}_bytes": index.size, f"{name}_crc32c": index.crc32c}
    return row
