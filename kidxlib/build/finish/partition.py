"""Finishes partitions: publishes what depends on their segments' order, `.txnindex`, producer snapshots and leader
epochs.

This runs after every segment of a partition was scanned (`kidxlib.build.segments`), on the results of the scans. It
opens no log. A row is returned after its files are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from kidxlib.build.finish.files import PartitionFiles
from kidxlib.build.finish.held_index import discard_held, release_held
from kidxlib.build.finish.listings import Listings
from kidxlib.build.finish.snapshots import BrokerSnapshots, drop_other_snapshots, publish_snapshot
from kidxlib.build.finish.transaction_indexes import publish_transaction_index
from kidxlib.build.results import BuiltSegment, FinishedPartition, FinishedSegment
from kidxlib.build.segments import GROUP_BYTES, GROUP_FILES
from kidxlib.build.tasks import PartitionTask, SegmentTask
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.checksums.crc import crc32c
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition import FoldState, PartitionFold, ScannedSegment
from kidxlib.storage.directory import Directory
from kidxlib.storage.publisher import Published, Publisher


def segment_task(built: BuiltSegment) -> SegmentTask:
    """The task to finish a segment that was just read."""
    return SegmentTask(
        scanned=ScannedSegment.of(built.task.segment.base_offset, built.recovered),
        present=built.end.status is not Status.GONE,
        published=built.offset_index is not None,
    )


def finish(
    partitions: Iterable[tuple[PartitionTask, Iterable[SegmentTask]]], coming: Sequence[Directory] = ()
) -> Iterator[FinishedPartition]:
    """Fold partitions one after the other and publish the results.

    Args:
        coming: the partitions' index directories, in their order, where that is known.

    Raises:
        PublishError: an index directory cannot be written.
    """
    with Publisher() as publisher, Listings(coming) as listings:
        waiting: list[_Finisher] = []
        for task, segments in partitions:
            finisher = _Finisher(task, publisher, listings)
            waiting.append(finisher)
            for segment, is_last in _with_last(segments):
                if is_last:
                    finisher.keep_state()
                finisher.add(segment)
            finisher.end()
            if publisher.staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                yield from _commit(publisher, waiting)
        yield from _commit(publisher, waiting)


def _commit(publisher: Publisher, waiting: list[_Finisher]) -> Iterator[FinishedPartition]:
    publisher.commit()
    for finisher in waiting:
        finisher.clean_up()
        yield finisher.finished
    waiting.clear()


def _with_last(segments: Iterable[SegmentTask]) -> Iterator[tuple[SegmentTask, bool]]:
    """The segments, and of each whether it is the last one."""
    coming = iter(segments)
    held = next(coming, None)
    while held is not None:
        following = next(coming, None)
        yield held, following is None
        held = following


class _Finisher:
    """One partition on its way."""

    def __init__(self, task: PartitionTask, publisher: Publisher, listings: Listings) -> None:
        self._task = task
        self._files = PartitionFiles(task, publisher, listings)
        self._fold = PartitionFold(BrokerSnapshots(task).at, task.start, task.recovered)
        self._base_offsets = list(task.earlier)
        self._states: list[FoldState] = []
        # With what is done with its transaction index, once it is committed.
        self._segments: list[tuple[FinishedSegment, Callable[[], Published]]] = []

    @property
    def finished(self) -> FinishedPartition:
        """The result, once all is committed."""
        segments = tuple(replace(segment, published=outcome()) for segment, outcome in self._segments)
        return FinishedPartition(self._task, segments, tuple(self._files.kept), tuple(self._states))

    def keep_state(self) -> None:
        """Note what the segments so far led to, for the next time that this partition is finished."""
        state = self._fold.state
        if state is not None:
            self._states.append(state)

    def add(self, segment: SegmentTask) -> None:
        folded = self._fold.add(segment.scanned)
        if not segment.present:
            return
        base_offset = folded.base_offset
        self._files.take_owner_of(base_offset)
        if self._task.snapshots and self._base_offsets:  # none at the start of the log, as in Kafka
            publish_snapshot(self._files, base_offset, folded.snapshot, folded.state_source)
        self._base_offsets.append(base_offset)
        if folded.failure is not None:
            _withdraw(self._files, base_offset)
        if segment.published and folded.failure is None:
            outcome, content = publish_transaction_index(self._files, folded)
            if self._task.in_place:
                release_held(self._files, base_offset)
        else:
            outcome, content = (lambda: Published.NONE), None
        finished = FinishedSegment(
            base_offset=folded.base_offset,
            state_source=folded.state_source,
            aborted=folded.aborted,
            failure=folded.failure,
            published=Published.NONE,
            transaction_index_bytes=None if content is None else len(content),
            transaction_index_crc32c=None if content is None else crc32c(content),
        )
        self._segments.append((finished, outcome))

    def end(self) -> None:
        """Publish what belongs to the partition as a whole."""
        self.keep_state()
        if not self._base_offsets:
            return
        if self._task.snapshots:
            end = self._fold.map_end_offset
            if end not in self._base_offsets:  # else it is there already, or is the start of the log
                publish_snapshot(self._files, end, self._fold.end_snapshot, self._fold.end_source)
            drop_other_snapshots(self._files, {*self._base_offsets[1:], end})
        if self._task.epochs and self._task.may_write(LEADER_EPOCH_CHECKPOINT):
            content = self._fold.leader_epochs.checkpoint()
            self._files.stage_or_keep(LEADER_EPOCH_CHECKPOINT, content, certain=self._fold.epochs_are_known)

    def clean_up(self) -> None:
        self._files.remove_superfluous()


def _withdraw(files: PartitionFiles, base_offset: int) -> None:
    """Where Kafka fails on a segment it gets no index; in place, the files that a broker left there stay."""
    if files.task.in_place:
        discard_held(files, base_offset)
        return
    suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
    files.superfluous += filter(files.task.may_write, (segment_file(base_offset, suffix) for suffix in suffixes))
