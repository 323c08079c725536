"""Where reading begins and ends in a segment, and where a large one is divided: at batches that an `.index` names, if
the log itself bears it out.

Nobody vouches for an index. An entry counts only if a batch starts at its position and ends with its offset; where
reading begins, the batch must have the right checksum, too. Offsets increase from batch to batch in every log that a
broker has written, so batches before that one have only earlier offsets, and those after it only later ones. Any other
entry is as good as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format.layouts import CODEC_NONE, MAGIC_V2, OFFSET_INDEX_ENTRY
from kidxlib.records import batch_headers
from kidxlib.records.batch_headers import Batch
from kidxlib.records.bulk.batch_table import BatchWalk
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.location import Location
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.log_dir import filled_file
from kidxlib.storage.opened_log import opened_log

#: One batch is looked at, and a batch has 1 MiB at most by default.
_WINDOW_BYTES: Final = 64 * 1024
#: From the last entry to the end there are an index interval of bytes and a batch, either perhaps larger than usual.
_NEAR_BYTES: Final = 4 * 1024 * 1024


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
    """A segment's log as it was listed.

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


def bounds_of(
    log: ListedLog, index_path: Location, wanted: Wanted, part_bytes: int | None, known_end: int | None = None
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
            return _Places(log, entries, content).bounds(wanted, part_bytes, known_end)
    except (OSError, LogChangedError):
        return log.whole  # reading the log tells what is wrong with it


def end_of(log: ListedLog, index_path: Location, *, is_near: bool) -> int | None:
    """The offset behind the last batch of a log, by the last index entry and the batches from there on; None if the log
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
            start = _Places(log, entries, content).before(log.size)
            assert start.offset is not None
            if is_near and log.size - start.position > _NEAR_BYTES:
                return None
            last_offset = start.offset - 1
            walk = BatchWalk(content, start.position, Wanted(), whole=False, last_offset=last_offset)
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
            places, count = _Places(log, within, content), len(within)
            return not count or any(map(places.is_borne_out, range(max(count - 2, 0), count)))
    except (OSError, LogChangedError):
        return False


def bound_before(log: ListedLog, index_path: Location, position: int) -> Bound:
    """The last place that the index names at or before a byte; the log's beginning if there is none."""
    entries = _entries(index_path, log)
    if not len(entries):
        return log.whole[0]
    with opened_log(str(log.path)) as opened:
        content = opened.log(log.size, use_mmap=False, chunk_bytes=_WINDOW_BYTES)
        return _Places(log, entries, content).before(position)


def _is_limited(log: ListedLog, wanted: Wanted) -> bool:
    last_offset = Wanted().last_offset if log.end_offset is None else log.end_offset - 1
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


class _Places:
    """Batches of a log that its index names."""

    def __init__(self, log: ListedLog, entries: NDArray[np.void], content: LogBytes) -> None:
        self._log, self._content = log, content
        self._positions = entries["position"].astype(np.int64)
        self._offsets = log.base_offset + entries["relative_offset"].astype(np.int64)

    def bounds(self, wanted: Wanted, part_bytes: int | None, known_end: int | None) -> tuple[Bound, ...]:
        start, end = self._start(wanted.first_offset), self._end(wanted.last_offset)
        if known_end is not None and known_end <= start.position:
            return start, start  # nothing from there on is wanted, nor before it
        if known_end is not None and known_end < end.position and (batch := self._header(known_end)) is not None:
            end = Bound(known_end, batch.offset_field)
        if end.position <= start.position:
            end = self._log.whole[1]
        return start, *([] if part_bytes is None else self._between(start, end, part_bytes)), end

    def before(self, position: int) -> Bound:
        number = int(np.searchsorted(self._positions, position, "right")) - 1
        bound = None if number < 0 or self._positions[number] > position else self._checked(number)
        return bound or self._log.whole[0]

    def _start(self, first_offset: int) -> Bound:
        """Where to begin if an offset and those after it are wanted: at the entry that a broker would take."""
        number = int(np.searchsorted(self._offsets, first_offset, "right")) - 1
        bound = None if number < 0 or self._offsets[number] > first_offset else self._checked(number)
        return bound or self._log.whole[0]

    def _end(self, last_offset: int) -> Bound:
        """Where to end if no later offset is wanted: at the first or second entry behind it, as the first one may name
        the batch that holds the offset. Only the header is read, as in a walk that goes on to there.
        """
        number = int(np.searchsorted(self._offsets, last_offset, "right"))
        for later in range(number, min(number + 2, len(self._offsets))):
            first_offset = self._first_offset(later)
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
            table = next(BatchWalk(self._content, position, Wanted(), checks=True).tables(), None)
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

    def is_borne_out(self, number: int) -> bool:
        """Whether the batch that an entry names is there."""
        batch = self._header(int(self._positions[number]))
        return batch is not None and batch.last_offset == self._offsets[number]

    def _first_offset(self, number: int) -> int | None:
        """The first offset of the batch that an entry names; None if no such batch is there, or its header lacks it."""
        batch = self._header(int(self._positions[number]))
        return batch.offset_field if batch is not None and batch.last_offset == self._offsets[number] else None

    def _header(self, position: int) -> Batch | None:
        """The batch that starts at a position; None if none does, or its header lacks the first offset."""
        try:
            batch = next(batch_headers.batches(self._content, position), None)
        except MalformedRecordsError:
            return None
        return batch if batch is not None and (batch.is_v2 or batch.codec == CODEC_NONE) else None
