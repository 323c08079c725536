"""Answers to many seeks at a time, and how they are filled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.catalog.arrow_arrays import flags_array, numbers_array, strings_array
from kidxlib.format import layouts as formats
from kidxlib.log.segment import LogSegment
from kidxlib.lookup.columns import ANSWER, NUMBERS
from kidxlib.storage.lazy_log import LogFile

_Rows: TypeAlias = NDArray[np.int64]
_Long: TypeAlias = NDArray[np.int64] | int


class Answers:
    """Answers that are being filled, column by column.

    Attributes:
        found: whether each row has its answer.
    """

    def __init__(self, rows: int) -> None:
        self.found = np.zeros(rows, np.bool_)
        self._columns = {name: np.zeros(rows, np.int64) for name in NUMBERS}
        self._filled = {name: np.zeros(rows, np.bool_) for name in self._columns}
        self._filled["bytes_read"][:] = True
        self._notes = np.zeros(rows, np.int32)
        self._texts = [""]
        self._file_error = np.zeros(rows, np.bool_)
        self._unsure = np.zeros(rows, np.bool_)

    def is_open(self, rows: _Rows) -> NDArray[np.bool_]:
        """Which of the rows are neither found nor have a note."""
        is_open: NDArray[np.bool_] = ~self.found[rows] & (self._notes[rows] == 0)
        return is_open

    def timestamps(self, rows: _Rows) -> _Rows:
        """The timestamps of the records that were found."""
        return self._columns["timestamp"][rows]

    def segments(self, rows: _Rows) -> _Rows:
        """The base offsets of the segments with the batches that were found."""
        return self._columns["segment_base_offset"][rows]

    def is_first_batch(self, rows: _Rows) -> NDArray[np.bool_]:
        """Which of the rows have the first batch of a segment for their answer."""
        is_first: NDArray[np.bool_] = self._filled["position"][rows] & (self._columns["position"][rows] == 0)
        return is_first

    def batches(self, rows: _Rows, segment: int, position: _Long, base_offset: _Long, leader_epoch: _Long) -> None:
        """Set the batches in which the answers are; leader epoch −1 means none."""
        self.found[rows] = True
        self._set("segment_base_offset", rows, segment)
        self._set("position", rows, position)
        self._set("batch_base_offset", rows, base_offset)
        self._set_epoch(rows, leader_epoch)

    def records(self, rows: _Rows, offset: _Long, timestamp: _Long, leader_epoch: int | None = None) -> None:
        """Set the records, or the offset, of the answers."""
        self.found[rows] = True
        self._set("offset", rows, offset)
        self._set("timestamp", rows, timestamp)
        if leader_epoch is not None:
            self._set_epoch(rows, leader_epoch)

    def add_bytes(self, rows: _Rows, bytes_read: _Long) -> None:
        self._columns["bytes_read"][rows] += bytes_read

    @contextlib.contextmanager
    def counting(self, rows: _Rows, segment: LogSegment) -> Iterator[None]:
        """Count the bytes of a segment's log that are read within the context."""
        log = segment.log
        before = log.bytes_read if isinstance(log, LogFile) else 0
        yield
        self.add_bytes(rows, log.bytes_read - before if isinstance(log, LogFile) else 0)

    def file_error(self, rows: _Rows, text: str | None) -> None:
        """Add a remark on a file that is not as it should be."""
        if text is not None:
            self.note(rows, text)
            self._file_error[rows] = True

    def unsure(self, rows: _Rows, text: str | None) -> None:
        """Add a remark on a file without which there is no answer, or the answer may be another."""
        if text is not None:
            self.file_error(rows, text)
            self._unsure[rows] = True

    def fail(self, rows: _Rows, text: str) -> None:
        """Add a remark on a file that ends the search: what was found before it remains, the rest is unsure."""
        self.file_error(rows[self.found[rows]], text)
        self.unsure(rows[~self.found[rows]], text)

    def note(self, rows: _Rows, text: str) -> None:
        """Add a remark to the notes of rows."""
        for code in np.unique(self._notes[rows]).tolist():
            joined = f"{self._texts[code]}; {text}" if code else text
            self._notes[rows[self._notes[rows] == code]] = len(self._texts)
            self._texts.append(joined)

    def to_arrow(self) -> pa.RecordBatch:
        codes = numbers_array(pa.int32(), self._notes, self._notes != 0)
        columns = {
            "found": flags_array(self.found),
            "answered": flags_array(~self._unsure),
            "file_error": flags_array(self._file_error),
            "note": pa.DictionaryArray.from_arrays(codes, strings_array(self._texts)).cast(pa.string()),
        }
        for name, kind in NUMBERS.items():
            columns[name] = numbers_array(pa.int64(), self._columns[name], self._filled[name]).cast(kind)
        return pa.RecordBatch.from_arrays([columns[name] for name in ANSWER.names], schema=ANSWER)

    def _set(self, column: str, rows: _Rows, values: _Long) -> None:
        self._columns[column][rows] = values
        self._filled[column][rows] = True

    def _set_epoch(self, rows: _Rows, leader_epoch: _Long) -> None:
        self._columns["leader_epoch"][rows] = leader_epoch
        self._filled["leader_epoch"][rows] = np.not_equal(leader_epoch, formats.NO_LEADER_EPOCH)
