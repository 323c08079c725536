"""What the segments of copies say of ranges of offsets, as columns: digests, leader epochs, counts of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.conditions import PRESENT
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.recovery.outcome import Status
from kidxlib.tables.protocol import TablesToRead
from kidxlib.tables.scope import scope_of

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_COLUMNS: Final = (
    *(*PARTITIONS.key, "base_offset", "next_offset", "status", "records", "offsets_increase"),
    *("offset_digests", "leader_epochs"),
)
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of copies, in the order of copies and base offsets.

    Attributes:
        order: which rows of `rows` they are.
        copy: of each, the number of its copy.
        base, end: its base offset, and the last offset of its valid batches + 1; the base offset where none is known.
        following: the base offset of the next segment; `_OFFSET_MAX` of the last one.
        is_whole: all of its log is known.
        is_known: what its valid part holds is known, and lies between its base offset and the next segment's.
    """

    rows: pa.Table
    order: Numbers
    copy: Numbers
    base: Numbers
    end: Numbers
    following: Numbers
    is_whole: Flags
    is_known: Flags

    @classmethod
    def read(cls, tables: TablesToRead, copies: pa.Table) -> Self:
        """
        Args:
            copies: the keys of their partitions.

        Raises:
            CatalogError: the catalog cannot be read.
        """
        rows = tables.read(SEGMENTS, _COLUMNS, [*scope_of({"copies": copies}, PARTITIONS.key), PRESENT])
        rows = rows.combine_chunks()
        found = positions_in(rows, copies, PARTITIONS.key)
        base = _numbers(rows["base_offset"])
        order = np.lexsort((base, found))
        order = order[int((found < 0).sum()) :]
        copy, base = found[order], base[order]
        end = np.maximum(_numbers(pc.coalesce(rows["next_offset"], rows["base_offset"]))[order], base)
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = copy[1:] != copy[:-1]
        following = np.where(is_last, _OFFSET_MAX, np.roll(base, -1))
        overlaps = ~is_last & (end > following)
        overlaps[1:] |= overlaps[:-1]
        increase: Values = rows["offsets_increase"]
        is_known = _flags(pc.and_(rows["offset_digests"].is_valid(), increase.fill_null(True)))[order] & ~overlaps
        is_whole = _flags(pc.equal(rows["status"], pa.scalar(Status.OK.value)))[order] & is_known
        return cls(rows, order, copy, base, end, following, is_whole, is_known)

    def bounds(self, copies: int) -> Numbers:
        """Where the segments of each copy begin, of shape (copies + 1,)."""
        return np.searchsorted(self.copy, np.arange(copies + 1))

    def summed(self, values: Numbers, copies: int) -> Numbers:
        """The sum of values of segments, a copy each."""
        sums = np.concatenate([[0], np.cumsum(values)])
        return np.diff(sums[self.bounds(copies)])

    def records(self) -> tuple[Numbers, Flags]:
        """Records of each segment, 0 where their number is not known, and whether it is."""
        column: Values = self.rows["records"]
        return _numbers(column.fill_null(0))[self.order], _flags(column.is_valid())[self.order]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of offsets, in the order of copies and offsets.

    Attributes:
        bounds: of shape (copies + 1,): where those of each copy begin.
        first, last: their offsets.
        digest: of the batches that begin there, as far as they are in one segment; 0 where there is none.
        is_known: False where nobody knows which batches there are.
    """

    bounds: Numbers
    first: Numbers
    last: Numbers
    digest: Numbers
    is_known: Flags

    @classmethod
    def of(cls, segments: Segments, copies: int) -> Self:
        """Take them from segments: a range ends where its segment does. What follows valid batches is not known."""
        lists, lengths, entries = _lists(segments, "offset_digests")
        lengths = np.where(segments.is_known, lengths, 0)
        has_unknown = ~segments.is_whole & (segments.end < segments.following) | ~segments.is_known
        ends = np.cumsum(lengths + has_unknown)
        of_segment = np.repeat(np.arange(len(lengths)), lengths)
        at = np.arange(len(of_segment)) + np.repeat(np.cumsum(has_unknown) - has_unknown, lengths)
        rows = int(ends[-1]) if len(ends) else 0
        first, last, digest = (np.empty(rows, np.int64) for _ in range(3))
        is_known = np.zeros(rows, np.bool_)
        taken = entries(lengths)
        start = _field(lists, "start_offset")[taken]
        first[at] = np.maximum(start, segments.base[of_segment])
        last[at] = np.minimum(start + (_field(lists, "offsets")[taken] - 1), segments.end[of_segment] - 1)
        digest[at], is_known[at] = _field(lists, "digest")[taken], True
        unknown = ends[has_unknown] - 1
        first[unknown] = np.where(segments.is_known, segments.end, segments.base)[has_unknown]
        last[unknown] = np.maximum(segments.following, segments.end)[has_unknown] - 1
        digest[unknown] = 0
        bounds = np.concatenate([[0], ends])[segments.bounds(copies)]
        return cls(bounds, first, np.maximum(last, first), digest, is_known)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Batches of which the leader epoch is above all before them in their segment, in the order of copies and offsets.

    Attributes:
        bounds: of shape (copies + 1,): where those of each copy begin.
        offset, epoch: of each.
    """

    bounds: Numbers
    offset: Numbers
    epoch: NDArray[np.int32]

    @classmethod
    def of(cls, segments: Segments, copies: int) -> Self:
        """Take them from segments whose epochs are known."""
        lists, lengths, entries = _lists(segments, "leader_epochs")
        taken = entries(lengths)
        bounds = np.concatenate([[0], np.cumsum(lengths)])[segments.bounds(copies)]
        return cls(bounds, _field(lists, "start_offset")[taken], _field(lists, "epoch")[taken])


class _Entries:
    """Which elements of a column of lists those of rows are, in the order of these rows."""

    def __init__(self, starts: Numbers) -> None:
        self._starts = starts

    def __call__(self, lengths: Numbers) -> Numbers:
        before = np.cumsum(lengths) - lengths
        found: Numbers = np.repeat(self._starts - before, lengths) + np.arange(int(lengths.sum()))
        return found


def _lists(segments: Segments, name: str) -> tuple[Values, Numbers, _Entries]:
    """The elements of a column of lists, how many each segment has, and which."""
    column: Values = segments.rows[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    offsets = column.offsets.to_numpy().astype(np.int64)
    lengths = np.where(_flags(column.is_valid()), np.diff(offsets), 0)[segments.order]
    return column.values, lengths, _Entries(offsets[:-1][segments.order])


def _field(structs: Values, name: str) -> Any:
    return structs.field(name).to_numpy()


def _numbers(column: Values) -> Numbers:
    found: Numbers = column.to_numpy()
    return found


def _flags(column: Values) -> Flags:
    found: Flags = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return found.astype(np.bool_)
