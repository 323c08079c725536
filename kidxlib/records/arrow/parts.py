"""The records of a batch, taken apart: offsets and times as arrays, and what is in them where that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.records.arrow.schema import READ_ONE_BY_ONE
from kidxlib.records.batch import Batch
from kidxlib.records.columns import records_in
from kidxlib.records.control import read_control_record
from kidxlib.records.reader import records
from kidxlib.records.record import Record
from kidxlib.storage.log_bytes import LogBytes

_Longs: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets from one to below another; None for no limit."""

    start: int | None = None
    end: int | None = None

    def holds(self, offsets: _Longs) -> NDArray[np.bool_]:
        """Which of the offsets lie in it."""
        inside = np.ones(len(offsets), np.bool_)
        if self.start is not None:
            inside &= offsets >= self.start
        if self.end is not None:
            inside &= offsets < self.end
        return inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Records of one batch that follow one another.

    Attributes:
        records: what is in them; empty where nobody asked for that.
        control_types: of each; empty where nobody asked, and of data.
        bytes: of keys, values and headers.
    """

    batch: Batch
    offsets: _Longs
    timestamps: _Longs
    records: Sequence[Record] = ()
    control_types: Sequence[str | None] = ()
    bytes: int = 0

    @property
    def count(self) -> int:
        return len(self.offsets)

    def within(self, wanted: OffsetRange) -> Part:
        inside = wanted.holds(self.offsets)
        if inside.all():
            return self
        kept = np.flatnonzero(inside).tolist()
        return Part(
            batch=self.batch,
            offsets=self.offsets[inside],
            timestamps=self.timestamps[inside],
            records=[self.records[number] for number in kept] if self.records else (),
            control_types=[self.control_types[number] for number in kept] if self.control_types else (),
            bytes=self.bytes,
        )


def parts_of(log: LogBytes, batch: Batch, schema: pa.Schema, rows_max: int, bytes_max: int) -> Iterator[Part]:
    """The records of a batch, as many at once as are given out at once."""
    with_types = batch.is_control and "control_type" in schema.names
    if not with_types and READ_ONE_BY_ONE.isdisjoint(schema.names):
        found = records_in(log, batch)
        if found is not None and found.complete:
            yield Part(batch=batch, offsets=found.offsets, timestamps=found.timestamps)
            return
    held: list[Record] = []
    size = 0
    for record in records(log, batch):
        record_bytes = _bytes_of(record)
        if held and (len(held) == rows_max or size + record_bytes > bytes_max):
            yield _part(batch, held, size, with_types)
            held, size = [], 0
        held.append(record)
        size += record_bytes
    if held:
        yield _part(batch, held, size, with_types)


def _part(batch: Batch, held: list[Record], size: int, with_types: bool) -> Part:
    return Part(
        batch=batch,
        offsets=np.array([record.offset for record in held], np.int64),
        timestamps=np.array([record.timestamp for record in held], np.int64),
        records=held,
        control_types=[_control_type(batch, record) for record in held] if with_types else (),
        bytes=size,
    )


def _bytes_of(record: Record) -> int:
    in_headers = sum(len(header.key) + len(header.value or b"") for header in record.headers)
    return len(record.key or b"") + len(record.value or b"") + in_headers


def _control_type(batch: Batch, record: Record) -> str | None:
    try:
        return read_control_record(record).name
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error
