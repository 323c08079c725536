"""Answers to seeks, many at a time: their columns, and how they are filled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib import formats
from kidxlib.log_segment import LogSegment
from kidxlib.storage import LogFile

_Rows: TypeAlias = NDArray[np.int64]
_Long: TypeAlias = NDArray[np.int64] | int

#: What is asked for: the batch that holds an offset, or the first record of a time.
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"

#: The columns of a result, in this order.
RESULT_COLUMNS: Final = (
    "topic",
    "partition",
    "query",
    "target",
    "found",
    "answered",
    "segment_base_offset",
    "position",
    "batch_base_offset",
    "offset",
    "timestamp",
    "leader_epoch",
    "bytes_read",
    "note",
    "source",
)

#: What is said of a question.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("found", pa.bool_(), nullable=False),
    pa.field("answered", pa.bool_(), nullable=False),  # false: files do not let it be said for certain
    pa.field("segment_base_offset", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("batch_base_offset", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("leader_epoch", pa.int32()),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("note", pa.string()),
    pa.field("trouble", pa.bool_(), nullable=False),  # the note is about a file that is not as it should be
]
ANSWER: Final = pa.schema(_FIELDS)
_NUMBERS: Final = {field.name: field.type for field in _FIELDS if pa.types.is_integer(field.type)}


class Answers:
    """Answers in the making, column by column.

    Attributes:
        found: of each row, whether it is.
    """

    def __init__(self, rows: int) -> None:
        self.found = np.zeros(rows, np.bool_)
        self._columns = {name: np.zeros(rows, np.int64) for name in _NUMBERS}
        self._filled = {name: np.zeros(rows, np.bool_) for name in self._columns}
        self._filled["bytes_read"][:] = True
        self._notes = np.zeros(rows, np.int32)
        self._texts = [""]
        self._trouble = np.zeros(rows, np.bool_)
        self._unsure = np.zeros(rows, np.bool_)

    def is_open(self, rows: _Rows) -> NDArray[np.bool_]:
        """Which of the rows are neither found nor have a note."""
        is_open: NDArray[np.bool_] = ~self.found[rows] & (self._notes[rows] == 0)
        return is_open

    def batches(self, rows: _Rows, segment: int, position: _Long, base_offset: _Long, leader_epoch: _Long) -> None:
        """Say in which batches the answers lie; no leader epoch is −1."""
        self.found[rows] = True
        self._set("segment_base_offset", rows, segment)
        self._set("position", rows, position)
        self._set("batch_base_offset", rows, base_offset)
        self._set_epoch(rows, leader_epoch)

    def records(self, rows: _Rows, offset: _Long, timestamp: _Long, leader_epoch: int | None = None) -> None:
        """Say which records they are, or which offset."""
        self.found[rows] = True
        self._set("offset", rows, offset)
        self._set("timestamp", rows, timestamp)
        if leader_epoch is not None:
            self._set_epoch(rows, leader_epoch)

    def add_bytes(self, rows: _Rows, bytes_read: _Long) -> None:
        self._columns["bytes_read"][rows] += bytes_read

    @contextlib.contextmanager
    def counting(self, rows: _Rows, segment: LogSegment) -> Iterator[None]:
        """Count what is read of a segment's log meanwhile."""
        log = segment.log
        before = log.bytes_read if isinstance(log, LogFile) else 0
        yield
        self.add_bytes(rows, log.bytes_read - before if isinstance(log, LogFile) else 0)

    def trouble(self, rows: _Rows, text: str | None) -> None:
        """Add a remark on a file that is not as it should be."""
        if text is not None:
            self.note(rows, text)
            self._trouble[rows] = True

    def unsure(self, rows: _Rows, text: str | None) -> None:
        """Likewise, and without that file there is no answer, or perhaps another."""
        if text is not None:
            self.trouble(rows, text)
            self._unsure[rows] = True

    def note(self, rows: _Rows, text: str) -> None:
        """Add a remark to what stands there."""
        for code in np.unique(self._notes[rows]).tolist():
            joined = f"{self._texts[code]}; {text}" if code else text
            self._notes[rows[self._notes[rows] == code]] = len(self._texts)
            self._texts.append(joined)

    def to_arrow(self) -> pa.RecordBatch:
        codes = _numbers(pa.int32(), self._notes, self._notes != 0)
        columns = {
            "found": _flags(self.found),
            "answered": _flags(~self._unsure),
            "trouble": _flags(self._trouble),
            "note": pa.DictionaryArray.from_arrays(codes, _strings(self._texts)).cast(pa.string()),
        }
        for name, kind in _NUMBERS.items():
            columns[name] = _numbers(pa.int64(), self._columns[name], self._filled[name]).cast(kind)
        return pa.RecordBatch.from_arrays([columns[name] for name in ANSWER.names], schema=ANSWER)

    def _set(self, column: str, rows: _Rows, values: _Long) -> None:
        self._columns[column][rows] = values
        self._filled[column][rows] = True

    def _set_epoch(self, rows: _Rows, leader_epoch: _Long) -> None:
        self._columns["leader_epoch"][rows] = leader_epoch
        self._filled["leader_epoch"][rows] = np.not_equal(leader_epoch, formats.NO_LEADER_EPOCH)


# pa.array() imports pandas where there is one, which takes longer than all else that `kidx seek` does.


def _numbers(kind: pa.DataType, values: NDArray[Any], filled: NDArray[np.bool_]) -> pa.Array[Any]:
    return _array(kind, len(values), _bits(filled), values)


def _flags(flags: NDArray[np.bool_]) -> pa.Array[Any]:
    return _array(pa.bool_(), len(flags), None, _bits(flags))


def _strings(texts: list[str]) -> pa.Array[Any]:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return _array(pa.string(), len(texts), None, ends, np.frombuffer(b"".join(encoded), np.uint8))


def _array(kind: pa.DataType, rows: int, *parts: NDArray[Any] | None) -> pa.Array[Any]:
    """An array of these buffers, the first of which says which rows are not null."""
    return pa.Array.from_buffers(kind, rows, [None if part is None else pa.py_buffer(part.data) for part in parts])


def _bits(flags: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")
