"""Reads segments, publishes their indexes (`build_segments`), and returns a row of facts for each after its index files
are durable: a row in the catalog always has its files. An audit reads segments alike (`recover_task`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from kidxlib.catalog.segments import IndexFile
from kidxlib.errors import LogChangedError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.indexing.plan import BuildTask, ScanTask
from kidxlib.jit.machine import cores
from kidxlib.recovery.kept_scans import KeptPass, PassPlace
from kidxlib.recovery.outcome import ScanEnd, Status, end_of_unread_log
from kidxlib.recovery.record_facts import with_all_facts
from kidxlib.recovery.recover import RecoveredSegment, ScannedLogs, recover_in_sections, recovered_of, scan_logs
from kidxlib.storage.location import FileVersion
from kidxlib.storage.log_bytes import OBJECT_BYTES_MAX, Access, LogBytes, RangeRequests
from kidxlib.storage.opened_log import (
    SMALL_BYTES,
    OpenedLog,
    OpenedTogether,
    opened_log,
    room_of_pass,
    small_log_passes,
)
from kidxlib.storage.packed import PackedFile, PackedPath, is_packed
from kidxlib.storage.publisher import GROUP_BYTES, GROUP_FILES, FileOwner, Published, Publisher, held_name
from kidxlib.storage.small_files import read_file
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import is_object

#: Of a segment.
_INDEX_FILES: Final = 2
#: Segments of one pass whose index files are packed: nothing waits for a flush, and what a pass costs by itself is as
#: much as 30 segments of 64 KiB.
_PACKED_SEGMENTS: Final = 500
#: In place of the position of a scan.
NOT_READ: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """The result of reading and indexing one segment.

    Attributes:
        version: the log as it was when it was read; as it was listed, if it was not opened.
        recovered: None where the log was not read to the end (`end.status` is `unreadable` or `changed`).
        offset_index, time_index: None if there is none; of a segment with problems, whatever file exists.
        reads: requests and bytes that reading the log took, if it is an object; None if it is a file or was not opened.
        packed: its index files that a catalog is to keep.
    """

    task: BuildTask
    version: FileVersion | None
    end: ScanEnd
    recovered: RecoveredSegment | None
    published: Published
    offset_index: IndexFile | None = None
    time_index: IndexFile | None = None
    reads: RangeRequests | None = None
    packed: tuple[PackedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegments:
    """The result of reading and indexing segments, by columns: each attribute has a value for each segment.

    Attributes:
        versions, ends: as in `BuiltSegment`.
        scans: of the logs that were read to the end, in the order of the segments; None of a log that was read alone.
        scan_of: the position of each segment in `scans`; `NOT_READ` of a log that was not read to the end.
        alone: the scan of a log that was read alone.
        published: as in `BuiltSegment`.
        offset_index, time_index: the content of the file afterwards; None where `BuiltSegment` has None.
        reads: of the log that was read alone.
        packs: whether a catalog is to keep the segment's index files, which it has none of yet.
        packed: the other index files that a catalog is to keep; the first `BuiltSegment` has them.
    """

    tasks: Sequence[BuildTask]
    versions: Sequence[FileVersion | None]
    ends: Sequence[ScanEnd]
    scans: ScannedLogs | None
    scan_of: Sequence[int]
    alone: RecoveredSegment | None = None
    published: Sequence[Published]
    offset_index: Sequence[bytes | None]
    time_index: Sequence[bytes | None]
    reads: RangeRequests | None = None
    packs: Sequence[bool]
    packed: tuple[PackedFile, ...] = ()

    def __iter__(self) -> Iterator[BuiltSegment]:
        for number, task in enumerate(self.tasks):
            recovered = self.alone
            if self.scans is not None and self.scan_of[number] != NOT_READ:
                recovered = recovered_of(self.scans, self.scan_of[number])
            offset_index, time_index = self.offset_index[number], self.time_index[number]
            yield BuiltSegment(
                task=task,
                version=self.versions[number],
                end=self.ends[number],
                recovered=recovered,
                published=self.published[number],
                offset_index=None if offset_index is None else IndexFile.of(offset_index, layouts.OFFSET_INDEX_ENTRY),
                time_index=None if time_index is None else IndexFile.of(time_index, layouts.TIME_INDEX_ENTRY),
                reads=self.reads,
                packed=(*(() if number else self.packed), *self._packed_of(number)),
            )

    def _packed_of(self, number: int) -> Iterator[PackedFile]:
        if self.packs[number]:
            directory = PackedPath.of(str(self.tasks[number].index_directory))
            base_offset = self.tasks[number].segment.base_offset
            for suffix, contents in ((TIME_INDEX_SUFFIX, self.time_index), (OFFSET_INDEX_SUFFIX, self.offset_index)):
                file = directory.file_in(segment_file(base_offset, suffix), contents[number])
                assert file is not None
                yield file


def build_segments(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[BuiltSegment]:
    """`build_in_passes`, segment by segment."""
    for built in build_in_passes(tasks, use_mmap):
        yield from built


def build_in_passes(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[BuiltSegments]:
    """Index segments and publish `<base offset>.index` and `.timeindex` in their index directories. Small logs on a
    disk are read many in one pass, large ones one after the other, small ones in an object store several at a time. A
    damaged or vanished segment never stops the others.

    In place, the `.index` of a segment with producers waits under another name until
    `kidxlib.indexing.finish_partition` has its transaction index.

    Mapping (`use_mmap`) is faster than reading in chunks, but a bad sector or a file that shrinks then kills the
    process, so a second attempt should not map. Active segments are never mapped.
    """
    with Publisher() as publisher:
        waiting: list[Callable[[], BuiltSegments]] = []
        for read in _read_in_passes(tasks, use_mmap):
            waiting.append(_staged(read, publisher))
            staged_files = publisher.staged_files  # none: all is packed, and nothing has to be flushed with others
            if not staged_files or staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                publisher.commit()
                yield from (built() for built in waiting)
                waiting.clear()
        publisher.commit()
        yield from (built() for built in waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadSegments:
    """Segments that were read, as in `BuiltSegments`, without index files yet; and the owners of new files beside
    their logs.
    """

    tasks: Sequence[BuildTask]
    versions: Sequence[FileVersion | None]
    ends: Sequence[ScanEnd]
    scans: ScannedLogs | None = None
    scan_of: Sequence[int]
    alone: RecoveredSegment | None = None
    owners: Sequence[FileOwner | None]
    reads: RangeRequests | None = None

    def index_contents(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """What the `.index` and the `.timeindex` should be, by the position in `scan_of`."""
        if self.scans is not None:
            return self.scans.contents("offset_index"), self.scans.contents("time_index")
        return ([], []) if self.alone is None else ([self.alone.offset_index], [self.alone.time_index])

    def has_producers(self, scan: int) -> bool:
        """Whether a segment has producers, by its position in `scan_of`."""
        if self.scans is not None:
            return bool(self.scans.states["producer_events"][scan])
        return self.alone is not None and len(self.alone.producer_events) > 0


def _read_in_passes(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[_ReadSegments]:
    alone = partial(_read_alone, use_mmap=use_mmap)
    room = room_of_pass()
    for is_in_store, some in groupby(tasks, key=lambda task: is_object(task.segment.path)):
        if is_in_store:
            yield from in_order(alone, some, lambda task: min(task.log_bytes, OBJECT_BYTES_MAX), OBJECT_BYTES_MAX)
            continue
        for together in _passes(some):
            match _pass_of(together[0]):
                case None:
                    yield alone(together[0])
                case PassPlace() as place:
                    yield from _scanned_together(together, place.read(), use_mmap)
                case _:
                    yield from _read_together(together, use_mmap, room)


def _pass_of(task: BuildTask) -> PassPlace | Literal["small", "packed"] | None:
    """With which others a log on a disk is done in one pass: those with which it was scanned before, or small ones, of
    which those whose index files are packed are `packed`; None: it is done alone.
    """
    if task.all_facts:
        return None
    if task.kept_scans is not None:
        of_pass = task.kept_scans.pass_of(task.segment.base_offset)
        return None if of_pass is None else of_pass[0]
    if task.log_bytes > SMALL_BYTES:
        return None
    return "packed" if is_packed(task.index_directory.root) else "small"


def _passes(tasks: Iterable[BuildTask]) -> Iterator[list[BuildTask]]:
    """Tasks that are done in one pass, and whose index files are published together."""
    for of_pass, some in groupby(tasks, key=_pass_of):
        if of_pass is None:
            yield from ([task] for task in some)
        elif of_pass == "packed":
            yield from small_log_passes(some, _PACKED_SEGMENTS)
        elif of_pass == "small":
            yield from small_log_passes(some, GROUP_FILES // _INDEX_FILES)
        else:
            yield list(some)


def _scanned_together(tasks: Sequence[BuildTask], kept: KeptPass, use_mmap: bool) -> Iterator[_ReadSegments]:
    """Segments whose logs were scanned before in one pass. A log that has changed since is read again."""
    ends = kept.scans.ends()
    same: list[tuple[BuildTask, int, os.stat_result]] = []
    for task in tasks:
        number, status = _number_in_pass(task), None
        with contextlib.suppress(OSError):  # read again, it is told why it cannot be read
            status = os.stat(task.segment.path)
        if status is not None and kept.is_of(number, FileVersion.of(status), task.options):
            same.append((task, number, status))
            continue
        if same:
            yield _segments_of_pass(same, kept.scans, ends)
            same = []
        yield _read_alone(task, use_mmap)
    if same:
        yield _segments_of_pass(same, kept.scans, ends)


def _number_in_pass(task: BuildTask) -> int:
    of_pass = None if task.kept_scans is None else task.kept_scans.pass_of(task.segment.base_offset)
    assert of_pass is not None
    return of_pass[1]


def _segments_of_pass(
    same: Sequence[tuple[BuildTask, int, os.stat_result]], scans: ScannedLogs, ends: Sequence[ScanEnd]
) -> _ReadSegments:
    return _ReadSegments(
        tasks=[task for task, _, _ in same],
        versions=[FileVersion.of(status) for _, _, status in same],
        ends=[ends[number] for _, number, _ in same],
        scans=scans,
        scan_of=[number for _, number, _ in same],
        owners=[FileOwner.of(status) if task.in_place else None for task, _, status in same],
    )


def _read_together(tasks: Sequence[BuildTask], use_mmap: bool, room: NDArray[np.uint8]) -> Iterator[_ReadSegments]:
    """Segments with small logs in one pass; those that are no longer small, alone after them."""
    read: list[BuildTask] = []
    grown: list[BuildTask] = []
    versions: list[FileVersion | None] = []
    ends: list[ScanEnd | None] = []
    scan_of: list[int] = []
    owners: list[FileOwner | None] = []
    with OpenedTogether(room) as opened:
        for task in tasks:
            version, end, number, owner = task.segment.version, None, NOT_READ, None
            try:
                position = opened.open(task.segment.path, use_mmap=use_mmap and not task.segment.active)
                if position is None:
                    grown.append(task)
                    continue
                number, version = position, opened.versions[position]
                owner = FileOwner.of(opened.statuses[position]) if task.in_place else None
            except (LogChangedError, OSError) as error:
                end = end_of_unread_log(task.segment.path, error)
            read.append(task)
            versions.append(version)
            ends.append(end)
            scan_of.append(number)
            owners.append(owner)
        scanned = [task for task, number in zip(read, scan_of, strict=True) if number != NOT_READ]
        scans = scan_logs(
            opened.logs, [task.segment.base_offset for task in scanned], [task.options for task in scanned]
        )
        scan_ends = scans.ends()
        for place, number in enumerate(scan_of):
            if number == NOT_READ:
                continue
            ends[place] = scan_ends[number]
            try:
                opened.ensure_unchanged(number)
            except LogChangedError as error:
                ends[place], scan_of[place] = end_of_unread_log(read[place].segment.path, error), NOT_READ
    yield _ReadSegments(
        tasks=read,
        versions=versions,
        ends=[end for end in ends if end is not None],
        scans=scans,
        scan_of=scan_of,
        owners=owners,
    )
    yield from (_read_alone(task, use_mmap) for task in grown)


def _read_alone(task: BuildTask, use_mmap: bool) -> _ReadSegments:
    version, reads, owner = task.segment.version, None, None
    recovered: RecoveredSegment | None
    try:
        with opened_log(task.segment.path) as opened:
            version, reads = opened.version, opened.reads
            recovered = _scanned_before(task, version) or _scan(opened, task, use_mmap)
            owner = FileOwner.of(opened.status) if task.in_place and opened.status is not None else None
            opened.ensure_unchanged()
        end = recovered.end
    except (LogChangedError, OSError) as error:
        recovered, end = None, end_of_unread_log(task.segment.path, error)
    return _ReadSegments(
        tasks=[task],
        versions=[version],
        ends=[end],
        scan_of=[NOT_READ if recovered is None else 0],
        alone=recovered,
        owners=[owner],
        reads=reads,
    )


def _scanned_before(task: BuildTask, version: FileVersion) -> RecoveredSegment | None:
    if task.kept_scans is None or task.all_facts:
        return None
    return task.kept_scans.of(task.segment.base_offset, version, task.options)


def _scan(opened: OpenedLog, task: BuildTask, use_mmap: bool) -> RecoveredSegment:
    log = opened.log(use_mmap=use_mmap and not task.segment.active, access=Access.SEQUENTIAL)
    recovered = recover_task(log, task)
    return replace(recovered, facts=with_all_facts(log, recovered.facts)) if task.all_facts else recovered


def recover_task(log: LogBytes, task: ScanTask) -> RecoveredSegment:
    base_offset, offset_index = task.segment.base_offset, None
    threads = min(task.threads, cores())
    if threads > 1:
        offset_index = read_file(task.index_directory, segment_file(base_offset, OFFSET_INDEX_SUFFIX))
    return recover_in_sections(log, base_offset, task.options, threads, offset_index)


def _staged(read: _ReadSegments, publisher: Publisher) -> Callable[[], BuiltSegments]:
    """Stage the index files of segments. The result is to be asked for once they are committed."""
    of_offset, of_time = read.index_contents()
    offset_index: list[bytes | None] = []
    time_index: list[bytes | None] = []
    outcomes: list[tuple[Callable[[], Published], ...]] = []
    packs = [False] * len(read.tasks)
    for number, (task, end, scan, owner) in enumerate(
        zip(read.tasks, read.ends, read.scan_of, read.owners, strict=True)
    ):
        offset: bytes | None = None
        time: bytes | None = None
        outcome: tuple[Callable[[], Published], ...]
        if scan == NOT_READ or end.status is Status.QUARANTINED:
            outcome = (lambda: Published.NONE,)
        elif end.status is Status.TRUNCATED and not task.publish_truncated:
            outcome = (lambda: Published.KEPT,)
        elif task.only is None and publisher.is_new_packed(task.index_directory):
            offset, time, outcome = of_offset[scan], of_time[scan], (lambda: Published.WRITTEN,)
            packs[number] = True
        else:
            # The offset index last: a broker that finds one rebuilds nothing, not even a time index that is missing.
            time, time_outcome = _publish(task, owner, publisher, TIME_INDEX_SUFFIX, of_time[scan])
            hold = task.in_place and read.has_producers(scan)
            offset, offset_outcome = _publish(task, owner, publisher, OFFSET_INDEX_SUFFIX, of_offset[scan], hold=hold)
            outcome = (time_outcome, offset_outcome)
        offset_index.append(offset)
        time_index.append(time)
        outcomes.append(outcome)

    packed = publisher.take_packed()

    def built() -> BuiltSegments:
        return BuiltSegments(
            tasks=read.tasks,
            versions=read.versions,
            ends=read.ends,
            scans=read.scans,
            scan_of=read.scan_of,
            alone=read.alone,
            published=[_done_with_files(outcome) for outcome in outcomes],
            offset_index=offset_index,
            time_index=time_index,
            reads=read.reads,
            packs=packs,
            packed=packed,
        )

    return built


def _done_with_files(outcomes: tuple[Callable[[], Published], ...]) -> Published:
    """What was done with the index files of a segment."""
    if len(outcomes) == 1:
        return outcomes[0]()
    return Published.WRITTEN if Published.WRITTEN in [outcome() for outcome in outcomes] else Published.UNCHANGED


def _publish(
    task: BuildTask, owner: FileOwner | None, publisher: Publisher, suffix: str, content: bytes, *, hold: bool = False
) -> tuple[bytes | None, Callable[[], Published]]:
    """The file's content afterwards, and what was done. With `hold` it waits under another name, unless the same
    content is there already.
    """
    base_offset = task.segment.base_offset
    name = segment_file(base_offset, suffix)
    if task.only is not None and name not in task.only:
        return read_file(task.index_directory, name), lambda: Published.UNCHANGED
    if hold and read_file(task.index_directory, name, len(content) + 1) != content:
        name = held_name(base_offset)
    return content, publisher.begin_staging(task.index_directory, name, content, owner)
