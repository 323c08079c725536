"""The columns of a listing: what is known of segments before their logs are read, a row each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.matching import Flags, Values, flags_array, numbers_array, numpy_of

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

Longs: TypeAlias = NDArray[np.int64]

#: Segments that are tuples of Python before they become columns: 0.2 kB as a tuple, 33 bytes as a row.
_ROWS_AT_ONCE: Final = 65_536


#: The bytes of a log that could not be looked at, and the inode of an object.
NOT_SEEN: Final = -1
NO_INODE: Final = 2**64 - 1

#: A segment as a listing finds it: base offset, and the log's bytes, modification time in ns and inode.
FoundSegment: TypeAlias = tuple[int, int, int, int]
_TYPES: Final = (np.int64, np.int64, np.int64, np.uint64)


class ListedSegments:
    """Collects the segments of one partition after the other into a table."""

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
        """Rows of `LISTED`, in order."""
        self._flush()
        partitions, base_offsets, log_bytes, mtimes, inodes = (np.concatenate(parts) for parts in self._columns)
        order = np.lexsort((base_offsets, partitions))
        partitions, log_bytes, inodes = partitions[order], log_bytes[order], inodes[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = partitions[1:] != partitions[:-1]
        all_rows, seen = np.ones(len(order), np.bool_), log_bytes != NOT_SEEN
        columns = [
            (partitions, all_rows),
            (base_offsets[order], all_rows),
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


def of_partitions(rows: pa.Table, kept: Sequence[int]) -> pa.Table:
    """The rows of the partitions with these numbers, in order; the partitions get new numbers."""
    wanted = numbers_array(pa.int32(), np.array(kept, np.int32), np.ones(len(kept), np.bool_))
    numbers: Values = pc.index_in(rows["listed_partition"], value_set=wanted)
    return rows.set_column(0, LISTED.field(0), numbers).filter(numbers.is_valid())


def runs_of_partitions(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The number of each partition that has rows, and these. Rows of a partition follow each other."""
    partitions = partitions_of(rows)
    starts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    for start, end in itertools.pairwise([*starts, len(partitions)]):
        yield int(partitions[start]), rows.slice(start, end - start)


def partitions_of(rows: pa.Table) -> Longs:
    """The number of each row's partition."""
    return numpy_of(rows["listed_partition"]).astype(np.int64)


def sum_of_bytes(rows: pa.Table) -> int:
    """Bytes of logs as they were listed; one that could not be looked at counts for nothing."""
    return int(pc.sum(rows["log_bytes"]).as_py() or 0)


def numbers_in(column: Values) -> tuple[Longs, Flags]:
    """A column of whole numbers of up to 64 bits, with 0 in the place of a null; and which are not null."""
    numbers: Longs = column.fill_null(0).to_numpy().astype(np.int64)
    valid: Flags = column.is_valid().to_numpy()
    return numbers, valid
