"""The table of a plan's listed segments, a row each, with what is known of them before their logs are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.matching import Longs, Values, numpy_of
from kidxlib.indexing.source import NO_INODE, NOT_SEEN, FoundSegment
from kidxlib.records.arrow_columns import flags_array, numbers_array

#: One row per listed segment, by partition and base offset. The path is no column: it follows from the partition's
#: directory and the base offset.
_COLUMNS: Final[list[pa.Field[Any]]] = [
    pa.field("listed_partition", pa.int32(), nullable=False),  # where its partition stands in `Plan.partitions`
    pa.field("base_offset", pa.int64(), nullable=False),
    # Null where the log could not be looked at. An object has no inode; some file systems use all bits of one.
    pa.field("log_bytes", pa.int64()),
    pa.field("log_mtime_ns", pa.int64()),
    pa.field("log_inode", pa.uint64()),
    pa.field("active", pa.bool_(), nullable=False),  # the last of its partition
]
LISTED: Final = pa.schema(_COLUMNS)
#: Rows of segments to read: with the interval that the indexes get, in bytes, who chose it, and whether all bytes are
#: read for facts that headers do not give.
TO_READ: Final = pa.schema(
    [
        *_COLUMNS,
        pa.field("interval_bytes", pa.int64(), nullable=False),
        pa.field("interval_source", pa.string(), nullable=False),
        pa.field("all_facts", pa.bool_(), nullable=False),
    ]
)


#: Segments that are tuples of Python before they become columns: 0.2 kB as a tuple, 33 bytes as a row.
_ROWS_AT_ONCE: Final = 65_536
_TYPES: Final = (np.int64, np.int64, np.int64, np.uint64)


class ListedSegments:
    """Collects the segments of one partition after the other into the table."""

    def __init__(self) -> None:
        self._partitions: list[int] = []
        self._segments: list[FoundSegment] = []
        self._columns: list[list[NDArray[Any]]] = [[np.empty(0, kind)] for kind in (np.int32, *_TYPES)]

    def add(self, partition: int, segments: Sequence[FoundSegment]) -> None:
        """Add segments, in any order, of the partition with this number in the plan."""
        self._partitions.extend([partition] * len(segments))
        self._segments.extend(segments)
        if len(self._segments) >= _ROWS_AT_ONCE:
            self._flush()

    def table(self) -> pa.Table:
        """The listed segments as rows of `LISTED`, in order."""
        self._flush()
        partitions, base_offsets, log_bytes, mtimes, inodes = (np.concatenate(parts) for parts in self._columns)
        order = np.lexsort((base_offsets, partitions))
        partitions, log_bytes, inodes = partitions[order], log_bytes[order], inodes[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = partitions[1:] != partitions[:-1]
        seen = log_bytes != NOT_SEEN
        columns = [
            (partitions, None),
            (base_offsets[order], None),
            (log_bytes, seen),
            (mtimes[order], seen),
            (inodes, seen & (inodes != NO_INODE)),
        ]
        arrays = [numbers_array(kind, *column) for kind, column in zip(LISTED.types, columns, strict=False)]
        return pa.table([*arrays, flags_array(last)], schema=LISTED)

    def _flush(self) -> None:
        if self._segments:
            self._columns[0].append(np.array(self._partitions, np.int32))
            for parts, values, kind in zip(self._columns[1:], zip(*self._segments, strict=True), _TYPES, strict=True):
                parts.append(np.array(values, kind))
            self._partitions, self._segments = [], []


def rows_of_partitions(rows: pa.Table, kept: Sequence[int]) -> pa.Table:
    """The listed segments of the partitions with these numbers, in order; the partitions get new numbers."""
    wanted = numbers_array(pa.int32(), np.array(kept, np.int32))
    numbers: Values = pc.index_in(rows["listed_partition"], value_set=wanted)
    return rows.set_column(0, LISTED.field(0), numbers).filter(numbers.is_valid())


def runs_of_partitions(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The number of each partition that has listed segments, and these. Rows of a partition follow each other."""
    partitions = partition_numbers(rows)
    starts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(partitions)]):
        yield int(partitions[start]), rows.slice(start, end - start)


def partition_numbers(rows: pa.Table) -> Longs:
    """The number that the partition of each listed segment has in the plan."""
    return numpy_of(rows["listed_partition"]).astype(np.int64)


def sum_of_bytes(rows: pa.Table) -> int:
    """The bytes of the logs of listed segments; one that could not be looked at counts for nothing."""
    return int(pc.sum(rows["log_bytes"]).as_py() or 0)
