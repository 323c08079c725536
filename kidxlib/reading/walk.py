"""Walks over the wanted batches of a segment, checks each, and gives batches and damage in the order of the log. Damage
ends the reading (`raise_damage`), or is reported while reading goes on behind it. Also finds the offset of a time, as a
broker does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import DamagedLogError, LogChangedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.reading.segment_read import LogRead, SegmentRead, TakeLog
from kidxlib.records.batch_table import BatchTable, BatchWalk
from kidxlib.records.placed_records import RecordPlacer
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.past_end import is_unfinished_append, next_whole_batch
from kidxlib.storage.location import FileVersion
from kidxlib.storage.log_bytes import RANGE_BYTES, Access, LogBytes
from kidxlib.storage.opened_log import OpenedLog, opened_log

_log: Final = logging.getLogger(__name__)

#: How many bytes are read at a time if only a part of a segment is wanted.
_PART_CHUNK_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A stretch of a log that cannot be read.

    Attributes:
        position: the byte of the log at which the stretch begins.
        end: the byte at which reading goes on; None if it does not.
        first_offset: the first offset that may be lost.
        next_offset: the offset at which reading goes on; None if it does not in this segment.
        reason: what was found, and what was expected.
        is_end: whether the log ends there too early: nothing follows.
        is_whole_log: whether the stretch is a whole log that is not read because it may be another partition's.
    """

    path: str
    topic: str
    partition: int
    position: int
    end: int | None
    first_offset: int
    next_offset: int | None
    reason: str
    is_end: bool = False
    is_whole_log: bool = False

    def __str__(self) -> str:
        return f"{self.path}: byte {self.position}: {self.reason}"

    @property
    def lost(self) -> str:
        """The offsets that a walk loses to the damage, in words."""
        end = "to the end of the segment" if self.next_offset is None else f"to {self.next_offset - 1}"
        return f"offsets {self.first_offset} {end}{' of that log' if self.is_whole_log else ''}"


#: Is called with each stretch that is not read.
TakeDamage: TypeAlias = Callable[[Damage], object]
OnDamage: TypeAlias = Literal["fail", "skip"] | TakeDamage

Item: TypeAlias = BatchTable | Damage


def raise_damage(damage: Damage) -> NoReturn:
    """Raise damage that a walk over a segment has found."""
    if damage.is_end:
        raise DamagedLogError(f"{damage}; all that is there was read: look for a replica or a copy that has the rest")
    raise DamagedLogError(
        f"{damage}; what comes before it was read. --skip-damage (in Python on_damage='skip') reads what comes after it"
    )


def warn_of_damage(damage: Damage) -> None:
    """Log damage that a walk over a segment has found, and the offsets that it loses."""
    _log.warning("%s; not read: %s", damage, damage.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """How a segment is walked over.

    Attributes:
        goes_on: look for the next whole batch after damage; otherwise the damage is the last item.
        judges: batches with wrong checksums are damage, and so are batches that no broker wrote there. Otherwise
            headers are believed, and only bytes without a batch are damage.
        checks: compute checksums.
        whole: read whole batches, and not only their headers.
        on_end: is called with each log, or part of one, that is read to its end; may be None.
    """

    goes_on: bool
    judges: bool = True
    checks: bool = True
    whole: bool = True
    on_end: TakeLog | None = None


def walk_segment(read: SegmentRead, options: WalkOptions) -> Iterator[Item]:
    """The batches of a segment that are wanted by their headers, and damage."""
    if read.refused is not None:
        yield Damage(
            path=read.log_path,
            topic=read.topic,
            partition=read.partition,
            position=0,
            end=None,
            first_offset=read.base_offset,
            next_offset=read.next_offset,
            reason=read.refused,
            is_whole_log=True,
        )
        return
    with opened_log(read.log_path) as opened:
        _ensure_planned(read, opened.version)
        log = _log_of(read, opened, options)
        yield from _SegmentWalk(read, log, options).items()
        _ensure_still_planned(read, opened)


def _log_of(read: SegmentRead, opened: OpenedLog, options: WalkOptions) -> LogBytes:
    """Open the log's bytes up to where reading ends, mapped, whole or in windows, as suits the reading."""
    size = read.end_position
    if not options.whole:
        return opened.log(size, use_mmap=False)
    ends_sooner = read.end_offset is not None and read.wanted.last_offset < read.end_offset - 1
    if (ends_sooner and size == read.version.size) or (read.position > 0 and read.log_bytes < RANGE_BYTES):
        return opened.log(size, use_mmap=False, chunk_bytes=_PART_CHUNK_BYTES)
    return opened.log(size, use_mmap=False, access=Access.SEQUENTIAL)


def _ensure_planned(read: SegmentRead, now: FileVersion) -> None:
    planned = read.version
    same_file = now.inode == planned.inode and now.size >= planned.size
    if not same_file or (now.size == planned.size and now.mtime_ns != planned.mtime_ns):
        raise LogChangedError(
            f"{read.log_path}: another file, or changed, since it was listed: {planned.size} bytes then, {now.size} "
            "now; read again"
        )


def _ensure_still_planned(read: SegmentRead, opened: OpenedLog) -> None:
    if opened.status is None:
        opened.ensure_unchanged()
    else:
        _ensure_planned(read, FileVersion.of(opened.status))


def _batches_lack_records(rows: NDArray[np.void], last_offset: int) -> bool:
    """Whether offsets are missing between consecutive batches of a log, or batches have fewer records than offsets.
    `last_offset` is that of the batch before; below 0 if there is none.
    """
    is_v2 = rows["magic"] >= layouts.MAGIC_V2
    begins = np.where(is_v2, rows["offset_field"], rows["last_offset"])
    before = np.concatenate([[last_offset if last_offset >= 0 else begins[0] - 1], rows["last_offset"][:-1]])
    follows = is_v2.copy()
    follows[1:] &= rows["position"][1:] == rows["position"][:-1] + rows["size"][:-1]
    is_cut = is_v2 & (rows["records_count"] < rows["last_offset"] - begins + 1)
    return bool((begins > before + 1)[follows].any() or is_cut.any())


class _SegmentWalk:
    def __init__(self, read: SegmentRead, log: LogBytes, options: WalkOptions) -> None:
        self._read, self._log, self._options = read, log, options
        end = read.end_offset
        self._most = read.base_offset + layouts.RELATIVE_OFFSET_MAX if end is None else end - 1
        self._wanted = read.wanted
        if self._wanted.last_offset >= self._most:
            # Walk to the very end: a batch that begins beyond it is damage.
            self._wanted = replace(read.wanted, last_offset=OFFSET_MAX)

    def items(self) -> Iterator[Item]:
        position, last_offset = self._read.position, self._read.last_offset_before
        lacks, was_damaged = False, False
        while True:
            walk = BatchWalk(
                self._log,
                position,
                self._wanted,
                whole=self._options.whole,
                checks=self._options.checks,
                last_offset=last_offset,
            )
            broken: tuple[int, str] | None = None
            try:
                for table in walk.tables():
                    lacks = lacks or self._lacks_records(table.rows, last_offset)
                    number, reason = self._first_broken(table.rows, last_offset)
                    if number:
                        yield table.first(number)
                        last_offset = int(table.rows["last_offset"][number - 1])
                    if reason is not None:
                        broken = int(table.rows["position"][number]), reason
                        break
                else:
                    last_offset = max(last_offset, walk.last_offset)
                    broken = self._broken_end(walk, last_offset, None)
            except MalformedRecordsError as error:
                last_offset = max(last_offset, walk.last_offset)
                broken = self._broken_end(walk, last_offset, f"found {error.found}, expected {error.expected}")
            if broken is None:
                if not (walk.is_past or was_damaged):
                    self._tell_of_end(last_offset, lacks, walk.max_timestamp)
                return
            was_damaged = True
            damage = self._damage(*broken, last_offset)
            yield damage
            if damage.end is None or not self._options.goes_on:
                return
            position = damage.end

    def _lacks_records(self, rows: NDArray[np.void], last_offset: int) -> bool:
        if self._options.on_end is None:
            return False
        # With times, batches that are not wanted lie before the first one that is.
        before = -1 if self._wanted.has_times else max(last_offset, self._wanted.first_offset - 1)
        return _batches_lack_records(rows, before)

    def _tell_of_end(self, last_offset: int, lacks: bool, ends_ms: int) -> None:
        """Tell that the read is over; and where the next log begins, if wanted offsets go on there."""
        read, on_end = self._read, self._options.on_end
        if on_end is None:
            return
        next_offset = max(last_offset + 1, read.base_offset, read.wanted.first_offset)
        goes_on = read.end_position == read.version.size and next_offset <= read.wanted.last_offset
        following = read.goes_on_at if read.end_offset is None else read.end_offset
        end_offset = following if goes_on and following is not None else next_offset
        on_end(
            LogRead(
                topic=read.topic,
                partition=read.partition,
                log_path=read.log_path,
                next_offset=next_offset,
                end_offset=end_offset,
                lacks_records=lacks,
                ends_ms=ends_ms,
                first_ms=read.wanted.first_ms,
                last_ms=read.wanted.last_ms,
            )
        )

    def _first_broken(self, rows: NDArray[np.void], last_offset: int) -> tuple[int, str | None]:
        """The number of the first batch that no broker wrote there, and what is wrong with it; the count of batches and
        None if there is no such batch.
        """
        if not self._options.judges:
            return len(rows), None
        last = rows["last_offset"]
        before = np.concatenate([[last_offset], last[:-1]])
        begins = np.where(rows["magic"] >= layouts.MAGIC_V2, rows["offset_field"], last)
        is_out = (begins <= before) | (last < begins) | (last > self._most)
        # Where a batch begins behind the next one, and the next one follows the one before, the next is not at fault.
        is_out[:-1] |= (begins[:-1] > begins[1:]) & (begins[1:] > before[:-1])
        is_wrong = rows["crc_is_right"] == 0
        is_new = rows["magic"] > layouts.MAGIC_V2
        is_broken = is_wrong | is_new | is_out
        if not is_broken.any():
            return len(rows), None
        number = int(is_broken.argmax())
        if is_wrong[number]:
            return number, f"the batch's checksum is not {rows['crc'][number]:#010x}, which its header says"
        if is_new[number]:
            return number, f"a batch of magic {rows['magic'][number]}, expected {layouts.MAGIC_V2} at most"
        if begins[number] > before[number] and (end := self._read.end_offset) is not None and last[number] >= end:
            return number, (
                f"offsets {begins[number]} to {last[number]}, and the partition's next log begins at {end}: the two "
                "overlap, so that one of them may be from elsewhere: kidx verify tells more"
            )
        return number, (
            f"offsets {begins[number]} to {last[number]}, expected them to increase from batch to batch, from "
            f"{before[number] + 1} to {self._most} at most"
        )

    def _broken_end(self, walk: BatchWalk, last_offset: int, malformed: str | None) -> tuple[int, str] | None:
        """Where and why the log ends too early; None if it does not. `malformed` is what is wrong with the header at
        which the walk has ended; None if it has not ended at one.
        """
        if walk.is_past and malformed is None:
            return None
        read, next_offset, left = self._read, last_offset + 1, self._log.size - walk.position
        is_last = read.end_offset is None and read.goes_on_at is None
        if left and is_last and is_unfinished_append(self._log, walk.position, read.base_offset, next_offset):
            # An unfinished append is no damage, as a broker cuts it off.
            if next_offset <= read.wanted.last_offset:  # otherwise the missing offsets are not asked for
                _log.warning(
                    "%s: byte %d: %d bytes that are no whole batch; not read", read.log_path, walk.position, left
                )
        elif left:
            if read.end_position < read.version.size:
                malformed = malformed or f"no batch ends at byte {self._log.size}, where another is said to begin"
            return walk.position, malformed or f"{left} bytes that are no whole batch"
        if read.must_reach is not None and next_offset < min(read.must_reach, read.wanted.last_offset + 1):
            return walk.position, (
                f"the log ends before offset {next_offset}, expected records up to the high watermark {read.must_reach}"
            )
        return None

    def _damage(self, position: int, reason: str, last_offset: int) -> Damage:
        least = last_offset + 1
        end = next_whole_batch(self._log, position + 1, least, self._most) if self._options.goes_on else None
        next_offset = None if end is None else int.from_bytes(self._log.read(end, 8), signed=True)
        return Damage(
            is_end=position == self._read.version.size,
            path=self._read.log_path,
            topic=self._read.topic,
            partition=self._read.partition,
            position=position,
            end=end,
            first_offset=least,
            next_offset=next_offset,
            reason=reason,
        )


def walk_to_time(reads: Iterable[SegmentRead], time_ms: int, on_damage: TakeDamage, *, goes_on: bool) -> int | None:
    """Walk over a partition's segments to the first record with this timestamp or a later one, and return its offset;
    None if there is none.

    Markers and aborted records count, as for a broker (`FileRecords.searchForTimestamp`). Logs are scanned until the
    record is found: timestamps are in any order, and only headers tell which are in a batch.
    """
    placer = RecordPlacer()
    for read in reads:
        wanted = replace(read.wanted, first_ms=time_ms)
        for item in walk_segment(replace(read, wanted=wanted), WalkOptions(goes_on=goes_on)):
            if isinstance(item, Damage):
                on_damage(item)
            elif (offset := _first_offset(read, item, wanted, placer)) is not None:
                return offset
    return None


def _first_offset(read: SegmentRead, table: BatchTable, wanted: WantedRecords, placer: RecordPlacer) -> int | None:
    try:
        for placed in placer.placed(table, wanted):
            if len(placed.places):
                return int(placed.places["offset"][0])
    except MalformedRecordsError as error:
        raise DamagedLogError(f"{read.log_path}: {error}; which offset a time leads to cannot be told") from error
    return None
