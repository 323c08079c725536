"""Runs of equal rows in sorted columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def runs(columns: Sequence[pa.Array[Any]]) -> Iterator[tuple[int, int]]:
    """The first row of each run of rows that are equal in all columns, and the row after it. A null equals a null.

    Args:
        columns: of one length.
    """
    rows = len(columns[0])
    changes = np.zeros(max(rows - 1, 0), np.bool_)
    for column in columns:
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode(null_encoding="encode")
        codes = column.indices.fill_null(-1).to_numpy()
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if rows else []
    yield from itertools.pairwise([*starts, rows])
