"""A segment to search, whose files nobody vouches for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Final, Self

from kidxlib.format import segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex, TimestampOffset
from kidxlib.index.transaction import TransactionIndex
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.checked_index import CheckedIndexReader, IndexesOfLog
from kidxlib.records.batch_headers import batches
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.location import Location, as_location
from kidxlib.text.times import NS_PER_MS

#: Bytes read at once where a walk goes on. A walk is as long as the index interval, or from one large batch to the
#: next, of which headers are enough. The fastest for scattered offsets; see docs/performance.md for other sizes.
WINDOW_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFiles:
    """What is known of a segment's files; by default nothing.

    Attributes:
        log_bytes, offset_index_bytes, time_index_bytes: the sizes that the files must have; None if unknown.
        valid_bytes: the log's valid prefix; None for all of it.
        broken: why the segment cannot be searched, which a search raises; None if it can.
        truncation: why its valid prefix ends where it does; None where it is the whole log.
    """

    log_bytes: int | None = None
    valid_bytes: int | None = None
    offset_index_bytes: int | None = None
    time_index_bytes: int | None = None
    broken: str | None = None
    truncation: str | None = None


class CheckedSegment(LogSegment):
    """A segment whose files nobody vouches for. An index is checked before use as a broker checks it. If an index is
    missing or cannot be right, both are made from the log, in memory.
    """

    def __init__(
        self,
        log_path: Location,
        base_offset: int,
        indexes: Location | Callable[[str], Location],
        expected: ExpectedFiles,
        *,
        mtime_ms: int | None,
        max_timestamp: TimestampOffset | None = None,
    ) -> None:
        """
        Args:
            indexes: their directory, or what gives the place of one by its suffix.
            mtime_ms, max_timestamp: as for `LogSegment`.
        """

        def path(suffix: str) -> str:
            if callable(indexes):
                return str(indexes(suffix))
            return str(indexes / segment_files.segment_file(base_offset, suffix))

        log = LogFile(str(log_path), WINDOW_BYTES, expected.log_bytes)
        if expected.valid_bytes is not None:
            log.keep_valid(expected.valid_bytes)
        of_log = IndexesOfLog(log, base_offset, broken=expected.broken, truncation=expected.truncation)
        offset_path, time_path = path(segment_files.OFFSET_INDEX_SUFFIX), path(segment_files.TIME_INDEX_SUFFIX)
        offsets = CheckedIndexReader(OffsetIndex, offset_path, base_offset, expected.offset_index_bytes, of_log)
        times = CheckedIndexReader(TimeIndex, time_path, base_offset, expected.time_index_bytes, of_log)
        super().__init__(
            log,
            base_offset,
            OffsetIndex.read_by(offsets.read, base_offset, offset_path),
            TimeIndex.read_by(times.read, base_offset, time_path),
            TransactionIndex.open(path(segment_files.TRANSACTION_INDEX_SUFFIX), base_offset),
            mtime_ms=mtime_ms,
            max_timestamp=max_timestamp,
        )
        self._log_path = log.path
        self._of_log = of_log

    @classmethod
    def open(
        cls, directory: str | PathLike[str], base_offset: int, index_directory: str | PathLike[str] | None = None
    ) -> Self:
        logs = as_location(directory)
        indexes = logs if index_directory is None else as_location(index_directory)
        log = logs / segment_files.segment_file(base_offset, segment_files.LOG_SUFFIX)
        mtime_ms = log.stat().st_mtime_ns // NS_PER_MS
        return cls(log, base_offset, indexes, ExpectedFiles(), mtime_ms=mtime_ms)

    @property
    def note(self) -> str | None:
        """What was wrong with an index; None where nothing was."""
        return self._of_log.note

    @property
    def truncation(self) -> str | None:
        """Why the segment ends before its file does; None if it does not, or if that is unknown."""
        return self._of_log.truncation

    @cached_property
    def torn(self) -> str | None:
        """Why batches are missing at the end of its log, as after an interrupted copy; None if the log ends with a
        whole batch. The log is not read before the last entry of the offset index.

        Raises:
            MalformedRecordsError: a header on the way is malformed.
            OSError, KidxError: a file is not as it should be.
        """
        end = self.offset_index.last_entry.position
        if end > self.size:
            return f"{self._log_path}: {self.size} bytes, and its index leads to byte {end}"
        for batch in batches(self.log, end):
            end = batch.next_position
        return None if end == self.size else f"{self._log_path}: ends amid a batch, which starts at byte {end}"
