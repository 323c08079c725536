"""Reads segments, publishes their indexes (`build`), and returns a row of facts for each after its index files are
durable: a row in the catalog always has its files. An audit reads segments alike (`recover_task`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.catalog.segments import IndexFile
from kidxlib.errors import LogChangedError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.indexing.finish_files import held_name
from kidxlib.indexing.tasks import BuildTask, PartitionTask, ScanTask
from kidxlib.recovery.log_facts.record_facts import with_all_facts
from kidxlib.recovery.outcome import ScanEnd, Status
from kidxlib.recovery.parallel import recover_in_sections
from kidxlib.recovery.partition_fold import FoldState, StateSource
from kidxlib.recovery.segment import RecoveredSegment
from kidxlib.storage.directory import read_file
from kidxlib.storage.location import FileVersion
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import OpenedLog, opened_log
from kidxlib.storage.packed import PackedFile
from kidxlib.storage.publisher import Owner, Published, Publisher
from kidxlib.storage.ranged_log import OBJECT_BYTES_MAX, Reads
from kidxlib.storage.store.requests import in_order
from kidxlib.storage.store.s3 import is_object

#: Files published together, and rows held back until they are: one flush for all of them.
GROUP_FILES: Final = 300
GROUP_BYTES: Final = 32 * 1024 * 1024


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
class FinishedPartition:
    """The result of finishing a partition.

    Attributes:
        segments: by base offset.
        kept: names of snapshots and checkpoints that stay as they are, because no better ones are certain.
        states: before the last segment and after it, so far as they can be told.
        packed: its files that a catalog is to keep, or to keep no longer.
    """

    task: PartitionTask
    segments: tuple[FinishedSegment, ...]
    kept: tuple[str, ...]
    states: tuple[FoldState, ...]
    packed: tuple[PackedFile, ...] = ()


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
    reads: Reads | None = None
    packed: tuple[PackedFile, ...] = ()


def build(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[BuiltSegment]:
    """Index segments and publish `<base offset>.index` and `.timeindex` in their index directories. Logs on a disk are
    read one after the other, small ones in an object store several at a time. A damaged or vanished segment never stops
    the others.

    In place, the `.index` of a segment with producers waits under another name until
    `kidxlib.indexing.finish_partition` has its transaction index.

    Mapping (`use_mmap`) is faster than reading in chunks, but a bad sector or a file that shrinks then kills the
    process, so a second attempt should not map. Active segments are never mapped.
    """
    with Publisher() as publisher:
        waiting: list[Callable[[], BuiltSegment]] = []
        for read, owner in _read(tasks, use_mmap):
            waiting.append(_staged(read, owner, publisher))
            if publisher.staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                publisher.commit()
                yield from (built() for built in waiting)
                waiting.clear()
        publisher.commit()
        yield from (built() for built in waiting)


def _read(tasks: Iterable[BuildTask], use_mmap: bool) -> Iterator[tuple[BuiltSegment, Owner | None]]:
    """Segments without index files yet, and the owner of new files beside their logs."""
    read = partial(_read_one, use_mmap=use_mmap)
    for is_in_store, some in groupby(tasks, key=lambda task: is_object(task.segment.path)):
        if is_in_store:
            yield from in_order(read, some, lambda task: min(task.log_bytes, OBJECT_BYTES_MAX), OBJECT_BYTES_MAX)
        else:
            yield from map(read, some)


def _read_one(task: BuildTask, use_mmap: bool) -> tuple[BuiltSegment, Owner | None]:
    version, reads, owner = task.segment.version, None, None
    recovered: RecoveredSegment | None
    try:
        with opened_log(task.segment.path) as opened:
            version, reads = opened.version, opened.reads
            recovered = _scanned_before(task, version) or _scan(opened, task, use_mmap)
            owner = Owner.of(opened.status) if task.in_place and opened.status is not None else None
            opened.ensure_unchanged()
        end = recovered.end
    except (LogChangedError, OSError) as error:
        recovered, end = None, why_not_read(task.segment.path, error)
    read = BuiltSegment(task=task, version=version, end=end, recovered=recovered, published=Published.NONE, reads=reads)
    return read, owner


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
    threads = min(task.threads, len(os.sched_getaffinity(0)))
    if threads > 1:
        offset_index = read_file(task.index_directory, segment_file(base_offset, OFFSET_INDEX_SUFFIX))
    return recover_in_sections(log, base_offset, task.options, threads, offset_index)


def why_not_read(path: str, error: LogChangedError | OSError) -> ScanEnd:
    match error:
        case LogChangedError():
            return ScanEnd(Status.CHANGED, "log-changed", 0, str(error))
        case FileNotFoundError():
            is_there = not is_object(path) and os.path.lexists(path)  # a symlink that leads nowhere
            status = Status.UNREADABLE if is_there else Status.GONE
            return ScanEnd(status, "no-such-file", 0, error.strerror)
        case _:
            return ScanEnd(Status.UNREADABLE, "cannot-read", 0, error.strerror or str(error))


def _staged(read: BuiltSegment, owner: Owner | None, publisher: Publisher) -> Callable[[], BuiltSegment]:
    """Stage the index files of a segment. The result is to be asked for once they are committed."""
    task, recovered = read.task, read.recovered
    if recovered is None or read.end.status is Status.QUARANTINED:
        return lambda: read
    if read.end.status is Status.TRUNCATED and not task.publish_truncated:
        return lambda: replace(read, published=Published.KEPT)

    # The offset index last: a broker that finds one rebuilds nothing, not even a time index that is missing.
    publish = partial(_publish, task, owner, publisher)
    time_index, time_outcome = publish(TIME_INDEX_SUFFIX, recovered.time_index)
    hold = task.in_place and len(recovered.producer_events) > 0
    offset_index, offset_outcome = publish(OFFSET_INDEX_SUFFIX, recovered.offset_index, hold=hold)
    present = replace(
        read,
        offset_index=None if offset_index is None else IndexFile.of(offset_index, layouts.OFFSET_INDEX_ENTRY),
        time_index=None if time_index is None else IndexFile.of(time_index, layouts.TIME_INDEX_ENTRY),
        packed=publisher.take_packed(),
    )

    def built() -> BuiltSegment:
        outcomes = (time_outcome(), offset_outcome())
        return replace(present, published=Published.WRITTEN if Published.WRITTEN in outcomes else Published.UNCHANGED)

    return built


def _publish(
    task: BuildTask, owner: Owner | None, publisher: Publisher, suffix: str, content: bytes, *, hold: bool = False
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
