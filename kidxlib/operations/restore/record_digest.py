"""Digests of records as consumers get them: of the rows of a log, and of what a client has read.

A restored log and the running cluster have the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.records.arrow_columns import CONSUMED

DIGESTED: Final = pa.schema([CONSUMED.field(name) for name in ("offset", "timestamp", "key", "value", "headers")])
READ_UNCOMMITTED: Final = "read_uncommitted"
#: A key or value without bytes: −1 stands for null, as in Kafka's records.
_LENGTH_OF_NULL: Final = -1


class RecordDigest:
    """A digest of records in the order of their offsets: of offsets, timestamps, keys, values and headers. It does not
    depend on the batches that hold the records, on compression, or on leader epochs.
    """

    def __init__(self) -> None:
        self.records = 0
        #: One for each sequence of numbers or of bytes: it does not matter in which pieces they come.
        self._hashes = [hashlib.sha256() for _ in range(6)]

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of `DIGESTED`."""
        offsets, times, keys, values, headers = rows.columns
        counts = _int64_values_filled(pc.list_value_length(headers), 0)
        numbers = (
            _int64_values(offsets),
            _int64_values(times.cast(pa.int64())),
            _lengths_or_null(keys),
            _lengths_or_null(values),
            counts,
        )
        self.records += rows.num_rows
        _update_hashes(self._hashes[:3], np.stack(numbers, axis=1), _joined_bytes(keys), _joined_bytes(values))
        if counts.any():
            names, contents = pc.list_flatten(headers).flatten()
            names = names.cast(pa.binary())
            sizes = np.stack((_lengths_or_null(names), _lengths_or_null(contents)), axis=1)
            _update_hashes(self._hashes[3:], sizes, _joined_bytes(names), _joined_bytes(contents))

    def add_consumed(self, records: Sequence[Consumed]) -> None:
        numbers = [
            (
                record.offset,
                record.timestamp_ms,
                _length_or_null(record.key),
                _length_or_null(record.value),
                len(record.headers),
            )
            for record in records
        ]
        keys = b"".join(record.key or b"" for record in records)
        values = b"".join(record.value or b"" for record in records)
        self.records += len(records)
        _update_hashes(self._hashes[:3], np.array(numbers, np.int64), keys, values)
        if headers := [header for record in records for header in record.headers]:
            names = [name.encode() for name, _ in headers]
            contents = [content for _, content in headers]
            sizes = np.array([*zip(map(len, names), map(_length_or_null, contents), strict=True)], np.int64)
            _update_hashes(self._hashes[3:], sizes, b"".join(names), b"".join(filter(None, contents)))

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(part.digest() for part in self._hashes)).hexdigest()


class Consumed(NamedTuple):
    """A record as a consumer gets it; a key, a value or a header's content may be null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def _update_hashes(parts: Sequence[hashlib._Hash], numbers: NDArray[np.int64], *contents: bytes | memoryview) -> None:
    for part, content in zip(parts, (numbers.tobytes(), *contents), strict=True):
        part.update(content)


def _length_or_null(content: bytes | None) -> int:
    return _LENGTH_OF_NULL if content is None else len(content)


def _int64_values(column: Any) -> NDArray[np.int64]:
    """The numbers of an array without nulls."""
    return np.from_dlpack(column).astype(np.int64)


def _int64_values_filled(column: Any, value: int) -> NDArray[np.int64]:
    return _int64_values(pc.fill_null(column, value))


def _lengths_or_null(column: Any) -> NDArray[np.int64]:
    return _int64_values_filled(pc.binary_length(column), _LENGTH_OF_NULL)


def _joined_bytes(column: Any) -> bytes | memoryview:
    """The bytes of all values that are not null, one after the other."""
    column = pc.drop_null(column) if column.null_count else column
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return b""
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(content)[ends[0] : ends[-1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedRecords:
    """The records that consumers get of a partition at one isolation level.

    Attributes:
        end_offset: where they end: the log's end, or the last stable offset for `read_committed`.
        digest: of `RecordDigest`, in hexadecimal digits.
    """

    end_offset: int
    records: int
    digest: str
