"""Indexes that nobody vouches for: they are checked before use, and made from the log if one cannot be right."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import BrokenSegmentError, CorruptIndexError, describe_error
from kidxlib.index.mapped_file import map_file
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.preallocated import filled_bytes
from kidxlib.index.time import TimeIndex
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.segment import RecoveredSegment, recover
from kidxlib.storage.lazy_log import LogFile

_Index: TypeAlias = OffsetIndex | TimeIndex


class IndexesOfLog:
    """Both indexes of a segment, made from its log in memory after one of the files could not be right.

    Attributes:
        broken: why the segment cannot be searched; None where it can.
        note: what was wrong with an index; None where nothing was.
        truncation: why the segment ends before its file does; None if it does not, or if that is unknown.
        recovered: the indexes, once they were made.
    """

    def __init__(self, log: LogFile, base_offset: int, *, broken: str | None, truncation: str | None) -> None:
        self.broken = broken
        self.note: str | None = None
        self.truncation = truncation
        self.recovered: RecoveredSegment | None = None
        self._log = log
        self._base_offset = base_offset

    def make(self, file_error: str) -> RecoveredSegment:
        """Scan the log and make both indexes.

        Args:
            file_error: what is wrong with an index.

        Raises:
            CorruptIndexError: Kafka fails on the log too.
            OSError, LogChangedError: the log cannot be read.
        """
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


class CheckedIndexReader:
    """Reads an offset or time index and checks that it can be right."""

    def __init__(
        self, kind: type[_Index], path: str, base_offset: int, expected_bytes: int | None, of_log: IndexesOfLog
    ) -> None:
        """
        Args:
            expected_bytes: the size that the file has to have; None where nobody knows.
            of_log: what stands in for it.
        """
        self._kind = kind
        self._path = path
        self._base_offset = base_offset
        self._expected_bytes = expected_bytes
        self._of_log = of_log

    def read(self) -> NDArray[np.uint8]:
        """The bytes of the index.

        Raises:
            CorruptIndexError: there are none, because Kafka fails on the log too.
            BrokenSegmentError: the segment is known to be broken.
            OSError, LogChangedError: the log cannot be read.
        """
        if self._of_log.broken is not None:
            raise BrokenSegmentError(self._of_log.broken)
        recovered = self._of_log.recovered
        if recovered is None:
            try:
                return self._checked()
            except FileNotFoundError as error:
                elsewhere = "--index-dir says where index files are"
                recovered = self._of_log.make(f"{describe_error(error)} ({elsewhere})")
            except (CorruptIndexError, OSError) as error:
                recovered = self._of_log.make(describe_error(error))
        return np.frombuffer(recovered.offset_index if self._kind is OffsetIndex else recovered.time_index, np.uint8)

    def _checked(self) -> NDArray[np.uint8]:
        whole = map_file(self._path)
        content = self._entries_of(whole)
        self._kind.from_bytes(content, self._base_offset, name=self._path).sanity_check()
        if self._expected_bytes not in (None, len(whole), len(content)):
            raise CorruptIndexError(f"{self._path}: {len(whole)} bytes, expected {self._expected_bytes}")
        return content

    def _entries_of(self, content: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Without the room that a broker keeps after the entries of a segment that it writes to. The file of any other
        ends with an entry, so that its last bytes tell enough.
        """
        size = self._kind.entry_bytes
        if len(content) % size or content[-size:].any():
            return content
        return content[: filled_bytes(content, size)]
