"""Partitions in, and published what depends on their segments' order: `.txnindex`, producer snapshots, leader epochs.

This runs after every segment of a partition was scanned (`kidxlib.build`), over what the scans left; it opens no log.
A row is given out after its files are durable.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from kidxlib.build import GROUP_BYTES, GROUP_FILES, BuiltSegment, held_name
from kidxlib.fold import FoldedSegment, PartitionFold, ScannedSegment, StateSource
from kidxlib.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_snapshot,
    segment_file,
)
from kidxlib.producers import Producers, SnapshotError
from kidxlib.publish import Folder, Owner, Published, Publisher, list_folder, read_file
from kidxlib.recover import ScanEnd, Status

#: No snapshot that Kafka writes is larger: 46 bytes for each of a million producers.
_SNAPSHOT_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to finish.

    Attributes:
        segments_folder: where its logs are, and a broker's snapshots.
        index_folder: where its index files go.
        in_place: these are the same, so what cannot be known better than the broker did is kept.
        snapshots: publish producer snapshots too.
        epochs: publish the leader epoch checkpoint too.
        only: names of the files that may be written or removed; None for all.
    """

    segments_folder: Folder
    index_folder: Folder
    in_place: bool
    snapshots: bool
    epochs: bool
    only: frozenset[str] | None = None

    def may_write(self, name: str) -> bool:
        return self.only is None or name in self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """One segment of it, in the order of base offsets.

    Attributes:
        present: it is in the source; a segment that is gone still tells what came before.
        published: its index files were published, so its transaction index may be.
    """

    scanned: ScannedSegment
    present: bool
    published: bool


def segment_task(built: BuiltSegment) -> SegmentTask:
    """What is to be finished of a segment that was read just now."""
    return SegmentTask(
        scanned=ScannedSegment.of(built.task.segment.base_offset, built.recovered),
        present=built.end.status is not Status.GONE,
        published=built.offset_index is not None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSegment:
    """What became of a segment that is present.

    Attributes:
        state_source: where the producers' state at its base offset comes from.
        aborted: the transactions aborted in it, of dtype `formats.ABORTED_TRANSACTION`.
        failure: Kafka fails on it for reasons that lie in producers or leader epochs: its index files are withdrawn.
        published: what was done with its `.txnindex`; `NONE` where there is none and need not be.
        transaction_index_bytes, transaction_index_crc32c: of the file as published; None where there is none.
    """

    base_offset: int
    state_source: StateSource
    aborted: NDArray[np.void]
    failure: ScanEnd | None
    published: Published
    transaction_index_bytes: int | None
    transaction_index_crc32c: int | None


@dataclass(slots=True)
class FinishedPartition:
    """What became of a partition.

    Attributes:
        kept: names of snapshots and checkpoints that stay as they are, because better ones cannot be made for certain.
    """

    task: PartitionTask
    segments: list[FinishedSegment] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def finish(partitions: Iterable[tuple[PartitionTask, Iterable[SegmentTask]]]) -> Iterator[FinishedPartition]:
    """Fold partitions one after the other and publish what comes out.

    Raises:
        PublishError: an index folder cannot be written.
    """
    with Publisher() as publisher:
        waiting: list[_Finisher] = []
        for task, segments in partitions:
            finisher = _Finisher(task, publisher)
            waiting.append(finisher)
            for segment in segments:
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


class _Finisher:
    """One partition on its way."""

    def __init__(self, task: PartitionTask, publisher: Publisher) -> None:
        self.finished = FinishedPartition(task)
        self._task = task
        self._publisher = publisher
        self._fold = PartitionFold(self._broker_snapshot)
        self._base_offsets: list[int] = []
        self._superfluous: list[str] = []
        self._owner: Owner | None = None
        self._broker_snapshots: frozenset[int | None] | None = None
        self._present: frozenset[str] | None = None

    def add(self, segment: SegmentTask) -> None:
        folded = self._fold.add(segment.scanned)
        if not segment.present:
            return
        base_offset = folded.base_offset
        if self._task.in_place:
            self._owner = self._owner_of_log(base_offset)
        if self._task.snapshots and self._base_offsets:  # none at the start of the log, as in Kafka
            self._publish_snapshot(base_offset, folded.snapshot, folded.state_source)
        self._base_offsets.append(base_offset)
        if folded.failure is not None:
            self._withdraw(base_offset)
        published, content = Published.NONE, None
        if segment.published and folded.failure is None:
            published, content = self._publish_transaction_index(folded)
            if self._task.in_place:
                self._release_offset_index(base_offset)
        self.finished.segments.append(
            FinishedSegment(
                base_offset=base_offset,
                state_source=folded.state_source,
                aborted=folded.aborted,
                failure=folded.failure,
                published=published,
                transaction_index_bytes=None if content is None else len(content),
                transaction_index_crc32c=None if content is None else google_crc32c.value(content),
            )
        )

    def end(self) -> None:
        """Publish what belongs to the partition as a whole."""
        if not self._base_offsets:
            return
        if self._task.snapshots:
            end = self._fold.map_end_offset
            if end not in self._base_offsets:  # else it is there already, or is the start of the log
                self._publish_snapshot(end, self._fold.end_snapshot, self._fold.end_source)
            if not self._task.in_place:
                wanted = {*self._base_offsets[1:], end}
                offsets = {name: parse_snapshot(name) for name in list_folder(self._task.index_folder)}
                superfluous = (name for name, offset in offsets.items() if offset not in {*wanted, None})
                self._superfluous += filter(self._task.may_write, superfluous)
        if self._task.epochs and self._task.may_write(LEADER_EPOCH_CHECKPOINT):
            content = self._fold.leader_epochs.checkpoint()
            self._publish_or_keep(LEADER_EPOCH_CHECKPOINT, content, certain=self._fold.epochs_are_known)

    def clean_up(self) -> None:
        """Once all is published: remove what has come to nothing."""
        for name in self._superfluous:
            self._publisher.remove(self._task.index_folder, name)

    def _broker_snapshot(self, offset: int) -> bytes | None:
        if self._broker_snapshots is None:  # asked for once, and only where the state is not known without
            self._broker_snapshots = frozenset(parse_snapshot(name) for name in list_folder(self._task.segments_folder))
        if offset not in self._broker_snapshots:
            return None
        return read_file(self._task.segments_folder, segment_file(offset, SNAPSHOT_SUFFIX), _SNAPSHOT_BYTES_MAX)

    def _owner_of_log(self, base_offset: int) -> Owner | None:
        with contextlib.suppress(OSError):
            return Owner.of(os.lstat(os.path.join(str(self._task.index_folder), segment_file(base_offset, LOG_SUFFIX))))
        return self._owner

    def _withdraw(self, base_offset: int) -> None:
        """Where Kafka fails on a segment it gets no index; in place, the files that a broker left there stay."""
        suffixes = () if self._task.in_place else (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        self._superfluous += filter(self._task.may_write, (segment_file(base_offset, suffix) for suffix in suffixes))
        if self._task.in_place:
            self._superfluous.append(held_name(base_offset))

    def _publish_transaction_index(self, folded: FoldedSegment) -> tuple[Published, bytes | None]:
        name = segment_file(folded.base_offset, TRANSACTION_INDEX_SUFFIX)
        content = folded.aborted.tobytes()
        if not self._task.may_write(name):
            return Published.NONE, read_file(self._task.index_folder, name)
        present = self._read_present(name, len(content) + 1)
        if present is None and not content:
            return Published.NONE, None
        if self._task.in_place and present not in (None, content) and folded.state_source is StateSource.UNKNOWN:
            return Published.KEPT, None
        return self._publisher.stage(self._task.index_folder, name, content, self._owner), content

    def _read_present(self, name: str, limit: int) -> bytes | None:
        """Up to `limit` bytes of a file that was there when the partition was begun. The folder is listed once: most of
        these files are not there, and a store would be asked for each.
        """
        if self._present is None:
            self._present = frozenset(list_folder(self._task.index_folder))
        return read_file(self._task.index_folder, name, limit) if name in self._present else None

    def _release_offset_index(self, base_offset: int) -> None:
        """Put an offset index in place that was held back until its transaction index was there."""
        held = held_name(base_offset)
        content = read_file(self._task.index_folder, held)
        if content is not None:
            name = segment_file(base_offset, OFFSET_INDEX_SUFFIX)
            self._publisher.stage(self._task.index_folder, name, content, self._owner)
            self._superfluous.append(held)

    def _publish_snapshot(self, offset: int, content: bytes, source: StateSource) -> None:
        name = segment_file(offset, SNAPSHOT_SUFFIX)
        if not self._task.may_write(name):
            return
        present = self._read_present(name, _SNAPSHOT_BYTES_MAX)
        if present is not None:
            # The same producers in another order are the same snapshot: a broker's own is left as it is.
            with contextlib.suppress(SnapshotError):
                if Producers.from_snapshot(present).snapshot() == content:
                    return
        self._publish_or_keep(name, content, certain=source is not StateSource.UNKNOWN)

    def _publish_or_keep(self, name: str, content: bytes, *, certain: bool) -> None:
        """In place, only what is certain: a broker would believe a snapshot or checkpoint that knows too little."""
        if self._task.in_place and not certain:
            self.finished.kept.append(name)
        else:
            self._publisher.stage(self._task.index_folder, name, content, self._owner)
