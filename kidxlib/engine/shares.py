"""Rows of a catalog in shares for workers: a partition stays in one piece, with its segments in order. The rows of many
partitions may not fit into memory, so they are read for some partitions at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from kidxlib.catalog.conditions import Condition
from kidxlib.catalog.matching import Values, positions_in, runs
from kidxlib.catalog.partitions import PARTITIONS, rows_of_keys
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.tables.protocol import ROWS, scope_of

#: Rows of segments that are read at a time: a few hundred bytes each, by their columns.
ROWS_AT_ONCE: Final = 200_000

#: Reads the rows for which some conditions are true, in any order.
Read = Callable[[Sequence[Condition]], pa.Table]


def shares(
    read: Read,
    partitions: pa.Table,
    share_rows: int,
    rows_at_once: int,
    order: Sequence[str] = ("base_offset",),
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Each share's partitions, one at least, and their rows, both in the order of the key.

    Args:
        partitions: their keys, and in `rows` about how many rows each has, which may be 0.
        share_rows: of a share at most, where no partition has more.
        rows_at_once: that are read, and held, at most, where no partition has more.
        order: of a partition's rows: columns of whole numbers.
    """
    for some in _read_together(partitions, rows_at_once):
        rows = read(scope_of({"partition": some}, PARTITIONS.key))
        at = positions_in(rows, some, PARTITIONS.key)  # −1 where the scope has other partitions, too
        in_order = np.lexsort([*(rows[name].to_numpy() for name in reversed(order)), at])
        bounds = np.searchsorted(at, np.arange(some.num_rows + 1), sorter=in_order)
        for start, stop in cut(_weights(some), share_rows):
            # A copy: a slice would go to its worker with all that it is a slice of.
            of_share = rows.take(in_order[bounds[start] : bounds[stop]])
            yield some.slice(start, stop - start), of_share


def _read_together(partitions: pa.Table, most: int) -> Iterator[pa.Table]:
    """Partitions in pieces of at most so many rows, in the order of tables: all partitions of some topics, or some of a
    topic that has more rows. So conditions on topics and partitions take in few others, and files are read once.
    """
    if not partitions.num_rows:
        return
    partitions = partitions.sort_by([(name, "ascending") for name in PARTITIONS.order])
    weights = _weights(partitions)
    begins = [*(start for start, _ in runs([partitions["topic"].combine_chunks()])), len(weights)]
    for first, end in cut(np.add.reduceat(weights, begins[:-1]), most):
        for start, stop in cut(weights[begins[first] : begins[end]], most):
            piece = partitions.slice(begins[first] + start, stop - start)
            yield piece.sort_by([(name, "ascending") for name in PARTITIONS.key])


def share_rows_of(partitions: pa.Table, cores: int, most: int) -> int:
    """How many rows a share has, so that each core does some, and cores end at about the same time.

    Args:
        partitions: as `shares` takes them.
        most: rows of a share.
    """
    return min(most, int(_weights(partitions).sum()) // (cores * BINS_PER_CORE) + 1)


def _weights(partitions: pa.Table) -> NDArray[np.int64]:
    """Partitions without rows are work, too."""
    counts: NDArray[np.int64] = partitions[ROWS.name].to_numpy()
    return counts + 1


def cut(weights: ArrayLike, most: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence into pieces of at most this weight, or of one item that has more.

    Returns:
        The position of the first item of each piece, and of the one after its last.
    """
    ends = np.cumsum(weights)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, end
        start = end


def with_rows(keys: Collection[PartitionKey], counts: pa.Table) -> pa.Table:
    """Partitions as `shares` takes them.

    Args:
        counts: some columns of the key and `rows`, of some of the partitions and perhaps of others.
    """
    partitions = rows_of_keys(keys)
    at = positions_in(partitions, counts, PARTITIONS.key)
    places: Values = pa.array(at, mask=at < 0)
    counted: Values = counts[ROWS.name].take(places)
    return partitions.append_column(ROWS, counted.fill_null(0))
