"""Positions in logs, in bytes: where reading begins and ends in a segment and where a large one is divided
(`reading_bounds`), where a log ends, and places in all logs of a partition in a row (`JoinedLogs`).

Nobody vouches for an index. An entry counts only if a batch starts at its position and ends with its offset; where
reading begins, the batch must have the right checksum, too. Offsets increase from batch to batch in every log that a
broker has written, so batches before that one have only earlier offsets, and those after it only later ones. Any other
entry is as good as none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format.layouts import CODEC_NONE, MAGIC_V2, OFFSET_INDEX_ENTRY
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.listing import settled_segments
from kidxlib.indexing.source import NO_INODE, NOT_SEEN, FoundSegment, PartitionDirectory
from kidxlib.reading.segment_read import SegmentRead
from kidxlib.reading.walk import Damage, TakeDamage, WalkOptions, walk_segment
from kidxlib.records import batch_headers
from kidxlib.records.batch_headers import BatchHeader
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.location import FileVersion, Location
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.small_files import filled_file

#: One batch is looked at, and a batch has 1 MiB at most by default.
_WINDOW_BYTES: Final = 64 * 1024
#: From the last entry to the end there are an index interval of bytes and a batch, either perhaps larger than usual.
_NEAR_BYTES: Final = 4 * 1024 * 1024

_WHOLE_INDEX: Final = WantedRecords(first_offset=WantedRecords().last_offset)


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in a log.

    Attributes:
        position: the byte at which a batch starts, or the log ends.
        offset: no batch before the place has this offset or a later one; None at the end of a partition's last log,
            where nothing says it.
    """

    position: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class ListedLog:
    """A segment's log as it was listed, in which positions are found where reading begins and ends.

    Attributes:
        end_offset: the base offset of the next segment; None of the last.
    """

    path: Location
    size: int
    base_offset: int
    end_offset: int | None

    @property
    def whole(self) -> tuple[Bound, Bound]:
        """Where it begins and ends."""
        return Bound(0, self.base_offset), Bound(self.size, self.end_offset)


def read_between(
    partition: TopicPartition, log: ListedLog, version: FileVersion, bounds: tuple[Bound, Bound], wanted: WantedRecords
) -> SegmentRead:
    """What to read of a log between two places."""
    start, end = bounds
    return SegmentRead(
        topic=partition.topic,
        partition=partition.partition,
        base_offset=log.base_offset,
        log_path=str(log.path),
        version=version,
        position=start.position,
        end_position=end.position,
        last_offset_before=(log.base_offset if start.offset is None else start.offset) - 1,
        end_offset=end.offset,
        wanted=wanted,
    )


def reading_bounds(
    log: ListedLog, index_path: Location, wanted: WantedRecords, part_bytes: int | None, known_end: int | None = None
) -> tuple[Bound, ...]:
    """The places between which a log is read in order, two or more, by the wanted offsets alone.

    About `part_bytes` lie between two places; None for any number. `known_end` is the start of a batch from which on
    nothing is wanted; None if it is not known.
    """
    is_divided = part_bytes is not None and log.size > part_bytes
    if not (_is_limited(log, wanted) or is_divided or known_end is not None):
        return log.whole
    entries = _entries(index_path, log)
    if not len(entries) and known_end is None:
        return log.whole
    try:
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
            return _IndexedBatches(log, entries, content).bounds(wanted, part_bytes, known_end)
    except (OSError, LogChangedError):
        return log.whole  # reading the log tells what is wrong with it


def end_offset_by_index(log: ListedLog, index_path: Location, *, is_near: bool) -> int | None:
    """The offset after the last batch of a log, found from the position in its last index entry on; None if the log
    cannot be read. If a batch lies at or beyond the base offset of the next log, and does not begin where the one
    before it ends, it does not count, nor what follows it: checksums do not cover the offset in a header.

    With `is_near`, also None if no entry leads near the end: whoever reads the log comes to it, and reads all of it.
    """
    entries, last_offset = _entries(index_path, log), log.base_offset - 1
    if is_near and log.size - int(entries["position"].max(initial=0)) > _NEAR_BYTES:
        return None
    try:
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
            start = _IndexedBatches(log, entries, content).before(log.size)
            assert start.offset is not None
            if is_near and log.size - start.position > _NEAR_BYTES:
                return None
            last_offset = start.offset - 1
            walk = BatchWalk(content, start.position, WantedRecords(), whole=False, last_offset=last_offset)
            for table in walk.tables():
                last = table.rows["last_offset"]
                begins = np.where(table.rows["magic"] >= MAGIC_V2, table.rows["offset_field"], last)
                before = np.concatenate([[last_offset], last[:-1]])
                is_odd = begins != before + 1
                if log.end_offset is not None and (is_odd & (last >= log.end_offset)).any():
                    return int(before[(is_odd & (last >= log.end_offset)).argmax()]) + 1
                last_offset = int(last[-1])
    except MalformedRecordsError:
        pass
    except (OSError, LogChangedError):
        return None
    return last_offset + 1


def is_index_credible(log: ListedLog, index_path: Location) -> bool:
    """Whether an index that leads beyond the end of its log may be believed: the log has not grown since it was listed,
    entries increase, and the log bears out the last entry within it or the one before, as the last may be cut off.
    """
    entries = _all_entries(index_path)
    is_ordered = all((np.diff(entries[field].astype(np.int64)) > 0).all() for field in OFFSET_INDEX_ENTRY.names or ())
    within = entries[entries["position"] < log.size]
    try:
        if not is_ordered or log.path.stat().st_size != log.size:
            return False
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
            places, count = _IndexedBatches(log, within, content), len(within)
            last_two = range(max(count - 2, 0), count)
            return not count or any(places.first_offset(number) is not None for number in last_two)
    except (OSError, LogChangedError):
        return False


def bound_before(log: ListedLog, index_path: Location, position: int) -> Bound:
    """The last place that the index names at or before a byte; the log's beginning if there is none."""
    entries = _entries(index_path, log)
    if not len(entries):
        return log.whole[0]
    with opened_log(str(log.path)) as opened:
        content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
        return _IndexedBatches(log, entries, content).before(position)


def _is_limited(log: ListedLog, wanted: WantedRecords) -> bool:
    last_offset = WantedRecords().last_offset if log.end_offset is None else log.end_offset - 1
    return wanted.first_offset > log.base_offset or wanted.last_offset < last_offset


def _entries(index_path: Location, log: ListedLog) -> NDArray[np.void]:
    """The entries that lead inside the log; none if there is no index."""
    entries = _all_entries(index_path)
    return entries[(entries["position"] > 0) & (entries["position"] < log.size)]


def _all_entries(index_path: Location) -> NDArray[np.void]:
    try:
        content = filled_file(index_path, OFFSET_INDEX_ENTRY.itemsize)
    except (OSError, LogChangedError):
        content = b""
    whole = len(content) // OFFSET_INDEX_ENTRY.itemsize * OFFSET_INDEX_ENTRY.itemsize
    return np.frombuffer(content[:whole], OFFSET_INDEX_ENTRY)


class _IndexedBatches:
    """Batches of a log that its index names."""

    def __init__(self, log: ListedLog, entries: NDArray[np.void], content: LogBytes) -> None:
        self._log, self._content = log, content
        self._positions = entries["position"].astype(np.int64)
        self._offsets = log.base_offset + entries["relative_offset"].astype(np.int64)

    def bounds(self, wanted: WantedRecords, part_bytes: int | None, known_end: int | None) -> tuple[Bound, ...]:
        # Begin at the entry that a broker would take.
        start, end = self._last_at(self._offsets, wanted.first_offset), self._end(wanted.last_offset)
        if known_end is not None and known_end <= start.position:
            return start, start  # nothing from there on is wanted, nor before it
        if known_end is not None and known_end < end.position and (batch := self._header(known_end)) is not None:
            end = Bound(known_end, batch.offset_field)
        if end.position <= start.position:
            end = self._log.whole[1]
        return start, *([] if part_bytes is None else self._between(start, end, part_bytes)), end

    def before(self, position: int) -> Bound:
        return self._last_at(self._positions, position)

    def _last_at(self, places: NDArray[np.int64], most: int) -> Bound:
        number = int(np.searchsorted(places, most, "right")) - 1
        bound = None if number < 0 or places[number] > most else self._checked(number)
        return bound or self._log.whole[0]

    def _end(self, last_offset: int) -> Bound:
        """Where to end if no later offset is wanted: at the first or second entry behind it, as the first one may name
        the batch that holds the offset. Only the header is read, as in a walk that goes on to there.
        """
        number = int(np.searchsorted(self._offsets, last_offset, "right"))
        for later in range(number, min(number + 2, len(self._offsets))):
            first_offset = self.first_offset(later)
            if first_offset is not None and first_offset > last_offset:
                return Bound(int(self._positions[later]), first_offset)
        return self._log.whole[1]

    def _between(self, start: Bound, end: Bound, part_bytes: int) -> list[Bound]:
        """Where parts of about so many bytes begin, but for the first part."""
        bounds: list[Bound] = []
        last = start
        for position in range(start.position + part_bytes, end.position - part_bytes // 2, part_bytes):
            number = int(np.searchsorted(self._positions, position))
            bound = self._checked(number) if number < len(self._positions) else None
            if bound is not None and last.position < bound.position < end.position:
                bounds.append(bound)
                last = bound
        return bounds

    def _checked(self, number: int) -> Bound | None:
        """The start of the batch that an entry names; None if it is not there with the right checksum."""
        position = int(self._positions[number])
        try:
            table = next(BatchWalk(self._content, position, WantedRecords(), checks=True).tables(), None)
        except MalformedRecordsError:
            return None
        if (
            table is None
            or not (batch := table.rows[0])["crc_is_right"]
            or batch["last_offset"] != self._offsets[number]
        ):
            return None
        first_offset = batch["offset_field"] if batch["magic"] >= MAGIC_V2 else batch["last_offset"]
        return Bound(position, int(first_offset))

    def first_offset(self, number: int) -> int | None:
        """The first offset of the batch that an entry names; None if no such batch is there, or its header lacks it."""
        batch = self._header(int(self._positions[number]))
        return batch.offset_field if batch is not None and batch.last_offset == self._offsets[number] else None

    def _header(self, position: int) -> BatchHeader | None:
        """The batch that starts at a position; None if none does, or its header lacks the first offset."""
        try:
            batch = next(batch_headers.batches(self._content, position), None)
        except MalformedRecordsError:
            return None
        return batch if batch is not None and (batch.is_v2 or batch.codec == CODEC_NONE) else None


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """A place between two batches of a partition.

    Attributes:
        position: bytes of the partition's logs before it.
        offset: no batch before it has this offset or a later one.
    """

    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class JoinedLogsEnd:
    """Where the last whole batch of `JoinedLogs` ends.

    Attributes:
        base_offset, version: the last segment when it was listed.
        bound: the place in its log.
    """

    base_offset: int
    version: FileVersion
    bound: Bound

    @property
    def offset(self) -> int:
        """The offset that a broker would give to the next record of the joined logs."""
        assert self.bound.offset is not None
        return self.bound.offset


class JoinedLogs:
    """The logs of a partition as they were listed, one or more, with positions as if they were one log."""

    def __init__(
        self, directory: PartitionDirectory, index_dir: Location | None, logs: list[tuple[ListedLog, FileVersion]]
    ) -> None:
        self._directory = directory
        self._index = partial(index_path_of, directory, index_dir)
        self._logs = [log for log, _ in logs]
        self._last_version = logs[-1][1]
        self._base_offsets = [log.base_offset for log in self._logs]
        self._starts = [0, *accumulate(log.size for log in self._logs)]

    @property
    def first_offset(self) -> int:
        return self._base_offsets[0]

    def end(self, known: JoinedLogsEnd | None, on_damage: TakeDamage, *, goes_on: bool) -> JoinedLogsEnd:
        """Where the last whole batch ends. An unfinished append, or a last batch with a wrong checksum, does not count
        yet. Only bytes behind the end that was `known` before are read, and none if the log has not changed.
        """
        log, version = self._logs[-1], self._last_version
        if known is not None and (known.base_offset, known.version) == (log.base_offset, version):
            return known
        if known is not None and _may_go_on(known, log, version):
            end = self._end_from(known.bound, on_damage=None, goes_on=False)
            if end is not None:
                return JoinedLogsEnd(log.base_offset, version, end)
        start = reading_bounds(log, self._index(log), _WHOLE_INDEX, None)[0] if log.size else log.whole[0]
        end = self._end_from(start, on_damage, goes_on=goes_on)
        assert end is not None
        return JoinedLogsEnd(log.base_offset, version, end)

    def _end_from(self, start: Bound, on_damage: TakeDamage | None, *, goes_on: bool) -> Bound | None:
        """Where the last whole batch from a place on ends; None if there is damage and no `on_damage`."""
        last, end, log = start, start, self._logs[-1]
        read = read_between(
            self._directory.topic_partition, log, self._last_version, (start, log.whole[1]), WantedRecords()
        )
        for item in walk_segment(read, WalkOptions(goes_on=goes_on, checks=False, whole=False)):
            if isinstance(item, Damage):
                if on_damage is None:
                    return None
                on_damage(item)
                continue
            for row in item.rows[-2:]:
                last = Bound(int(row["position"]), end.offset)
                end = Bound(int(row["position"] + row["size"]), int(row["last_offset"]) + 1)
        return end if end == start or self._is_whole(log, last.position) else last

    def _is_whole(self, log: ListedLog, position: int) -> bool:
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
            table = next(BatchWalk(content, position, WantedRecords(), checks=True).tables())
            return bool(table.rows[0]["crc_is_right"])

    def position_of(self, offset: int) -> int:
        """The byte at which the first batch with this offset or a later one begins."""
        number = bisect_right(self._base_offsets, offset) - 1
        if number < 0 or offset == self._base_offsets[number]:
            return self._starts[max(number, 0)]
        log, wanted = self._logs[number], WantedRecords.between(offset)
        start = reading_bounds(log, self._index(log), wanted, None)[0]
        with opened_log(str(log.path)) as opened:
            walk = BatchWalk(opened.log(log.size, use_mmap=False), start.position, wanted, whole=False)
            rows = next(_batches(walk), None)
            return self._starts[number] + (walk.position if rows is None else int(rows["position"][0]))

    def parts(self, first_offset: int, end_offset: int) -> Iterator[tuple[ListedLog, int, int]]:
        """The logs with the offsets from `first_offset` to below `end_offset`, each with the bytes of the part that has
        them, from the start of a batch to the start of another.
        """
        first, last = self.position_of(first_offset), self.position_of(end_offset)
        for log, start in zip(self._logs, self._starts, strict=False):
            begin, end = max(first - start, 0), min(last - start, log.size)
            if begin < end:
                yield log, begin, end

    def place_after(self, place: PartitionPlace) -> PartitionPlace:
        """The place after the batch that begins at a place; the place itself if no batch begins there."""
        return self._last_place(place, None)

    def last_place(self, place: PartitionPlace, position: int) -> PartitionPlace:
        """The last place between two batches at or before a position; `place` is one that is not beyond it."""
        number = bisect_right(self._starts, position, hi=len(self._logs)) - 1
        start = self._starts[number]
        if start > place.position:
            place = PartitionPlace(start, self._base_offsets[number])
        log = self._logs[number]
        bound = bound_before(log, self._index(log), position - start)
        if bound.offset is not None and start + bound.position > place.position:
            place = PartitionPlace(start + bound.position, bound.offset)
        return self._last_place(place, position)

    def _last_place(self, place: PartitionPlace, position: int | None) -> PartitionPlace:
        """The last place in the same log at or before a position; for None the next place."""
        number = bisect_right(self._starts, place.position, hi=len(self._logs)) - 1
        log, start = self._logs[number], self._starts[number]
        with opened_log(str(log.path)) as opened:
            content = opened.log(log.size, use_mmap=False)
            walk = BatchWalk(content, place.position - start, WantedRecords(), whole=False)
            for rows in _batches(walk):
                ends = start + rows["position"] + rows["size"]
                count = 1 if position is None else int(np.searchsorted(ends, position, "right"))
                if count:
                    place = PartitionPlace(int(ends[count - 1]), int(rows["last_offset"][count - 1]) + 1)
                if count < len(rows) or position is None:
                    break
        return place


def index_path_of(directory: PartitionDirectory, index_dir: Location | None, log: ListedLog) -> Location:
    """The place of the `.index` that tells positions in a log. `index_dir` is the tree with the index files; None if
    they are beside the logs.
    """
    if index_dir is None:
        return directory.file(log.base_offset, OFFSET_INDEX_SUFFIX)
    return index_dir / directory.topic_partition.directory / segment_file(log.base_offset, OFFSET_INDEX_SUFFIX)


def listed_logs(directory: PartitionDirectory, index_dir: Location | None) -> JoinedLogs | None:
    """List a partition's logs as `JoinedLogs`; None if it has none, or has lost them by now."""
    try:
        segments = settled_segments(directory)
    except FileNotFoundError:
        return None
    logs = as_listed_logs(directory, (segment for segment in segments if segment[1] != NOT_SEEN))
    return JoinedLogs(directory, index_dir, logs) if logs else None


def as_listed_logs(
    directory: PartitionDirectory, segments: Iterable[FoundSegment]
) -> list[tuple[ListedLog, FileVersion]]:
    """Segments of a listing as `ListedLog`s, in which positions are found."""
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


def _may_go_on(known: JoinedLogsEnd, log: ListedLog, version: FileVersion) -> bool:
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
