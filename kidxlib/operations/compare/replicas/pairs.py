"""Copies of partitions, each compared with each other one of its partition, by what a catalog says of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.matching import Values
from kidxlib.operations.compare.replicas.compare_kernel import COMPARED, PAIR, compare_pairs
from kidxlib.operations.compare.replicas.copies import Copies
from kidxlib.operations.compare.replicas.ranges import Epochs, Numbers, Ranges, Segments

BY_CLEANER: Final = "cleaner-offset-checkpoint names it"
BY_POLICY: Final = "its policy says so"
BY_OFFSETS: Final = "segments of all replicas lack offsets"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where each copy starts and ends.

    Attributes:
        start: its log start; above `end` where it has no segment.
        end: its high watermark, or where its log ends, if that is earlier.
        log_end: where its log ends; the base offset of the last segment, where nobody knows that.
        records: in all of its segments; −1 where not all are known.
        has_gaps: some segment has fewer records than offsets.
    """

    start: Numbers
    end: Numbers
    log_end: Numbers
    records: Numbers
    has_gaps: NDArray[np.bool_]

    @classmethod
    def of(cls, copies: Copies, segments: Segments) -> Bounds:
        """Take them from rows of partitions, and from segments where these say more."""
        rows, count = copies.rows, copies.rows.num_rows
        bounds = segments.bounds(count)
        has_segment = np.diff(bounds) > 0
        last_base = np.zeros(count, np.int64)
        last_base[has_segment] = segments.base[bounds[1:][has_segment] - 1]
        start = _filled(pc.max_element_wise(rows["log_start_offset"], rows["first_base_offset"]), 0)
        log_end = np.where(has_segment, _with(rows["log_end_offset"], last_base), 0)
        end = np.minimum(_with(rows["high_watermark"], log_end), log_end)
        records, are_known = segments.records()
        fewer = are_known & segments.is_known & (records < segments.end - segments.base)
        all_known = segments.summed((~are_known).astype(np.int64), count) == 0
        return cls(
            start=np.where(has_segment, start, end + 1),
            end=end,
            log_end=log_end,
            records=np.where(all_known & has_segment, segments.summed(records, count), -1),
            has_gaps=segments.summed(fewer.astype(np.int64), count) > 0,
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Copies compared.

    Attributes:
        pairs: of `PAIR`, those of one partition together, in the order of copies.
        found: of `COMPARED`, for each.
    """

    pairs: NDArray[np.void]
    found: NDArray[np.void]

    @classmethod
    def of(cls, copies: Copies, segments: Segments, bounds: Bounds, compacted: list[str | None]) -> Pairs:
        """
        Args:
            compacted: of each copy, how it is known that its topic is compacted.
        """
        count = copies.rows.num_rows
        numbers = [each for group in copies.groups for each in itertools.combinations(range(*group), 2)]
        one, other = np.array(numbers, np.int64).reshape(-1, 2).T
        pairs = np.zeros(len(numbers), PAIR)
        pairs["one"], pairs["other"] = one, other
        pairs["first_offset"] = np.maximum(bounds.start[one], bounds.start[other])
        pairs["end_offset"] = np.minimum(bounds.end[one], bounds.end[other])
        pairs["logs_end"] = np.minimum(bounds.log_end[one], bounds.log_end[other])
        pairs["is_compacted"] = np.array([each is not None for each in compacted], np.bool_)[one]
        ranges, epochs = Ranges.of(segments, count), Epochs.of(segments, count)
        found = np.zeros(len(numbers), COMPARED)
        of_ranges = ranges.bounds, ranges.first, ranges.last, ranges.digest, ranges.is_known
        compare_pairs(pairs, *of_ranges, epochs.bounds, epochs.offset, epochs.epoch, found)
        return cls(pairs, found)


def compacted_by(copies: Copies, bounds: Bounds, topics: frozenset[str]) -> list[str | None]:
    """Say of each copy how it is known that its topic is compacted; None where it is not.

    Within a segment a broker leaves no offset out, and only compaction takes records out of it.

    Args:
        topics: of which the policy says it.
    """
    is_cleaned = copies.rows["cleaner_offset"].is_valid().to_pylist()
    names = copies.rows["topic"].to_pylist()
    found: list[str | None] = [None] * len(names)
    for start, end in copies.groups:
        if names[start] in topics:
            found[start:end] = [BY_POLICY] * (end - start)
        elif any(is_cleaned[start:end]):
            found[start:end] = [BY_CLEANER] * (end - start)
        elif bounds.has_gaps[start:end].all():
            found[start:end] = [BY_OFFSETS] * (end - start)
    return found


def _filled(column: Values, value: int) -> Numbers:
    filled: Numbers = column.fill_null(value).to_numpy()
    return filled


def _with(column: Values, others: Numbers) -> Numbers:
    """The column, with the numbers of others where it is null."""
    found: Any = np.where(column.is_valid().to_numpy(), _filled(column, 0), others)
    return np.asarray(found, np.int64)
