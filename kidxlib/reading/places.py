"""Places between the batches of a partition, in bytes of all its logs in a row: where an offset is, where a number of
bytes ends, and where the last whole batch ends. Segments are listed while a broker may be at work on them.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MalformedRecordsError
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, NotASegment, segment_file
from kidxlib.indexing.listing import Skipped, list_segments
from kidxlib.indexing.source import NO_INODE, NOT_SEEN, FoundSegment, PartitionDirectory
from kidxlib.reading.aborted import AbortedRanges
from kidxlib.reading.bounds import Bound, ListedLog, bound_before, bounds_of
from kidxlib.reading.damage import Damage, TakeDamage
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import WalkOptions, items_of
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import Wanted
from kidxlib.storage.location import FileVersion, Location
from kidxlib.storage.opened_log import opened_log

#: How many bytes are read at a time: headers of a few batches.
_WINDOW_BYTES: Final = 64 * 1024
_WHOLE_INDEX: Final = Wanted(first_offset=Wanted().last_offset)

#: How long to wait for the cleaner: a running broker takes some milliseconds to rename files, and a broker that was
#: killed in between never ends it.
_TRIES: Final = 20
_PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two batches of a partition.

    Attributes:
        position: bytes of the partition's logs before it.
        offset: no batch before it has this offset or a later one.
    """

    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the last whole batch of a partition ends.

    Attributes:
        base_offset, version: the last segment when it was listed.
        bound: the place in its log.
    """

    base_offset: int
    version: FileVersion
    bound: Bound

    @property
    def offset(self) -> int:
        """The offset that a broker would give to the next record."""
        assert self.bound.offset is not None
        return self.bound.offset


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a segment's log, from the start of a batch to the start of another."""

    path: Location
    base_offset: int
    start: int
    end: int


class PartitionLogs:
    """The logs of a partition as they were listed: one or more."""

    def __init__(
        self, directory: PartitionDirectory, index_dir: Location | None, logs: list[tuple[ListedLog, FileVersion]]
    ) -> None:
        self._directory = directory
        self._indexes = None if index_dir is None else index_dir / directory.topic_partition.directory
        self._logs = [log for log, _ in logs]
        self._last_version = logs[-1][1]
        self._base_offsets = [log.base_offset for log in self._logs]
        self._starts = [0, *accumulate(log.size for log in self._logs)]

    @property
    def first_offset(self) -> int:
        return self._base_offsets[0]

    def end(self, known: LogEnd | None, on_damage: TakeDamage, *, goes_on: bool) -> LogEnd:
        """Where the last whole batch ends. An unfinished append, or a last batch with a wrong checksum, does not count
        yet. Only bytes behind the end that was `known` before are read, and none if the log has not changed.
        """
        log, version = self._logs[-1], self._last_version
        if known is not None and (known.base_offset, known.version) == (log.base_offset, version):
            return known
        if known is not None and _may_go_on(known, log, version):
            end = self._end_from(known.bound, on_damage=None, goes_on=False)
            if end is not None:
                return LogEnd(log.base_offset, version, end)
        start = bounds_of(log, self._index(log), _WHOLE_INDEX, None)[0] if log.size else log.whole[0]
        end = self._end_from(start, on_damage, goes_on=goes_on)
        assert end is not None
        return LogEnd(log.base_offset, version, end)

    def _end_from(self, start: Bound, on_damage: TakeDamage | None, *, goes_on: bool) -> Bound | None:
        """Where the last whole batch from a place on ends; None if there is damage and no `on_damage`."""
        last, end = start, start
        for item in items_of(self._last_read(start), WalkOptions(goes_on=goes_on, checks=False, whole=False)):
            if isinstance(item, Damage):
                if on_damage is None:
                    return None
                on_damage(item)
                continue
            for row in item.rows[-2:]:
                last = Bound(int(row["position"]), end.offset)
                end = Bound(int(row["position"] + row["size"]), int(row["last_offset"]) + 1)
        return end if end == start or self._is_whole(self._logs[-1], last.position) else last

    def _last_read(self, start: Bound) -> SegmentRead:
        log, partition = self._logs[-1], self._directory.topic_partition
        assert start.offset is not None
        return SegmentRead(
            topic=partition.topic,
            partition=partition.partition,
            base_offset=log.base_offset,
            log_path=str(log.path),
            version=self._last_version,
            position=start.position,
            end_position=log.size,
            last_offset_before=start.offset - 1,
            end_offset=None,
            wanted=Wanted(),
            must_reach=None,
            aborted=AbortedRanges(),
        )

    def _is_whole(self, log: ListedLog, position: int) -> bool:
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
            table = next(BatchWalk(content, position, Wanted(), checks=True).tables())
            return bool(table.rows[0]["crc_is_right"])

    def position_of(self, offset: int) -> int:
        """The byte at which the first batch with this offset or a later one begins."""
        number = bisect_right(self._base_offsets, offset) - 1
        if number < 0 or offset == self._base_offsets[number]:
            return self._starts[max(number, 0)]
        log, wanted = self._logs[number], Wanted.between(offset)
        start = bounds_of(log, self._index(log), wanted, None)[0]
        with opened_log(str(log.path)) as opened:
            walk = BatchWalk(opened.log(log.size, use_mmap=False), start.position, wanted, whole=False)
            rows = next(_batches(walk), None)
            return self._starts[number] + (walk.position if rows is None else int(rows["position"][0]))

    def parts(self, first_offset: int, end_offset: int) -> Iterator[LogPart]:
        """The parts of logs with the offsets from `first_offset` to below `end_offset`."""
        first, last = self.position_of(first_offset), self.position_of(end_offset)
        for log, start in zip(self._logs, self._starts, strict=False):
            begin, end = max(first - start, 0), min(last - start, log.size)
            if begin < end:
                yield LogPart(log.path, log.base_offset, begin, end)

    def place_after(self, place: Place) -> Place:
        """The place after the batch that begins at a place; the place itself if no batch begins there."""
        return self._last_place(place, None)

    def last_place(self, place: Place, position: int) -> Place:
        """The last place between two batches at or before a position; `place` is one that is not beyond it."""
        number = bisect_right(self._starts, position, hi=len(self._logs)) - 1
        start = self._starts[number]
        if start > place.position:
            place = Place(start, self._base_offsets[number])
        log = self._logs[number]
        bound = bound_before(log, self._index(log), position - start)
        if bound.offset is not None and start + bound.position > place.position:
            place = Place(start + bound.position, bound.offset)
        return self._last_place(place, position)

    def _last_place(self, place: Place, position: int | None) -> Place:
        """The last place in the same log at or before a position; for None the next place."""
        number = bisect_right(self._starts, place.position, hi=len(self._logs)) - 1
        log, start = self._logs[number], self._starts[number]
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False)
            walk = BatchWalk(content, place.position - start, Wanted(), whole=False)
            for rows in _batches(walk):
                ends = start + rows["position"] + rows["size"]
                count = 1 if position is None else int(np.searchsorted(ends, position, "right"))
                if count:
                    place = Place(int(ends[count - 1]), int(rows["last_offset"][count - 1]) + 1)
                if count < len(rows) or position is None:
                    break
        return place

    def _index(self, log: ListedLog) -> Location:
        if self._indexes is None:
            return self._directory.file(log.base_offset, OFFSET_INDEX_SUFFIX)
        return self._indexes / segment_file(log.base_offset, OFFSET_INDEX_SUFFIX)


def settled_segments(directory: PartitionDirectory) -> list[FoundSegment]:
    """List the segments of a partition in order.

    When the cleaner has compacted some, it renames these to `.deleted`, and then its own from `.log.swap` to `.log`
    (`LocalLog.replaceSegments`). Whoever lists them in between sees neither, so this waits a moment.
    """
    for _ in range(_TRIES):
        skipped = Skipped()
        segments = sorted(list_segments(directory, skipped))
        if not skipped.counts[NotASegment.SWAP]:
            break
        time.sleep(_PAUSE_SECONDS)
    return segments


def listed_logs(directory: PartitionDirectory, index_dir: Location | None) -> PartitionLogs | None:
    """List a partition's logs; None if it has none, or has lost them by now. `index_dir` is the tree with the index
    files; None if they are beside the logs.
    """
    try:
        segments = settled_segments(directory)
    except FileNotFoundError:
        return None
    logs = logs_of(directory, (segment for segment in segments if segment[1] != NOT_SEEN))
    return PartitionLogs(directory, index_dir, logs) if logs else None


def logs_of(directory: PartitionDirectory, segments: Iterable[FoundSegment]) -> list[tuple[ListedLog, FileVersion]]:
    return with_ends(
        (
            ListedLog(directory.file(base_offset, LOG_SUFFIX), size, base_offset, None),
            FileVersion(size, mtime_ns, None if inode == NO_INODE else inode),
        )
        for base_offset, size, mtime_ns, inode in segments
    )


def with_ends(logs: Iterable[tuple[ListedLog, FileVersion]]) -> list[tuple[ListedLog, FileVersion]]:
    """Logs in order; the end of each is the base offset of the next one."""
    in_order = list(logs)
    ends = [*(log.base_offset for log, _ in in_order[1:]), None]
    return [(replace(log, end_offset=end), version) for (log, version), end in zip(in_order, ends, strict=False)]


def _may_go_on(known: LogEnd, log: ListedLog, version: FileVersion) -> bool:
    """Whether a log may be the one that was listed before, grown at its end."""
    same_file = known.base_offset == log.base_offset and known.version.inode == version.inode
    return same_file and known.bound.position <= log.size


def _batches(walk: BatchWalk) -> Iterator[NDArray[np.void]]:
    """The batches of a walk up to malformed bytes: reading the log tells what is wrong with it."""
    try:
        for table in walk.tables():
            yield table.rows
    except MalformedRecordsError:
        return
