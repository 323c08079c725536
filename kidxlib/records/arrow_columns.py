"""The columns of records, with the names of `kidx dump --json`, what columns of batches and of records have in common,
and Arrow arrays made from numbers and texts in memory, for other tables, too. `kidxlib.records.arrow_records` makes the
rows of records, and `kidxlib.records.arrow_batches` those of batches.

Numbers are as Kafka stores them, so −1 is none; a column of whole numbers stays one in pandas. `pa.array` and
`to_numpy` are not used: they import pandas if it is installed, which takes longer than reading a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.errors import UsageError
from kidxlib.format import layouts

HEADER: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string(), nullable=False),
    pa.field("value", pa.binary()),
]
HEADERS: Final = pa.list_(pa.struct(HEADER))
_RECORD_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("timestamp_type", pa.string(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS, nullable=False),
    pa.field("leader_epoch", pa.int32(), nullable=False),
    pa.field("producer_id", pa.int64(), nullable=False),
    pa.field("producer_epoch", pa.int16(), nullable=False),
    pa.field("sequence", pa.int32(), nullable=False),
    pa.field("transactional", pa.bool_(), nullable=False),
    pa.field("control", pa.bool_(), nullable=False),
    pa.field("control_type", pa.string()),  # COMMIT, ABORT, …; null for data, and for types that Kafka does not know
    pa.field("segment_base_offset", pa.int64(), nullable=False),
    pa.field("batch_position", pa.int64(), nullable=False),
]
RECORDS: Final = pa.schema(_RECORD_FIELDS)
#: Records as a consumer gets them, with the columns of Spark's Kafka source, in its order.
_CONSUMED_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("timestampType", pa.int32(), nullable=False),  # ids: −1 none, 0 CreateTime, 1 LogAppendTime
    pa.field("headers", HEADERS),  # null if there are none, as in Spark
]
CONSUMED: Final = pa.schema(_CONSUMED_FIELDS)

Array: TypeAlias = "pa.Array[Any]"

#: The names of Kafka's `TimestampType`s, at their ids plus one.
_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")

_INT_MAX: Final = 2**31 - 1


def schema_of_columns(columns: Iterable[str] | None, known: pa.Schema = RECORDS) -> pa.Schema:
    """The schema of some columns of records, or of other rows whose columns are known; None for all."""
    names = known.names if columns is None else list(columns)
    for name in names:
        if name not in known.names or names.count(name) > 1:
            raise UsageError(f"column {name!r}: expected each of these once at most: {', '.join(known.names)}")
    return pa.schema([known.field(name) for name in names])


def numbers_array(kind: pa.DataType, values: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Array:
    """An Arrow array with a copy of numbers, null where `filled` is false."""
    dense = np.array(values, "i8" if pa.types.is_timestamp(kind) else str(kind), order="C")
    return pa.Array.from_buffers(
        kind, len(dense), [None if filled is None else _bits(filled), pa.py_buffer(dense.data)]
    )


def flags_array(values: NDArray[np.bool_]) -> Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def words_array(names: Sequence[str], which: NDArray[Any]) -> Array:
    """An Arrow array of names by their numbers; null below 0."""
    positions = numbers_array(pa.int32(), which, which >= 0)
    return pa.DictionaryArray.from_arrays(positions, strings_array(names)).cast(pa.string())


def strings_array(texts: Sequence[str]) -> Array:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little").data)


def timestamp_type_ids(batches: NDArray[np.void]) -> NDArray[np.int32]:
    """The ids of Kafka's `TimestampType` of batches: who set their timestamps."""
    append_time = (batches["attributes"] & layouts.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return np.where(batches["magic"] == 0, -1, append_time).astype(np.int32)


def timestamp_types(ids: NDArray[np.int32]) -> Array:
    return words_array(_TIMESTAMP_TYPES, ids + 1)


def attribute_flags(batches: NDArray[np.void], bit: int) -> NDArray[np.bool_]:
    """The flags for a column from a bit in the attributes of batches; false for a magic below 2."""
    has_it: NDArray[np.bool_] = ((batches["attributes"] & bit) != 0) & (batches["magic"] >= layouts.MAGIC_V2)
    return has_it


def incremented_sequences(first: NDArray[Any], increments: NDArray[np.int64]) -> NDArray[np.int32]:
    """The sequence numbers of a column, incremented as by `kidxlib.java.incremented_sequence`; arrays of shape (n,)."""
    first, more = first.astype(np.int64), increments.astype(np.int32).astype(np.int64)
    wraps = first > (_INT_MAX - more).astype(np.int32)
    return np.where(wraps, more - (_INT_MAX - first) - 1, first + more).astype(np.int32)


def sequence_numbers(first: NDArray[Any], offset_deltas: NDArray[np.int64]) -> Array:
    """The sequence numbers of records, from the first ones of their batches and from offset deltas; −1 is none."""
    sequences = incremented_sequences(first, offset_deltas)
    return numbers_array(pa.int32(), np.where(first < 0, layouts.NO_SEQUENCE, sequences))
