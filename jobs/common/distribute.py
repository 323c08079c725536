"""Segments over executors: bins of work, biggest first, and one row of facts back for each segment."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame, SparkSession

from jobs.common.tables import RESULT_ARROW_SCHEMA, RESULT_SCHEMA
from kidxlib.build import BuildTask, BuiltSegment, build

#: A bin is full at this many bytes of logs or this many segments: a second or so of work, so that progress is seen.
BIN_BYTES: Final = 2 * 1024**3
BIN_SEGMENTS: Final = 2000
#: Bins per core at least, where there are segments enough, so that cores end at about the same time.
BINS_PER_CORE: Final = 4

_ROWS_PER_ARROW_BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Done:
    """What executors have finished so far, counted as tasks end."""

    segments: Accumulator[int]
    log_bytes: Accumulator[int]

    @classmethod
    def start(cls, spark: SparkSession) -> Done:
        return cls(spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0))


def pack(tasks: Iterable[BuildTask], cores: int) -> list[list[BuildTask]]:
    """Bins of work for Spark's tasks: the biggest segments first, small ones together.

    Starting with the biggest keeps a large segment from running on alone at the end.
    """
    ordered = sorted(tasks, key=lambda task: task.log_bytes, reverse=True)
    total_bytes = sum(task.log_bytes for task in ordered)
    bins_wanted = cores * BINS_PER_CORE
    bin_bytes = min(BIN_BYTES, total_bytes // bins_wanted + 1)
    bin_segments = min(BIN_SEGMENTS, len(ordered) // bins_wanted + 1)
    bins: list[list[BuildTask]] = []
    room_bytes = room_segments = 0
    for task in ordered:
        if room_segments == 0 or room_bytes < task.log_bytes:
            bins.append([])
            room_bytes, room_segments = bin_bytes, bin_segments
        bins[-1].append(task)
        room_bytes -= task.log_bytes
        room_segments -= 1
    return bins


def build_on_executors(
    spark: SparkSession, bins: Sequence[Sequence[BuildTask]], index_root: Path, done: Done
) -> DataFrame:
    """One row of `RESULT_COLUMNS` per segment, computed where it is used: write it somewhere once, and read that.

    Each bin is one Spark task. Running a task twice gives the same files and the same row, but for `published`.
    """
    context = spark.sparkContext
    pickled = context.parallelize([(pickle.dumps(bin_),) for bin_ in bins], max(1, len(bins)))

    def build_bins(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = TaskContext.get()
        # The attempt before may have died of a mapped file that shrank or has a bad sector; reads cannot kill this one.
        may_map = attempt is None or attempt.attemptNumber() == 0
        rows: list[dict[str, Any]] = []
        for batch in batches:
            for work in batch.column("work"):
                for built in build(pickle.loads(work.as_buffer()), index_root, may_map):
                    rows.append(result_row(built, index_root))
                    done.segments.add(1)
                    done.log_bytes.add(built.task.log_bytes)
                    if len(rows) == _ROWS_PER_ARROW_BATCH:
                        yield pa.RecordBatch.from_pylist(rows, RESULT_ARROW_SCHEMA)
                        rows.clear()
        if rows:
            yield pa.RecordBatch.from_pylist(rows, RESULT_ARROW_SCHEMA)

    return spark.createDataFrame(pickled, "work binary").mapInArrow(build_bins, RESULT_SCHEMA)


def result_row(built: BuiltSegment, index_root: Path) -> dict[str, Any]:
    """The row of `RESULT_COLUMNS` that says what became of a segment."""
    segment, options, end, recovered = built.task.segment, built.task.options, built.end, built.recovered
    row: dict[str, Any] = {
        "source": segment.source,
        "topic": segment.topic_partition.topic,
        "partition": segment.topic_partition.partition,
        "base_offset": segment.base_offset,
        "status": end.status.value,
        "reason": end.reason,
        "reason_position": end.position if end.reason else None,
        "reason_detail": end.detail,
        "active": segment.active,
        "interval_bytes": options.interval_bytes,
        "max_index_bytes": options.max_index_bytes,
        "crc_checked": options.verify_crc,
        "log_path": segment.path,
        "index_folder": str(index_root / built.task.index_folder),
        "published": built.published.value,
    }
    if built.version is not None:
        row["log_bytes"] = built.version.size
        row["log_mtime_ns"] = built.version.mtime_ns
        row["log_inode"] = built.version.inode
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
            )
        }
    if recovered is not None and built.offset_index_crc32c is not None:
        row |= {
            "offset_index_entries": recovered.facts.offset_entries,
            "offset_index_bytes": len(recovered.offset_index),
            "offset_index_crc32c": built.offset_index_crc32c,
            "time_index_entries": recovered.facts.time_entries,
            "time_index_bytes": len(recovered.time_index),
            "time_index_crc32c": built.time_index_crc32c,
        }
    return row
