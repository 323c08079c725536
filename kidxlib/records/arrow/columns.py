"""Records that were taken apart, as the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.format import layouts as formats
from kidxlib.records.arrow.batches import timestamp_type
from kidxlib.records.arrow.parts import Part
from kidxlib.records.arrow.schema import HEADER, HEADERS
from kidxlib.records.batch import Batch
from kidxlib.records.record import Record

_Longs: TypeAlias = NDArray[np.int64]
_Array: TypeAlias = "pa.Array[Any]"


@dataclass(slots=True)
class Rows:
    """Records that are given out at once.

    Attributes:
        count: how many they are.
        bytes: of their keys, values and headers.
    """

    segment_base_offset: int
    parts: list[Part] = field(default_factory=list)
    count: int = 0
    bytes: int = 0

    def add(self, part: Part) -> None:
        self.parts.append(part)
        self.count += part.count
        self.bytes += part.bytes

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [self._column(name).cast(schema.field(name).type) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str) -> _Array:
        if name in _PER_BATCH:
            values = pa.array([_PER_BATCH[name](part.batch) for part in self.parts])
            number_of_each = np.repeat(np.arange(len(values)), [part.count for part in self.parts])
            of_records: _Array = values.take(pa.array(number_of_each))
            return of_records
        if name in _PER_PART:
            of_parts: _Array = pa.array(np.concatenate([_PER_PART[name](part) for part in self.parts]))
            return of_parts
        if name in _PER_RECORD:
            return _PER_RECORD[name]([record for part in self.parts for record in part.records])
        if name == "control_type":
            no_types = [[None] * part.count for part in self.parts]
            types = [part.control_types or none for part, none in zip(self.parts, no_types, strict=True)]
            return pa.array([type_ for of_part in types for type_ in of_part], pa.string())
        return pa.array(np.full(self.count, self.segment_base_offset, np.int64))


def _headers(found: Sequence[Record]) -> _Array:
    flat = [header for record in found for header in record.headers]
    starts = list(accumulate((len(record.headers) for record in found), initial=0))
    keys: _Array = pa.array([header.key for header in flat], pa.string())
    values: _Array = pa.array([header.value for header in flat], pa.binary())
    return pa.ListArray.from_arrays(
        pa.array(starts, pa.int32()), pa.StructArray.from_arrays([keys, values], fields=HEADER), type=HEADERS
    )


def _sequences(part: Part) -> _Longs:
    """`java.incremented_sequence` from the batch's own on, for each record; −1 where it has none."""
    first = part.batch.base_sequence
    if first < 0:
        return np.full(part.count, formats.NO_SEQUENCE, np.int64)
    deltas = _as_ints(part.offsets - part.batch.offset_field)
    goes_round = first > _as_ints(_INT_MAX - deltas)
    return np.where(goes_round, _as_ints(deltas - (_INT_MAX - first) - 1), _as_ints(deltas + first))


_INT_MAX: Final = 2**31 - 1


def _as_ints(values: _Longs) -> _Longs:
    """Numbers as Java's 32-bit arithmetic gives them."""
    return values.astype(np.int32).astype(np.int64)


#: Columns that are the same for all records of a batch; that are there as arrays; and that are read record by record.
_PER_BATCH: Final[Mapping[str, Callable[[Batch], Any]]] = {
    "timestamp_type": timestamp_type,
    "leader_epoch": attrgetter("partition_leader_epoch"),
    "producer_id": attrgetter("producer_id"),
    "producer_epoch": attrgetter("producer_epoch"),
    "transactional": attrgetter("is_transactional"),
    "control": attrgetter("is_control"),
    "batch_position": attrgetter("position"),
}
_PER_PART: Final[Mapping[str, Callable[[Part], _Longs]]] = {
    "offset": attrgetter("offsets"),
    "timestamp_ms": attrgetter("timestamps"),
    "sequence": _sequences,
}
_PER_RECORD: Final[Mapping[str, Callable[[Sequence[Record]], _Array]]] = {
    "key": lambda found: pa.array([record.key for record in found], pa.binary()),
    "value": lambda found: pa.array([record.value for record in found], pa.binary()),
    "headers": _headers,
}
