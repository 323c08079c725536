"""Cuts rows of a catalog into shares for workers. A partition stays in one piece, with its segments in order. All rows
may not fit into memory, so they are read for some partitions at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kidxlib.catalog.conditions import Condition, scope_of
from kidxlib.catalog.matching import positions_in, runs, taken_at
from kidxlib.catalog.partitions import PARTITIONS, rows_of_keys
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.tables.protocol import ROWS

#: The most rows of segments that are read at a time; a row has a few hundred bytes.
ROWS_AT_ONCE: Final = 200_000

#: Reads the rows that meet some conditions, in any order.
Read = Callable[[Sequence[Condition]], pa.Table]


def shares(
    read: Read,
    partitions: pa.Table,
    share_rows: int,
    rows_at_once: int,
    order: Sequence[str] = ("base_offset",),
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The partitions of each share, at least one, and their rows, both in the order of the key. `partitions` has keys
    and in `rows` the approximate number of rows, which may be 0; `order` names columns of whole numbers.

    A share has at most `share_rows`, and at most `rows_at_once` are read and held, unless one partition has more.
    """
    for piece in _read_together(partitions, rows_at_once):
        rows = read(scope_of({"partition": piece}, PARTITIONS.key))
        numbers = positions_in(rows, piece, PARTITIONS.key)  # −1 for other partitions that meet the conditions
        in_order = np.lexsort([*(rows[name].to_numpy() for name in reversed(order)), numbers])
        bounds = np.searchsorted(numbers, np.arange(piece.num_rows + 1), sorter=in_order)
        for start, stop in cut_by_weight(_weights(piece), share_rows):
            # A copy: a slice would take the whole table to its worker.
            share = rows.take(in_order[bounds[start] : bounds[stop]])
            yield piece.slice(start, stop - start), share


def _read_together(partitions: pa.Table, most: int) -> Iterator[pa.Table]:
    """Partitions in pieces of limited rows, in the order of tables: all partitions of some topics, or some partitions
    of a topic with more rows. So conditions on topics and partitions match few others, and files are read once.
    """
    if not partitions.num_rows:
        return
    partitions = partitions.sort_by([(name, "ascending") for name in PARTITIONS.order])
    weights = _weights(partitions)
    begins = [*(start for start, _ in runs([partitions["topic"].combine_chunks()])), len(weights)]
    for first, end in cut_by_weight(np.add.reduceat(weights, begins[:-1]), most):
        for start, stop in cut_by_weight(weights[begins[first] : begins[end]], most):
            piece = partitions.slice(begins[first] + start, stop - start)
            yield piece.sort_by([(name, "ascending") for name in PARTITIONS.key])


def share_rows_of(partitions: pa.Table, cores: int, most: int) -> int:
    """The size of shares in rows with which all cores get work and end at about the same time."""
    return min(most, int(_weights(partitions).sum()) // (cores * BINS_PER_CORE) + 1)


def _weights(partitions: pa.Table) -> NDArray[np.int64]:
    """At least 1 for each: partitions without rows are work, too."""
    counts: NDArray[np.int64] = partitions[ROWS.name].to_numpy()
    return counts + 1


def cut_by_weight(weights: ArrayLike, most: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence into pieces of at most this weight, or of one heavier item: for each piece the positions of its
    first item and after its last.
    """
    ends = np.cumsum(weights)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, end
        start = end


def keys_with_rows(keys: Collection[PartitionKey], counts: pa.Table) -> pa.Table:
    """Partitions with their numbers of rows, for `shares`. `counts` may lack some, and have others."""
    partitions = rows_of_keys(keys)
    counted = taken_at(counts[ROWS.name], positions_in(partitions, counts, PARTITIONS.key))
    return partitions.append_column(ROWS, counted.fill_null(0))
