"""Finishes partitions: publishes what depends on the order of their segments, `.txnindex`, producer snapshots and
leader epochs, from the results of the scans (`kidxlib.indexing.segments`). No log is opened. A row is returned after
its files are durable.

An offset index waits under another name for its transaction index, and is then published or removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import SnapshotError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.checksums import crc32c
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_BYTES_MAX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    parse_snapshot,
    segment_file,
)
from kidxlib.indexing.listing import IndexDirectoryListings
from kidxlib.indexing.plan import PartitionTask
from kidxlib.indexing.segments import NOT_READ, BuiltSegment, BuiltSegments
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.partition_fold import (
    FoldedSegment,
    FoldState,
    PartitionFold,
    PlainSegments,
    Producers,
    ScannedSegment,
    StateSource,
)
from kidxlib.storage.location import Directory, is_local, list_directory, open_directory
from kidxlib.storage.packed import PackedFile
from kidxlib.storage.publisher import GROUP_BYTES, GROUP_FILES, FileOwner, Published, Publisher, held_name
from kidxlib.storage.small_files import read_at, read_file
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import is_object


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedSegment:
    """One segment of a partition to finish, in the order of base offsets.

    Attributes:
        present: it is in the source. A segment missing from the source still contributes its events.
        published: its index files were published, so its transaction index may be.
    """

    scanned: ScannedSegment
    present: bool
    published: bool

    @classmethod
    def of(cls, built: BuiltSegment) -> Self:
        return cls(
            scanned=ScannedSegment.of(built.task.segment.base_offset, built.recovered),
            present=built.end.status is not Status.GONE,
            published=built.offset_index is not None,
        )

    @classmethod
    def of_each(cls, built: BuiltSegments) -> Iterator[Self]:
        if built.scans is None:
            yield from map(cls.of, built)
            return
        for task, end, number, offset_index in zip(
            built.tasks, built.ends, built.scan_of, built.offset_index, strict=True
        ):
            base_offset, is_read = task.segment.base_offset, number != NOT_READ
            of_scan = ScannedSegment.of_scans(base_offset, built.scans, number) if is_read else None
            yield cls(
                scanned=of_scan or ScannedSegment.of(base_offset, None),
                present=end.status is not Status.GONE,
                published=offset_index is not None,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSegment:
    """The result of finishing a segment that exists in the source.

    Attributes:
        state_source: where the producers' state at its base offset comes from.
        aborted: the transactions aborted in it, of dtype `layouts.ABORTED_TRANSACTION`.
        failure: why Kafka fails on its producers or leader epochs; its index files are withdrawn then.
        published: what was done with its `.txnindex`; `NONE` where there is none and need not be.
        transaction_index_bytes, transaction_index_crc32c: None where there is no `.txnindex`.
    """

    base_offset: int
    state_source: StateSource
    aborted: NDArray[np.void]
    failure: ScanEnd | None
    published: Published
    transaction_index_bytes: int | None
    transaction_index_crc32c: int | None


@dataclass(frozen=True, slots=True)
class FinishedPlain:
    """The result of finishing segments that exist in the source, and that have neither aborted transactions nor a
    `.txnindex`, by columns.
    """

    base_offsets: NDArray[np.int64]
    state_sources: Sequence[StateSource]


@dataclass(frozen=True, slots=True)
class FinishedPartition:
    """The result of finishing a partition.

    Attributes:
        segments: by base offset.
        plain: its other segments, where they were given as `PlainSegments`.
        kept: names of snapshots and checkpoints that stay as they are, because no better ones are certain.
        states: before the last segment and after it, so far as they can be told.
        packed: its files that a catalog is to keep, or to keep no longer.
    """

    task: PartitionTask
    segments: tuple[FinishedSegment, ...]
    kept: tuple[str, ...]
    states: tuple[FoldState, ...]
    packed: tuple[PackedFile, ...] = ()
    plain: tuple[FinishedPlain, ...] = ()


def fold_and_publish(
    partitions: Iterable[tuple[PartitionTask, Iterable[UnfinishedSegment | PlainSegments]]],
    coming: Sequence[Directory] = (),
) -> Iterator[FinishedPartition]:
    """Finish one partition after the other: fold its segments, and publish what depends on all of them. Plain segments
    are present, and their index files were published. `coming` are the partitions' index directories, in their order,
    where that is known.
    """
    with Publisher() as publisher, IndexDirectoryListings(coming) as listings:
        waiting: list[_Finisher] = []
        for task, segments in partitions:
            finisher = _Finisher(task, publisher, listings)
            waiting.append(finisher)
            with contextlib.closing(finisher.files):
                for segment, is_last in _with_last_alone(segments):
                    if is_last:
                        finisher.keep_state()
                    if isinstance(segment, PlainSegments):
                        finisher.add_plain(segment)
                    else:
                        finisher.add(segment)
                finisher.end()
            if publisher.staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                yield from _commit_waiting(publisher, waiting)
        yield from _commit_waiting(publisher, waiting)


def _commit_waiting(publisher: Publisher, waiting: list[_Finisher]) -> Iterator[FinishedPartition]:
    publisher.commit()
    for finisher in waiting:
        finisher.files.remove_superfluous()
        yield finisher.finished
    waiting.clear()


def _with_last_alone(
    segments: Iterable[UnfinishedSegment | PlainSegments],
) -> Iterator[tuple[UnfinishedSegment | PlainSegments, bool]]:
    """All of them, and whether it is the last segment, which comes alone."""
    coming = iter(segments)
    held = next(coming, None)
    while held is not None:
        following = next(coming, None)
        if following is None and isinstance(held, PlainSegments):
            if len(held) > 1:
                yield held.part(0, len(held) - 1), False
            held = _plain_segment(held, len(held) - 1)
        yield held, following is None
        held = following


def _plain_segment(segments: PlainSegments, number: int) -> UnfinishedSegment:
    return UnfinishedSegment(scanned=segments.segment(number), present=True, published=True)


class _BrokerSnapshots:
    """The broker's snapshots beside the logs of a partition."""

    def __init__(self, task: PartitionTask) -> None:
        self._task = task

    @cached_property
    def _snapshot_offsets(self) -> frozenset[int | None]:
        """Listed once, and only where the state is not known without snapshots."""
        return frozenset(parse_snapshot(name) for name in list_directory(self._task.segments_directory))

    def content_at(self, offset: int) -> bytes | None:
        if offset not in self._snapshot_offsets:
            return None
        return read_file(self._task.segments_directory, segment_file(offset, SNAPSHOT_SUFFIX), SNAPSHOT_BYTES_MAX)


def _publish_snapshot(files: _FinishedPartitionFiles, offset: int, content: bytes, source: StateSource) -> None:
    """Stage a snapshot, unless one with the same producers exists, or in place the state is not certain.

    Where there is no readable one, a broker that recovers takes a snapshot of what it has read, certain or not. Without
    it a segment is never copied to tiered storage (`RemoteLogManager.RLMCopyTask.copyLogSegment`).
    """
    name = segment_file(offset, SNAPSHOT_SUFFIX)
    if not files.task.may_write(name):
        return
    present, is_there = files.read_present(name, SNAPSHOT_BYTES_MAX), False
    if present == content:
        return
    if present is not None:
        # The same producers in another order are the same snapshot: a broker's own is left as it is.
        with contextlib.suppress(SnapshotError):
            if Producers.from_snapshot(present).snapshot() == content:
                return
            is_there = True
    is_taken = bool(files.task.recovered) and not is_there
    files.stage_or_keep(name, content, certain=is_taken or source is not StateSource.UNKNOWN)


def _drop_other_snapshots(files: _FinishedPartitionFiles, wanted: Collection[int]) -> None:
    """Remove the snapshots in an index directory but those at some offsets. Snapshots beside logs are the broker's."""
    if files.task.in_place:
        return
    offsets = {name: parse_snapshot(name) for name in files.present}
    others = (name for name, offset in offsets.items() if offset is not None and offset not in wanted)
    files.superfluous += filter(files.task.may_write, others)


def _publish_transaction_index(
    files: _FinishedPartitionFiles, folded: FoldedSegment
) -> tuple[Callable[[], Published], bytes | None]:
    """Stage the transaction index of a segment. Returns what is done, to be asked for once it is committed, and the
    file's content afterwards; None if there is no file, or a broker's own stays.
    """
    name = segment_file(folded.base_offset, TRANSACTION_INDEX_SUFFIX)
    if not len(folded.aborted) and name not in files.present:  # the usual case
        return _nothing, None
    content = folded.aborted.tobytes()
    if not files.task.may_write(name):
        return _nothing, files.read(name)
    present = files.read_present(name, len(content) + 1)
    if present is None and not content:  # it cannot be read
        return _nothing, None
    is_kept = files.task.in_place and folded.base_offset not in files.task.recovered
    if is_kept and present not in (None, content) and folded.state_source is StateSource.UNKNOWN:
        return lambda: Published.KEPT, None
    return files.stage(name, content), content


def _nothing() -> Published:
    return Published.NONE


class _Finisher:
    def __init__(self, task: PartitionTask, publisher: Publisher, listings: IndexDirectoryListings) -> None:
        self._task, self._publisher = task, publisher
        self.files = _FinishedPartitionFiles(task, publisher, listings)
        self._fold = PartitionFold(_BrokerSnapshots(task).content_at, task.start, task.recovered)
        self._base_offsets = list(task.earlier)
        self._states: list[FoldState] = []
        # But for what is done with the transaction index, which is to be asked for once it is committed.
        self._segments: list[tuple[partial[FinishedSegment], Callable[[], Published]]] = []
        self._plain: list[FinishedPlain] = []

    @property
    def finished(self) -> FinishedPartition:
        """The result, once all is committed."""
        segments = tuple(segment(published=outcome()) for segment, outcome in self._segments)
        packed = self._publisher.take_packed()  # the superfluous files are removed already
        return FinishedPartition(
            self._task, segments, tuple(self.files.kept), tuple(self._states), packed, tuple(self._plain)
        )

    def keep_state(self) -> None:
        """Note the state after the segments so far, for the next time that this partition is finished."""
        state = self._fold.state
        if state is not None:
            self._states.append(state)

    def add_plain(self, segments: PlainSegments) -> None:
        """`add` of each of them."""
        base_offsets = segments.base_offsets.tolist()
        if self._task.snapshots or not self.files.transaction_indexes.isdisjoint(base_offsets):
            for number in range(len(segments)):
                self.add(_plain_segment(segments, number))
            return
        self.files.take_owner_of(base_offsets[-1])
        self._plain.append(FinishedPlain(segments.base_offsets, self._fold.add_plain(segments)))
        self._base_offsets += base_offsets

    def add(self, segment: UnfinishedSegment) -> None:
        folded = self._fold.add(segment.scanned)
        if not segment.present:
            return
        base_offset = folded.base_offset
        self.files.take_owner_of(base_offset)
        if self._task.snapshots and self._base_offsets:  # none at the start of the log, as in Kafka
            _publish_snapshot(self.files, base_offset, folded.snapshot, folded.state_source)
        self._base_offsets.append(base_offset)
        if folded.failure is not None:
            _withdraw(self.files, base_offset)
        if segment.published and folded.failure is None:
            outcome, content = _publish_transaction_index(self.files, folded)
            if self._task.in_place and len(segment.scanned.producer_events):  # else it was not held back
                _release_held(self.files, base_offset)
        else:
            outcome, content = _nothing, None
        finished = partial(
            FinishedSegment,
            base_offset=base_offset,
            state_source=folded.state_source,
            aborted=folded.aborted,
            failure=folded.failure,
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
                _publish_snapshot(self.files, end, self._fold.end_snapshot, self._fold.end_source)
            _drop_other_snapshots(self.files, {*self._base_offsets[1:], end})
        if self._task.epochs and self._task.may_write(LEADER_EPOCH_CHECKPOINT):
            content = self._fold.leader_epochs.checkpoint()
            self.files.stage_or_keep(LEADER_EPOCH_CHECKPOINT, content, certain=self._fold.epochs_are_known)


def _withdraw(files: _FinishedPartitionFiles, base_offset: int) -> None:
    """A segment on which Kafka fails gets no index; in place, the files that a broker left there stay."""
    if files.task.in_place:
        files.superfluous.append(held_name(base_offset))  # it must never get its name
        return
    suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
    files.superfluous += filter(files.task.may_write, (segment_file(base_offset, suffix) for suffix in suffixes))


class _FinishedPartitionFiles:
    """The files of a partition. None changes before the publisher commits. Whoever reads them closes them.

    Attributes:
        kept: the names of files that stay as a broker left them.
        superfluous: the names of files that `remove_superfluous` removes.
    """

    def __init__(self, task: PartitionTask, publisher: Publisher, listings: IndexDirectoryListings) -> None:
        self.task = task
        self.kept: list[str] = []
        self.superfluous: list[str] = []
        self._publisher, self._listings = publisher, listings
        self._owner: FileOwner | None = None
        self._opened: int | None = None  # the index directory, if it is on this machine, from the first read on

    def close(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None

    def take_owner_of(self, base_offset: int) -> None:
        """In place, give all files staged after this the owner and mode of a segment's log."""
        if self.task.in_place:
            log = os.path.join(str(self.task.index_directory), segment_file(base_offset, LOG_SUFFIX))
            with contextlib.suppress(OSError):
                self._owner = FileOwner.of(os.lstat(log))

    def read(self, name: str, limit: int = -1) -> bytes | None:
        directory = self.task.index_directory
        if not is_local(directory):
            return read_file(directory, name, limit)
        if self._opened is None:
            self._opened = open_directory(directory)
        return None if self._opened is None else read_at(self._opened, name, limit)

    def read_present(self, name: str, limit: int) -> bytes | None:
        """Up to `limit` bytes of a file of `present`. The directory is listed once: most of these files do not exist,
        and an object store would need a request for each.
        """
        return self.read(name, limit) if name in self.present else None

    @cached_property
    def present(self) -> frozenset[str]:
        """The names of the files that existed when the partition was begun."""
        return frozenset(self._listings.names_in(self.task.index_directory))

    @cached_property
    def transaction_indexes(self) -> frozenset[int]:
        """The base offsets of the transaction indexes of `present`."""
        names = (name for name in self.present if name.endswith(TRANSACTION_INDEX_SUFFIX))
        return frozenset(parsed[0] for name in names if (parsed := parse_segment_file(name)) is not None)

    def stage(self, name: str, content: bytes) -> Callable[[], Published]:
        """Hand a file to the publisher. The result is to be asked for once it is committed."""
        return self._publisher.begin_staging(self.task.index_directory, name, content, self._owner)

    def stage_or_keep(self, name: str, content: bytes, *, certain: bool) -> None:
        """Stage a file; in place only if its content is certain, as a broker would believe a snapshot or checkpoint
        that knows too little.
        """
        if self.task.in_place and not certain:
            self.kept.append(name)
        else:
            self.stage(name, content)

    def remove_superfluous(self) -> None:
        """Remove the superfluous files, once all others are published."""
        directory = self.task.index_directory
        remove = partial(self._publisher.remove, directory)
        removed = in_order(remove, self.superfluous) if is_object(directory.root) else map(remove, self.superfluous)
        for _ in removed:
            pass


def _release_held(files: _FinishedPartitionFiles, base_offset: int) -> None:
    """Publish a waiting offset index, because its transaction index exists now."""
    held = held_name(base_offset)
    content = files.read(held)
    if content is not None:
        files.stage(segment_file(base_offset, OFFSET_INDEX_SUFFIX), content)
        files.superfluous.append(held)
