"""Partitions over executors: each is folded where it lies in one piece and in order, from what the catalog keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from jobs.common.events import to_leader_epochs, with_events
from jobs.common.stop_file import StopFile
from jobs.common.tables import FINISHED_ARROW_SCHEMA, FINISHED_SCHEMA, PARTITIONS, PRODUCER_EVENTS
from kidxlib.finish import FinishedPartition, PartitionTask, SegmentTask, finish
from kidxlib.fold import ScannedSegment
from kidxlib.plan import PartitionKey
from kidxlib.publish import Published
from kidxlib.recover import ABSENT, Status

_ROWS_PER_ARROW_BATCH: Final = 1000

#: What `finish_on_executors` needs of a row of `segments`.
SEGMENT_COLUMNS: Final = ("status", "reason", "next_offset", "map_end_offset", "leader_epochs", "offset_index_bytes")


def finish_on_executors(
    rows: DataFrame, tasks: Mapping[PartitionKey, PartitionTask], shares: int, stop: StopFile
) -> DataFrame:
    """Rows of `FINISHED_SCHEMA`, computed where they are used: write them somewhere once, and read that.

    Args:
        rows: source, topic, partition, base_offset, position; and either `segment` (then position is −1) or `event`.
        tasks: what is to be published of each partition.
        shares: how many Spark tasks do it.
        stop: partitions that are not begun when it is there are left out.
    """
    known_tasks = rows.sparkSession.sparkContext.broadcast(dict(tasks))

    def finish_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        segments = (_segment(head, events) for head, events in with_events(batches))
        partitions = groupby(segments, key=lambda segment: segment[0])
        work = ((known_tasks.value[key], (task for _, task in segments)) for key, segments in partitions)
        out: list[dict[str, Any]] = []
        keys = {task: key for key, task in known_tasks.value.items()}
        for finished in finish(stop.until_stopped(work)):
            out.extend(_rows(keys[finished.task], finished))
            while len(out) >= _ROWS_PER_ARROW_BATCH:
                yield pa.RecordBatch.from_pylist(out[:_ROWS_PER_ARROW_BATCH], FINISHED_ARROW_SCHEMA)
                del out[:_ROWS_PER_ARROW_BATCH]
        if out:
            yield pa.RecordBatch.from_pylist(out, FINISHED_ARROW_SCHEMA)

    return by_partition(rows, shares).mapInArrow(finish_all, FINISHED_SCHEMA)


def by_partition(rows: DataFrame, shares: int) -> DataFrame:
    """The rows in `shares` Spark tasks, each partition's in one piece, segments in order, each before its events."""
    return rows.repartition(shares, *PARTITIONS.key).sortWithinPartitions(*PRODUCER_EVENTS.key)


def _segment(head: dict[str, Any], events: NDArray[np.void]) -> tuple[PartitionKey, SegmentTask]:
    segment = head["segment"]
    present = segment["status"] not in ABSENT
    scanned = ScannedSegment(
        base_offset=head["base_offset"],
        # A segment that is gone has kept its facts; its reason says how it stood.
        well=segment["status"] == Status.OK or (not present and segment["reason"] is None),
        next_offset=segment["next_offset"],
        map_end_offset=segment["map_end_offset"],
        producer_events=events,
        leader_epochs=to_leader_epochs(segment["leader_epochs"]),
    )
    task = SegmentTask(scanned=scanned, present=present, published=segment["offset_index_bytes"] is not None)
    return (head["source"], head["topic"], head["partition"]), task


def _rows(key: PartitionKey, finished: FinishedPartition) -> Iterator[dict[str, Any]]:
    partition = dict(zip(("source", "topic", "partition"), key, strict=True))
    for segment in finished.segments:
        failure = segment.failure
        segment_key = {**partition, "base_offset": segment.base_offset}
        yield {
            "segment": {
                **segment_key,
                "producer_state": segment.state_source.value,
                "aborted_transactions": len(segment.aborted),
                "transaction_index_bytes": segment.transaction_index_bytes,
                "transaction_index_crc32c": segment.transaction_index_crc32c,
                "transaction_index_kept": segment.published is Published.KEPT,
                "status": failure and failure.status.value,
                "reason": failure and failure.reason,
                "reason_position": failure and failure.position,
                "reason_detail": failure and failure.detail,
                "published": segment.published.value,
            }
        }
        for _, producer_id, first_offset, last_offset, last_stable_offset in segment.aborted.tolist():
            yield {
                "aborted": {
                    **segment_key,
                    "producer_id": producer_id,
                    "first_offset": first_offset,
                    "last_offset": last_offset,
                    "last_stable_offset": last_stable_offset,
                }
            }
    for name in finished.kept:
        yield {"kept": {"path": f"{finished.task.index_folder}/{name}"}}
