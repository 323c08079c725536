"""Makes Arrow arrays from the buffers of NumPy arrays, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# pa.array() and to_numpy() import pandas where there is one, which takes longer than all else that `kidx seek` does,
# and than a listing.


def numbers_array(kind: pa.DataType, values: NDArray[Any], filled: NDArray[np.bool_]) -> pa.Array[Any]:
    return _array(kind, len(values), _bits(filled), values)


def flags_array(flags: NDArray[np.bool_]) -> pa.Array[Any]:
    return _array(pa.bool_(), len(flags), None, _bits(flags))


def strings_array(texts: list[str]) -> pa.Array[Any]:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return _array(pa.string(), len(texts), None, ends, np.frombuffer(b"".join(encoded), np.uint8))


def words_array(words: Sequence[str], which: NDArray[np.int32]) -> pa.Array[Any]:
    """One of few words a row, by its position."""
    positions = _array(pa.int32(), len(which), None, which)
    return pa.DictionaryArray.from_arrays(positions, strings_array([*words])).cast(pa.string())


def numpy_of(column: pa.ChunkedArray[Any]) -> NDArray[Any]:
    """The numbers of a column without nulls."""
    chunks: list[NDArray[Any]] = [np.from_dlpack(chunk) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.empty(0, np.int64)


def _array(kind: pa.DataType, rows: int, *parts: NDArray[Any] | None) -> pa.Array[Any]:
    """An array of these buffers, the first of which says which rows are not null."""
    return pa.Array.from_buffers(kind, rows, [None if part is None else pa.py_buffer(part.data) for part in parts])


def _bits(flags: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")
