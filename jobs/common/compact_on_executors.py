"""Partitions over executors: each is compacted where its rows lie in one piece and in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from jobs.common.stop_file import StopFile
from jobs.common.tables import COMPACTED_ARROW_SCHEMA, COMPACTED_SCHEMA, PARTITIONS, SEGMENTS
from kidxlib.compact import Change, CompactionOptions, CompactionTask, Mode, RecordedSegment, compact
from kidxlib.names import TopicPartition
from kidxlib.objects import location
from kidxlib.pack import BINS_PER_CORE
from kidxlib.plan import index_folder, segments_folder
from kidxlib.recover import ABSENT, RecoverOptions, Status
from kidxlib.storage import FileVersion

_ROWS_PER_ARROW_BATCH: Final = 1000
_NEVER: Final = StopFile()


def compact_on_executors(
    rows: DataFrame, sources: Mapping[str, str], options: CompactionOptions, mode: Mode, stop: StopFile = _NEVER
) -> DataFrame:
    """Rows of `COMPACTED_SCHEMA`, computed where they are used: with `Mode.APPLY` write them somewhere once.

    Args:
        rows: of `Catalog.to_compact`.
        sources: the paths of sources by name.
        stop: partitions that are not begun when it is there are left out.
    """

    def compact_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = TaskContext.get()
        may_map = attempt is None or attempt.attemptNumber() == 0  # as in `build_on_executors`
        segments = (row for batch in batches for row in batch.to_pylist())
        partitions = groupby(segments, key=lambda row: tuple(row[name] for name in PARTITIONS.key))
        tasks = (_task(list(of_partition), sources) for _, of_partition in partitions)
        out: list[dict[str, Any]] = []
        for change in compact(stop.until_stopped(task for task in tasks if task is not None), options, mode, may_map):
            out.append(_row(change))
            if len(out) == _ROWS_PER_ARROW_BATCH:
                yield pa.RecordBatch.from_pylist(out, COMPACTED_ARROW_SCHEMA)
                out.clear()
        if out:
            yield pa.RecordBatch.from_pylist(out, COMPACTED_ARROW_SCHEMA)

    shares = rows.sparkSession.sparkContext.defaultParallelism * BINS_PER_CORE
    ordered = rows.repartition(shares, *PARTITIONS.key).sortWithinPartitions(*SEGMENTS.key)
    return ordered.mapInArrow(compact_all, COMPACTED_SCHEMA)


def _task(rows: list[dict[str, Any]], sources: Mapping[str, str]) -> CompactionTask | None:
    """A partition; None where its rows do not say where its index files are."""
    first = rows[0]
    partition = TopicPartition(first["topic"], first["partition"])
    # Rows of segments that are gone tell of where things were.
    present = [row for row in rows if row["status"] not in ABSENT] or rows
    folder = index_folder(partition, [row["index_folder"] for row in present])
    if folder is None:
        return None
    source = sources.get(first["source"])
    logs = {row["base_offset"]: row["log_path"] for row in present}
    return CompactionTask(
        key=(first["source"], partition.topic, partition.partition),
        segments_folder=None if source is None else segments_folder(location(source), partition, logs),
        index_folder=folder,
        segments=tuple(_segment(row) for row in rows),
    )


def _segment(row: Mapping[str, Any]) -> RecordedSegment:
    size = row["log_bytes"]
    return RecordedSegment(
        base_offset=row["base_offset"],
        status=Status(row["status"]),
        active=row["active"],
        version=None if size is None else FileVersion(size, row["log_mtime_ns"], row["log_inode"]),
        valid_bytes=row["valid_bytes"],
        max_timestamp_ms=row["max_timestamp_ms"],
        options=RecoverOptions(interval_bytes=row["interval_bytes"], max_index_bytes=row["max_index_bytes"]),
        offsets_increase=bool(row["offsets_increase"]),
        finished=row["producer_state"] is not None,
        offset_index_crc32c=row["offset_index_crc32c"],
        time_index_crc32c=row["time_index_crc32c"],
        transaction_index_crc32c=row["transaction_index_crc32c"],
    )


def _row(change: Change) -> dict[str, Any]:
    """A change as a row of `COMPACTED_SCHEMA`."""
    row: dict[str, Any] = {
        **dict(zip(SEGMENTS.key, (*change.key, change.base_offset), strict=True)),
        "action": change.action.value,
        "outcome": change.outcome.value,
        "reason": change.reason,
        "path": change.place.path,
        "log_dir": change.place.log_dir,
        "bytes_before": change.bytes_before,
        "bytes_after": change.bytes_after,
    }
    coarsened = change.coarsened
    if coarsened is not None:
        row |= {
            "interval_before": coarsened.interval_before,
            "interval_bytes": coarsened.interval_after,
            "log_bytes": coarsened.version.size,
            "log_mtime_ns": coarsened.version.mtime_ns,
            "log_inode": coarsened.version.inode,
        }
        for when, cost in (("before", coarsened.cost_before), ("after", coarsened.cost_after)):
            if cost is not None:
                row |= {f"scan_mean_{when}": cost.mean, f"scan_most_{when}": cost.most}
        for kind, file in (("offset", coarsened.offset_index), ("time", coarsened.time_index)):
            if file is not None:
                row |= {
                    f"{kind}_index_entries": file.entries,
                    f"{kind}_index_bytes": file.size,
                    f"{kind}_index_crc32c": file.crc32c,
                }
    return row
