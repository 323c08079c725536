"""Arrow arrays of what is known of batches and records, made from their numbers as they lie in memory.

`pa.array` and `to_numpy` are not asked: they import pandas where there is one, which takes longer than to read a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.format import layouts as formats
from kidxlib.records.bulk.sequences import incremented_sequences

Array: TypeAlias = "pa.Array[Any]"

#: Kafka's `TimestampType`s: the names by their ids, and one more.
_TIMESTAMP_TYPES: Final = ("NoTimestampType", "CreateTime", "LogAppendTime")


def numbers(kind: pa.DataType, values: NDArray[Any], filled: NDArray[np.bool_] | None = None) -> Array:
    """A copy of numbers, null where `filled` is false."""
    dense = np.array(values, "i8" if pa.types.is_timestamp(kind) else str(kind), order="C")
    return pa.Array.from_buffers(kind, len(dense), [None if filled is None else bits(filled), pa.py_buffer(dense.data)])


def flags(values: NDArray[np.bool_]) -> Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits(values)])


def words(names: Sequence[str], which: NDArray[Any]) -> Array:
    """One of a few names in each row, by its number; null below 0."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(encoded))]
    dictionary = pa.Array.from_buffers(pa.string(), len(names), buffers)
    return pa.DictionaryArray.from_arrays(numbers(pa.int32(), which, which >= 0), dictionary).cast(pa.string())


def bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little").data)


def timestamp_type_ids(batches: NDArray[np.void]) -> NDArray[np.int32]:
    """Who gave the records of batches their timestamps: the ids of Kafka's `TimestampType`."""
    append_time = (batches["attributes"] & formats.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return np.where(batches["magic"] == 0, -1, append_time).astype(np.int32)


def timestamp_types(ids: NDArray[np.int32]) -> Array:
    """The names of `TimestampType`s."""
    return words(_TIMESTAMP_TYPES, ids + 1)


def has_attribute(batches: NDArray[np.void], bit: int) -> NDArray[np.bool_]:
    """Whether batches have an attribute that came with magic 2."""
    has_it: NDArray[np.bool_] = ((batches["attributes"] & bit) != 0) & (batches["magic"] >= formats.MAGIC_V2)
    return has_it


def sequence_numbers(first: NDArray[Any], offset_deltas: NDArray[np.int64]) -> Array:
    """Sequence numbers of the records so many after the first ones; −1 where there is none."""
    found = incremented_sequences(first, offset_deltas)
    return numbers(pa.int32(), np.where(first < 0, formats.NO_SEQUENCE, found))
