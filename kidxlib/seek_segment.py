"""A segment for seeks, of files that nobody vouches for."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib import names
from kidxlib.abstract_index import CorruptIndexError, map_file
from kidxlib.errors import KidxError, why
from kidxlib.log_segment import LogSegment
from kidxlib.objects import Location
from kidxlib.offset_index import OffsetIndex
from kidxlib.records import batches
from kidxlib.recover import RecoveredSegment, RecoverOptions, Status, recover
from kidxlib.storage import LogFile
from kidxlib.time_index import TimeIndex, TimestampOffset
from kidxlib.times import NS_PER_MS
from kidxlib.transaction_index import TransactionIndex

#: Bytes read at once where a walk goes on. A walk is as long as the index interval, or from one large batch to the
#: next, of which headers are enough. The fastest for scattered offsets; see docs/performance.md for other sizes.
WINDOW_BYTES: Final = 32 * 1024

_Index: TypeAlias = OffsetIndex | TimeIndex


class BrokenSegmentError(KidxError):
    """A segment is asked that is known not to be well."""


class SeekSegment(LogSegment):
    """A segment whose files nobody vouches for. An index is checked as a broker checks it before it is used; where it
    cannot be right, or is not there, both are made from the log, in memory.

    Attributes:
        note: what was wrong with an index; None where nothing was.
        cut: why it ends before its file does; None where it does not, or nobody knows.
    """

    def __init__(
        self,
        log_path: Location,
        base_offset: int,
        index_folder: Location,
        *,
        mtime_ms: int | None,
        max_timestamp: TimestampOffset | None = None,
        log_bytes: int | None = None,
        valid_bytes: int | None = None,
        offset_index_bytes: int | None = None,
        time_index_bytes: int | None = None,
        broken: str | None = None,
        cut: str | None = None,
    ) -> None:
        """
        Args:
            mtime_ms, max_timestamp: as for `LogSegment`.
            log_bytes, offset_index_bytes, time_index_bytes: the sizes that the files have to have; None where nobody
                knows.
            valid_bytes: the log's valid prefix; None for all of it.
            broken: why it cannot be searched, which is raised when it is asked; None where it can.
            cut: why its valid prefix ends where it does; None where it is the whole log.
        """
        self.note: str | None = None
        self.cut = cut
        self._broken = broken
        self._file = LogFile(str(log_path), WINDOW_BYTES, log_bytes)
        if valid_bytes is not None:
            self._file.keep_valid(valid_bytes)
        self._recovered: RecoveredSegment | None = None

        def path(suffix: str) -> str:
            return str(index_folder / names.segment_file(base_offset, suffix))

        offset_path, time_path = path(names.OFFSET_INDEX_SUFFIX), path(names.TIME_INDEX_SUFFIX)
        super().__init__(
            self._file,
            base_offset,
            OffsetIndex.read_by(
                lambda: self._content(OffsetIndex, offset_path, offset_index_bytes), base_offset, offset_path
            ),
            TimeIndex.read_by(lambda: self._content(TimeIndex, time_path, time_index_bytes), base_offset, time_path),
            TransactionIndex.open(path(names.TRANSACTION_INDEX_SUFFIX), base_offset),
            mtime_ms=mtime_ms,
            max_timestamp=max_timestamp,
        )

    @classmethod
    def open(cls, folder: Location, base_offset: int, index_folder: Location | None = None) -> Self:
        log = folder / names.segment_file(base_offset, names.LOG_SUFFIX)
        return cls(log, base_offset, index_folder or folder, mtime_ms=log.stat().st_mtime_ns // NS_PER_MS)

    @cached_property
    def torn(self) -> str | None:
        """Why batches are missing at the end of its log, as where a copy was interrupted; None where it ends with a
        whole batch. As far as the last entry of the offset index the log is not read.

        Raises:
            MalformedRecordsError: a header on the way is malformed.
            OSError, KidxError: a file is not as it should be.
        """
        end = self.offset_index.last_entry.position
        if end > self.size:
            return f"{self._file.path}: {self.size} bytes, and its index leads to byte {end}"
        for batch in batches(self.log, end):
            end = batch.next_position
        return None if end == self.size else f"{self._file.path}: ends amid a batch, which starts at byte {end}"

    def _content(self, kind: type[_Index], path: str, expected_bytes: int | None) -> NDArray[np.uint8]:
        """The bytes of an index that can be right.

        Raises:
            CorruptIndexError: there are none, as Kafka fails on the log too.
            BrokenSegmentError: the segment is known to be broken.
        """
        if self._broken is not None:
            raise BrokenSegmentError(self._broken)
        if self._recovered is None:
            try:
                return self._checked(kind, path, expected_bytes)
            except (CorruptIndexError, OSError) as error:
                self._recovered = self._recover(why(error))
        recovered = self._recovered
        return np.frombuffer(recovered.offset_index if kind is OffsetIndex else recovered.time_index, np.uint8)

    def _checked(self, kind: type[_Index], path: str, expected_bytes: int | None) -> NDArray[np.uint8]:
        content = map_file(path)
        kind.from_bytes(content, self.base_offset, name=path).sanity_check()
        if expected_bytes not in (None, len(content)):
            raise CorruptIndexError(f"{path}: {len(content)} bytes, expected {expected_bytes}")
        return content

    def _recover(self, trouble: str) -> RecoveredSegment:
        with self._file.read_from_end_to_end() as log:
            recovered = recover(log, self.base_offset, RecoverOptions())
        end = recovered.end
        if end.status is Status.QUARANTINED:
            raise CorruptIndexError(f"{trouble}; its log is {end.reason} at byte {end.position}: {end.detail}")
        if end.status is Status.TRUNCATED:
            self._file.keep_valid(end.position)
            self.cut = self.cut or f"{self._file.path} ends at byte {end.position}, {end.reason}: {end.detail}"
        self.note = f"{trouble}; answered from a scan of the log"
        return recovered
