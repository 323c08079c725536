"""Segments in, published indexes and one row of facts each out: what a task does with its share of the work.

A row is given out after its index files are durable, so a row in the catalog always has its files.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

import google_crc32c
import numpy as np

from kidxlib import formats
from kidxlib.discover import SegmentFile
from kidxlib.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.objects import is_object
from kidxlib.pieces import recover_in_pieces
from kidxlib.publish import STAGING_PREFIX, STAGING_SUFFIX, Folder, Owner, Published, Publisher, read_file, sweep
from kidxlib.recover import RecoveredSegment, RecoverOptions, ScanEnd, Status
from kidxlib.storage import FileVersion, LogBytes, LogChangedError, Reads, opened_log


class IntervalSource(enum.StrEnum):
    """Who chose the interval that a segment's indexes have."""

    SETTINGS = "settings"
    COMPACTION = "compaction"


#: Files published together, and rows held back until they are: one flush for all of them.
GROUP_FILES: Final = 300
GROUP_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTask:
    """One segment to index.

    Attributes:
        segment: what to read.
        topic_id: from `partition.metadata`; None where there is none.
        options: what the indexes are built with.
        interval_source: who chose their interval, `settings` (or an option) or `compaction`.
        index_folder: where the indexes go.
        in_place: that is the segment's own folder, so new files take the log's owner, group and mode.
        publish_truncated: publish the index of a valid prefix too.
        only: names of the files that may be written; None for all.
        threads: how many may work on it at the same time.
    """

    segment: SegmentFile
    topic_id: str | None
    options: RecoverOptions
    interval_source: IntervalSource
    index_folder: Folder
    in_place: bool
    publish_truncated: bool
    only: frozenset[str] | None = None
    threads: int = 1

    @property
    def repairs_indexes(self) -> bool:
        """Its offset or time index is one of those to be written, and for nothing but that."""
        names = {segment_file(self.segment.base_offset, suffix) for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
        return self.only is not None and bool(names & self.only)

    @property
    def log_bytes(self) -> int:
        """Size of the log as it was listed; 0 where it could not be looked at."""
        return self.segment.version.size if self.segment.version else 0


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index as it stands in its folder; its size in bytes."""

    entries: int
    size: int
    crc32c: int

    @classmethod
    def of(cls, content: bytes, entry: np.dtype[np.void]) -> Self:
        return cls(len(content) // entry.itemsize, len(content), google_crc32c.value(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """What became of one segment.

    Attributes:
        version: the log as it was when it was read; where it was not opened, as it was listed.
        recovered: None where the log was not read to the end (`end.status` is `unreadable` or `changed`).
        offset_index, time_index: None where there is none; of a segment that is not well, whatever is there.
        reads: what reading the log took, where it is an object; None where it is not, or was not opened.
    """

    task: BuildTask
    version: FileVersion | None
    end: ScanEnd
    recovered: RecoveredSegment | None
    published: Published
    offset_index: IndexFile | None = None
    time_index: IndexFile | None = None
    reads: Reads | None = None


_HELD_PREFIX: Final = f"{STAGING_PREFIX}held-"


def held_name(base_offset: int) -> str:
    """Where an offset index waits for its transaction index: a broker that finds an offset index believes the rest."""
    return f"{_HELD_PREFIX}{segment_file(base_offset, OFFSET_INDEX_SUFFIX)}{STAGING_SUFFIX}"


def remove_held(folder: Folder) -> None:
    """Remove the offset indexes that wait in a folder, of a run that ends before their time has come."""
    sweep(folder, 2**63 - 1, _HELD_PREFIX)


def build(tasks: Iterable[BuildTask], may_map: bool) -> Iterator[BuiltSegment]:
    """Index segments one after the other and publish `<base offset>.index` and `.timeindex` in their index folders.

    In place, the `.index` of a segment with producers waits under another name until `kidxlib.finish` has its
    transaction index.

    Args:
        tasks: the segments; one that is damaged or vanishes never stops the others.
        may_map: False reads every log in chunks. Mapping is faster, but a bad sector or a file that shrinks then kills
            the process, so a second attempt should not map. Active segments are never mapped.

    Raises:
        PublishError: an index folder cannot be written.
    """
    with Publisher() as publisher:
        waiting: list[BuiltSegment] = []
        for task in tasks:
            waiting.append(_build_one(task, publisher, may_map and not task.segment.active))
            if publisher.staged_files >= GROUP_FILES or publisher.staged_bytes >= GROUP_BYTES:
                publisher.commit()
                yield from waiting
                waiting.clear()
        publisher.commit()
        yield from waiting


def recover_task(log: LogBytes, task: BuildTask) -> RecoveredSegment:
    """Scan a segment's log, with as many threads as may work on it.

    Raises:
        LogChangedError: the log shrank while it was read in chunks.
    """
    base_offset, offset_index = task.segment.base_offset, None
    threads = min(task.threads, len(os.sched_getaffinity(0)))
    if threads > 1:
        offset_index = read_file(task.index_folder, segment_file(base_offset, OFFSET_INDEX_SUFFIX))
    return recover_in_pieces(log, base_offset, task.options, threads, offset_index)


def _build_one(task: BuildTask, publisher: Publisher, may_map: bool) -> BuiltSegment:
    version, reads = task.segment.version, None
    try:
        with opened_log(task.segment.path) as opened:
            version, reads = opened.version, opened.reads
            recovered = recover_task(opened.log(may_map=may_map, end_to_end=True), task)
            owner = Owner.of(opened.status) if task.in_place and opened.status is not None else None
            opened.refuse_changed()
    except (LogChangedError, OSError) as error:
        end = why_not_read(task.segment.path, error)
        return BuiltSegment(task=task, version=version, end=end, recovered=None, published=Published.NONE, reads=reads)
    status = recovered.end.status
    if status is Status.QUARANTINED or (status is Status.TRUNCATED and not task.publish_truncated):
        outcome = Published.NONE if status is Status.QUARANTINED else Published.KEPT
        return BuiltSegment(
            task=task, version=version, end=recovered.end, recovered=recovered, published=outcome, reads=reads
        )

    # The offset index last: a broker that finds one rebuilds nothing, not even a time index that is missing.
    time_index, time_published = _publish(task, TIME_INDEX_SUFFIX, recovered.time_index, publisher, owner)
    hold = task.in_place and len(recovered.producer_events) > 0
    offset_index, offset_published = _publish(
        task, OFFSET_INDEX_SUFFIX, recovered.offset_index, publisher, owner, hold=hold
    )
    return BuiltSegment(
        task=task,
        version=version,
        end=recovered.end,
        recovered=recovered,
        published=Published.WRITTEN if Published.WRITTEN in (time_published, offset_published) else Published.UNCHANGED,
        offset_index=None if offset_index is None else IndexFile.of(offset_index, formats.OFFSET_INDEX_ENTRY),
        time_index=None if time_index is None else IndexFile.of(time_index, formats.TIME_INDEX_ENTRY),
        reads=reads,
    )


def _publish(
    task: BuildTask, suffix: str, content: bytes, publisher: Publisher, owner: Owner | None, *, hold: bool = False
) -> tuple[bytes | None, Published]:
    """What stands there afterwards, and what was done.

    Args:
        hold: let it wait under another name, unless it stands there already.
    """
    base_offset = task.segment.base_offset
    name = segment_file(base_offset, suffix)
    if task.only is not None and name not in task.only:
        return read_file(task.index_folder, name), Published.UNCHANGED
    if hold and read_file(task.index_folder, name, len(content) + 1) != content:
        name = held_name(base_offset)
    return content, publisher.stage(task.index_folder, name, content, owner)


def why_not_read(path: str, error: LogChangedError | OSError) -> ScanEnd:
    """What is to be said of a log that could not be read to its end."""
    match error:
        case LogChangedError():
            return ScanEnd(Status.CHANGED, "log-changed", 0, str(error))
        case FileNotFoundError():
            is_there = not is_object(path) and os.path.lexists(path)  # a link that leads nowhere
            status = Status.UNREADABLE if is_there else Status.GONE
            return ScanEnd(status, "no-such-file", 0, error.strerror)
        case _:
            return ScanEnd(Status.UNREADABLE, "cannot-read", 0, error.strerror or str(error))
