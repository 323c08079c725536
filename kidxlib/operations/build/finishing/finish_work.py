"""Partitions that a worker finishes, each from what the catalog keeps of its segments."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.build.finish.partition import finish
from kidxlib.build.results import FinishedPartition, FinishedSegment
from kidxlib.build.tasks import PartitionTask, SegmentTask
from kidxlib.catalog.partitions import FoldedLogs
from kidxlib.catalog.results.build import FoldedPartition, KeptFile, Publishing
from kidxlib.catalog.segment_key import SegmentKey
from kidxlib.catalog.segment_views import SegmentToFinish
from kidxlib.catalog.segments import EndFacts, FinishedFacts
from kidxlib.catalog.transactions import AbortedTransactionRow
from kidxlib.engine.shared_rows import SharedRows
from kidxlib.engine.work import ItemRows
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.finishing.state_rows import state_row
from kidxlib.operations.events import to_leader_epochs, with_events
from kidxlib.recovery.outcome import ABSENT
from kidxlib.recovery.partition import ScannedSegment
from kidxlib.storage.location import as_text
from kidxlib.storage.publisher import Published


@dataclass(frozen=True, slots=True)
class PartitionToFinish:
    """One partition.

    Attributes:
        task: from which state on, and which files may be written.
        logs: by the base offset of each of the last two segments, all segments up to it: the states after these are
            kept.
    """

    task: PartitionTask
    logs: Mapping[int, FoldedLogs]


@dataclass(frozen=True, slots=True)
class PartitionsToFinish:
    """Some partitions, and what is known of their segments.

    Attributes:
        rows: of `TO_FINISH`, each partition's in one piece and segments in order.
        row_bytes: in memory.
    """

    rows: SharedRows
    row_bytes: int
    partitions: Mapping[PartitionKey, PartitionToFinish]


def finish_partitions(shares: Iterable[PartitionsToFinish], use_mmap: bool) -> Iterator[ItemRows]:
    """Rows of `FINISHED`. Done again, it gives the same files and the same rows, but for `published`.

    Args:
        use_mmap: no log is read.
    """
    for share in shares:
        tasks = {key: partition.task for key, partition in share.partitions.items()}
        in_order_of_rows = [tasks[key].index_directory for key in sorted(tasks)]
        for finished in finish(known_partitions(share.rows.batches(), tasks), in_order_of_rows):
            rows = itertools.chain(finished_rows(finished), _kept_rows(finished, share.partitions[finished.task.key]))
            yield ItemRows(rows=list(rows))


def known_partitions(
    batches: Iterator[pa.RecordBatch], tasks: Mapping[PartitionKey, PartitionTask]
) -> Iterator[tuple[PartitionTask, Iterator[SegmentTask]]]:
    """Each partition with its segments, in order, as the catalog has them.

    Args:
        batches: rows of `TO_FINISH`.
        tasks: what is to be published of each partition.
    """
    segments = (_segment(head, events) for head, events in with_events(batches))
    for key, of_partition in groupby(segments, key=itemgetter(0)):
        yield tasks[key], (task for _, task in of_partition)


def _segment(head: dict[str, Any], events: NDArray[np.void]) -> tuple[PartitionKey, SegmentTask]:
    facts = head["segment"]
    problem_free = facts.pop("problem_free")
    segment = SegmentToFinish.of_dict(facts)
    scanned = ScannedSegment(
        base_offset=head["base_offset"],
        problem_free=problem_free,
        next_offset=segment.next_offset,
        map_end_offset=segment.map_end_offset,
        producer_events=events,
        leader_epochs=to_leader_epochs(segment.leader_epochs),
    )
    present = segment.status not in ABSENT
    task = SegmentTask(scanned=scanned, present=present, published=segment.offset_index_bytes is not None)
    return (head["source"], head["topic"], head["partition"]), task


def finished_rows(finished: FinishedPartition) -> Iterator[dict[str, Any]]:
    """What finishing a partition came to, as rows of `FINISHED`."""
    source, topic, partition = finished.task.key
    for segment in finished.segments:
        key = SegmentKey(source=source, topic=topic, partition=partition, base_offset=segment.base_offset)
        yield {
            "segment": {
                **key.values(),
                **_facts(segment).values(),
                **({} if segment.failure is None else EndFacts.of_end(segment.failure).values()),
                **Publishing(published=segment.published.value).values(),
            }
        }
        for _, producer_id, first_offset, last_offset, last_stable_offset in segment.aborted.tolist():
            aborted = AbortedTransactionRow(
                **key.values(),
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=last_offset,
                last_stable_offset=last_stable_offset,
            )
            yield {"aborted": aborted.values()}
    for name in finished.kept:
        yield {"kept": KeptFile(path=as_text(f"{finished.task.index_directory}/{name}")).values()}


def _kept_rows(finished: FinishedPartition, partition: PartitionToFinish) -> Iterator[dict[str, Any]]:
    """What a later build goes on from, as rows of `FINISHED`."""
    source, topic, number = finished.task.key
    of_partition = FoldedPartition(
        source=source,
        topic=topic,
        partition=number,
        unfolded=partition.task.earlier,
    )
    yield {"partition": of_partition.values()}
    for state in finished.states:
        logs = partition.logs.get(state.base_offset)
        if logs is not None:
            yield {"state": state_row(finished.task.key, state, logs).values()}


def _facts(segment: FinishedSegment) -> FinishedFacts:
    return FinishedFacts(
        producer_state=segment.state_source.value,
        aborted_transactions=len(segment.aborted),
        transaction_index_bytes=segment.transaction_index_bytes,
        transaction_index_crc32c=segment.transaction_index_crc32c,
        transaction_index_kept=segment.published is Published.KEPT,
    )
