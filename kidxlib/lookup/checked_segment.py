"""A segment to search, whose files may be wrong. Its indexes are checked before use, as a broker checks them. If one is
missing or cannot be right, both are made from the log, in memory.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import BrokenSegmentError, CorruptIndexError, MalformedRecordsError, describe_error
from kidxlib.format import segment_files
from kidxlib.format.kafka_release import NEWEST
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.index.transaction import TransactionIndex, WhichRelease
from kidxlib.log.segment import LogSegment
from kidxlib.records.batch_headers import batches
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.location import Location, as_location
from kidxlib.storage.opened_log import LogFile, map_file
from kidxlib.storage.small_files import filled_bytes
from kidxlib.text.times import NS_PER_MS

#: How many bytes a walk reads at once. A walk is as long as the index interval, or goes from the header of one large
#: batch to the next. This size is the fastest for scattered offsets; see docs/notes.md for other sizes.
WINDOW_BYTES: Final = 32 * 1024

#: If an index leads beyond the end of its log, this many of its entries are compared with the log.
_ENTRIES_TRIED: Final = 16

_Index: TypeAlias = OffsetIndex | TimeIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFiles:
    """What is known about a segment's files; by default nothing.

    Attributes:
        log_bytes, offset_index_bytes, time_index_bytes: the sizes that the files must have; None if unknown.
        valid_bytes: the length of the log's valid prefix; None if all of it is valid.
        broken: why the segment cannot be searched (the error of a search); None if it can.
        truncation: why the valid prefix ends where it does; None if all of the log is valid.
    """

    log_bytes: int | None = None
    valid_bytes: int | None = None
    offset_index_bytes: int | None = None
    time_index_bytes: int | None = None
    broken: str | None = None
    truncation: str | None = None


class _IndexesFromLog:
    """Both indexes of a segment, made in memory from its log if the file of one is missing or wrong.

    Attributes:
        broken: why the segment cannot be searched; None if it can.
        note: what was wrong with an index; None if nothing was.
        truncation: why the segment ends before its file does; None if it does not, or if that is unknown.
        recovered: the indexes; None until they are made.
    """

    def __init__(self, log: LogFile, base_offset: int, *, broken: str | None, truncation: str | None) -> None:
        self.broken = broken
        self.note: str | None = None
        self.truncation = truncation
        self.recovered: RecoveredSegment | None = None
        self._log = log
        self._base_offset = base_offset

    def make(self, file_error: str) -> RecoveredSegment:
        """Scan the log and make both indexes. `file_error` says what is wrong with the file of one."""
        with self._log.read_sequentially() as log:
            recovered = recover(log, self._base_offset, RecoverOptions())
        end = recovered.end
        if end.status is Status.QUARANTINED:
            raise CorruptIndexError(f"{file_error}; its log is {end.reason} at byte {end.position}: {end.detail}")
        if end.status is Status.TRUNCATED:
            self._log.keep_valid(end.position)
            self.truncation = (
                self.truncation or f"{self._log.path} ends at byte {end.position}, {end.reason}: {end.detail}"
            )
        self.note = f"{file_error}; answered from a scan of the log"
        self.recovered = recovered
        return recovered


def _read_index(
    kind: type[_Index], path: str, base_offset: int, expected_bytes: int | None, indexes_from_log: _IndexesFromLog
) -> NDArray[np.uint8]:
    """Read an offset or time index. If its file cannot be right, the index is made from the log."""
    if indexes_from_log.broken is not None:
        raise BrokenSegmentError(indexes_from_log.broken)
    recovered = indexes_from_log.recovered
    if recovered is None:
        try:
            return _checked_entries(kind, path, base_offset, expected_bytes)
        except FileNotFoundError as error:
            hint = "--index-dir says where index files are"
            recovered = indexes_from_log.make(f"{describe_error(error)} ({hint})")
        except (CorruptIndexError, OSError) as error:
            recovered = indexes_from_log.make(describe_error(error))
    return np.frombuffer(recovered.offset_index if kind is OffsetIndex else recovered.time_index, np.uint8)


def _checked_entries(kind: type[_Index], path: str, base_offset: int, expected_bytes: int | None) -> NDArray[np.uint8]:
    """The entries of a file, without the zeros at the end of an active segment's preallocated file: any other file
    ends with an entry. A file that a broker would refuse, or of another size, is a CorruptIndexError.
    """
    content = entries = map_file(path)
    size = kind.entry_bytes
    if not len(content) % size and not content[-size:].any():
        entries = content[: filled_bytes(content, size)]
    kind.from_bytes(entries, base_offset, name=path).sanity_check()
    if expected_bytes not in (None, len(content), len(entries)):
        raise CorruptIndexError(f"{path}: {len(content)} bytes, expected {expected_bytes}")
    return entries


class CheckedSegment(LogSegment):
    """A segment whose files may be wrong."""

    def __init__(
        self,
        log_path: Location,
        base_offset: int,
        indexes: Location | Callable[[str], Location],
        expected: ExpectedFiles,
        *,
        mtime_ms: int | None,
        max_timestamp: TimestampOffset | None = None,
        release: WhichRelease = NEWEST,
    ) -> None:
        """`indexes` is the directory of index files, or a function from a suffix to the place of the index file."""

        def path(suffix: str) -> str:
            if callable(indexes):
                return str(indexes(suffix))
            return str(indexes / segment_files.segment_file(base_offset, suffix))

        log = LogFile(str(log_path), WINDOW_BYTES, expected.log_bytes)
        if expected.valid_bytes is not None:
            log.keep_valid(expected.valid_bytes)
        indexes_from_log = _IndexesFromLog(log, base_offset, broken=expected.broken, truncation=expected.truncation)
        offset_path, time_path = path(segment_files.OFFSET_INDEX_SUFFIX), path(segment_files.TIME_INDEX_SUFFIX)
        read_offsets = partial(
            _read_index, OffsetIndex, offset_path, base_offset, expected.offset_index_bytes, indexes_from_log
        )
        read_times = partial(
            _read_index, TimeIndex, time_path, base_offset, expected.time_index_bytes, indexes_from_log
        )
        super().__init__(
            log,
            base_offset,
            OffsetIndex.read_by(read_offsets, base_offset, offset_path),
            TimeIndex.read_by(read_times, base_offset, time_path),
            TransactionIndex.open(path(segment_files.TRANSACTION_INDEX_SUFFIX), base_offset, release=release),
            mtime_ms=mtime_ms,
            max_timestamp=max_timestamp,
        )
        self._log_path = log.path
        self._indexes_from_log = indexes_from_log

    @classmethod
    def open(
        cls,
        directory: str | PathLike[str],
        base_offset: int,
        index_directory: str | PathLike[str] | None = None,
        *,
        release: WhichRelease = NEWEST,
    ) -> Self:
        logs = as_location(directory)
        indexes = logs if index_directory is None else as_location(index_directory)
        log = logs / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        mtime_ms = log.stat().st_mtime_ns // NS_PER_MS
        return cls(log, base_offset, indexes, ExpectedFiles(), mtime_ms=mtime_ms, release=release)

    @property
    def note(self) -> str | None:
        """What was wrong with an index; None if nothing was."""
        return self._indexes_from_log.note

    @property
    def truncation(self) -> str | None:
        """Why the segment ends before its file does; None if it does not, or if that is unknown."""
        return self._indexes_from_log.truncation

    def next_offset(self) -> int:
        """The offset after the last batch, as `LogSegment.next_offset`. If the log is cut off, batches are read from
        the last index entry that agrees with the log.
        """
        if not self._is_cut_off:
            return super().next_offset()
        last_offset = self.base_offset - 1
        for batch in batches(self.log, self._last_right_position):
            last_offset = batch.last_offset
        return last_offset + 1

    @property
    def _is_cut_off(self) -> bool:
        """Whether the index leads to the end of the log or beyond it, where a batch must have been."""
        return self.offset_index.last_entry.position >= max(self.size, 1)

    @property
    def _last_right_position(self) -> int:
        """The position of the last index entry that agrees with the log; 0 if none of those tried does."""
        index = self.offset_index
        entries = range(len(index))
        end = bisect_left(entries, self.size, key=lambda number: index.entry(number).position)
        for number in reversed(entries[max(end - _ENTRIES_TRIED, 0) : end]):
            entry = index.entry(number)
            with contextlib.suppress(MalformedRecordsError):
                batch = next(batches(self.log, entry.position), None)
                if batch is not None and batch.last_offset == entry.offset:
                    return entry.position
        return 0

    @cached_property
    def torn(self) -> str | None:
        """Why batches are missing at the end of the log, as after an interrupted copy; None if the log ends with a
        whole batch. The log is read only from the last entry of the offset index on.
        """
        last = self.offset_index.last_entry
        end = last.position
        if self._is_cut_off:
            first = self.next_offset()
            missing = f": offsets {first} to {last.offset} or above are missing" if first <= last.offset else ""
            return f"{self._log_path}: {self.size} bytes, and its index leads to byte {end}{missing}"
        for batch in batches(self.log, end):
            end = batch.next_position
        return None if end == self.size else f"{self._log_path}: ends amid a batch, which starts at byte {end}"
