"""A build with all cores of this machine: segments in any order, then partitions."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kidxlib.build.bins import BINS_PER_CORE, pack
from kidxlib.build.finish.held_index import remove_held
from kidxlib.build.finish.partition import finish, segment_task
from kidxlib.build.plan import Plan
from kidxlib.build.segments import build as build_segments
from kidxlib.build.source import SegmentFile
from kidxlib.build.summary import Counts
from kidxlib.build.tasks import BuildTask, PartitionTask, SegmentTask
from kidxlib.cli.spool import Spool, Spooled
from kidxlib.engine.processes import Workers, until_stopped
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.outcome import Status
from kidxlib.terminal.phase import Done, Span
from kidxlib.terminal.progress import begin_phase
from kidxlib.terminal.signals import Interrupted


@dataclass(frozen=True, slots=True)
class _ReadSegment:
    """Where a worker has put the `SegmentTask` of a segment that it read, and what was counted of it."""

    segment: SegmentFile
    status: Status
    task: Spooled


def done_so_far(counts: Counts, plan: Plan, in_place: bool) -> str:
    """What is done and what is not, for whoever interrupts a build."""
    # In place an offset index may wait for the end of its partition, and goes again.
    of_all = f"{counts.segments:,} of {plan.segments.num_rows:,} segments {'read' if in_place else 'indexed'}"
    return f"{of_all}; run the same command again, which reads all of them, as there is no catalog"


@contextlib.contextmanager
def removing_held(plan: Plan) -> Iterator[None]:
    """Where a run is interrupted, no offset index waits any longer for the end of its partition."""
    try:
        yield
    except Interrupted:
        for partition in plan.partitions:
            if str(partition.index_directory) == str(partition.directory.path):  # under the lock: they are this run's
                remove_held(partition.index_directory)
        raise


def scan_segments(
    tasks: Sequence[BuildTask], workers: Workers, scratch: Path, counts: Counts
) -> tuple[dict[PartitionKey, list[_ReadSegment]], float]:
    """Index segments, and count; what the partitions are finished with lies in the scratch directory.

    Returns:
        What was read, and in how many seconds.
    """
    span = Span()
    spooled: dict[PartitionKey, list[_ReadSegment]] = defaultdict(list)

    def take(result: tuple[Counts, list[_ReadSegment], Span]) -> None:
        nonlocal span
        counts.merge(result[0])
        span |= result[2]
        for segment in result[1]:
            spooled[segment.segment.partition_key].append(segment)

    bins = pack(tasks, workers.processes)
    work = [_Bin(bin_, scratch / f"{number}.events") for number, bin_ in enumerate(bins)]
    begin_phase(
        "reading",
        done=lambda: Done(counts.segments, counts.log_bytes, span.seconds),
        segments=len(tasks),
        log_bytes=sum(task.log_bytes for task in tasks),
    )
    with workers.stopping():
        workers.run(_scan_bin, work, take)
    return spooled, span.seconds


def finish_partitions(partitions: Sequence[tuple[PartitionTask, list[_ReadSegment]]], workers: Workers) -> Counts:
    """Finish partitions, whose segments were all read."""
    counts = Counts()
    if partitions:
        shares = workers.processes * BINS_PER_CORE
        work = [share for number in range(shares) if (share := partitions[number::shares])]
        with workers.stopping():
            workers.run(_finish_unit, work, counts.merge)
    return counts


@dataclass(frozen=True, slots=True)
class _Bin:
    """Segments that one worker reads one after the other, and where it puts what is left to do."""

    tasks: Sequence[BuildTask]
    spool: Path


def _scan_bin(work: _Bin, use_mmap: bool) -> tuple[Counts, list[_ReadSegment], Span]:
    counts, begin = Counts(), time.time()
    spooled = []
    with Spool(work.spool) as spool:
        for built in build_segments(until_stopped(work.tasks), use_mmap):
            counts.add(built)
            spooled.append(_ReadSegment(built.task.segment, built.end.status, spool.append(segment_task(built))))
    return counts, spooled, Span(begin, time.time())


def _finish_unit(partitions: Sequence[tuple[PartitionTask, list[_ReadSegment]]], use_mmap: bool) -> Counts:
    counts, spooled_of = Counts(), {task.key: segments for task, segments in partitions}
    for finished in finish((task, _unspool(segments)) for task, segments in until_stopped(partitions)):
        by_offset = {spooled.segment.base_offset: spooled for spooled in spooled_of[finished.task.key]}
        counts.kept += [f"{finished.task.index_directory}/{name}" for name in finished.kept]
        for segment in finished.segments:
            spooled = by_offset[segment.base_offset]
            topic = counts.topic(spooled.segment.topic_partition.topic)
            topic.aborted_transactions += len(segment.aborted)
            topic.by_transaction_index[segment.published] += 1
            if segment.failure is not None:
                topic.withdraw(spooled.status)
                counts.add_problem(spooled.segment, segment.failure)
    return counts


def _unspool(segments: Sequence[_ReadSegment]) -> Iterator[SegmentTask]:
    for segment in sorted(segments, key=lambda spooled: spooled.segment.base_offset):
        task: SegmentTask = segment.task.read()
        yield task
