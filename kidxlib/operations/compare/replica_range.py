"""Batches of two replicas compared by their offsets, however their segments are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.catalog.results.compare import BatchRangeRow, ReplicaRangeRow
from kidxlib.errors import KidxError, LogChangedError, MalformedRecordsError, describe_error
from kidxlib.format import layouts as formats
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.operations.compare.byte_comparison import zeros_from
from kidxlib.records.bulk.batch_table import BatchWalk
from kidxlib.records.bulk.batch_table_kernel import BATCH
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import opened_log

#: What two replicas have in common of a batch: where a segment begins, it has another position.
_COMPARED: Final = ("offset_field", "last_offset", "crc", "partition_leader_epoch", "size", "magic")
#: So many ranges are kept of each kind; of a log that was cleaned each batch might be one.
_RANGES_MAX: Final = 1000

Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A segment's log of one replica.

    Attributes:
        end: the base offset of the next segment; None of the last one.
    """

    path: str
    size: int
    base_offset: int
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """Some offsets of a partition, and the segments of each side that may have them.

    Attributes:
        first, last: offsets by which batches are told that belong to it: by their last ones.
        cleaned_to: below it, a cleaner has worked on one of the replicas.
    """

    directory: str
    first: int
    last: int
    one: Sequence[ReplicaLog]
    other: Sequence[ReplicaLog]
    cleaned_to: int
    log_bytes: int

    def with_threads(self, threads: int) -> Self:
        """See `Packed`: one thread reads both."""
        return self


@dataclass(slots=True)
class _Side:
    """What was seen of one side.

    Attributes:
        damaged: ranges of offsets that nobody can tell of, with the reason.
        records: in all of its batches; None where a header does not tell.
        has_inner_gaps: offsets are missing within a log, as a cleaner leaves it.
    """

    damaged: list[tuple[int, int, str]] = field(default_factory=list)
    records: int | None = 0
    end_offset: int = -1
    has_inner_gaps: bool = False

    def add(self, rows: Rows) -> None:
        if len(rows):
            counts = rows["records_count"]
            if self.records is not None:
                self.records = None if (counts < 0).any() else self.records + int(counts.sum(dtype=np.int64))
            self.end_offset = max(self.end_offset, int(rows["last_offset"][-1]) + 1)


def compared_range(wanted: ReplicaRange) -> tuple[ReplicaRangeRow, list[BatchRangeRow]]:
    """Compare the batches of a range of offsets.

    What cannot be read, or is damaged, is data: the ranges of offsets that nobody can tell of.
    """
    comparing = _Comparing(wanted.cleaned_to, wanted.first)
    sides = _Side(), _Side()
    tables = [_rows(logs, wanted, side) for logs, side in zip((wanted.one, wanted.other), sides, strict=True)]
    for rows, others in _side_by_side(*tables):
        for side, found in zip(sides, (rows, others), strict=True):
            side.add(found)
        comparing.add(rows, others)
    comparing.end(wanted.last)
    row = ReplicaRangeRow(
        directory=wanted.directory,
        first_offset=wanted.first,
        same_batches=comparing.same,
        cleaned_to=comparing.cleaned_to,
        has_inner_gaps=any(side.has_inner_gaps for side in sides),
        a_records=sides[0].records,
        b_records=sides[1].records,
        a_end_offset=sides[0].end_offset if sides[0].end_offset >= 0 else None,
        b_end_offset=sides[1].end_offset if sides[1].end_offset >= 0 else None,
    )
    ranges = comparing.ranges(wanted.directory)
    for name, side in zip(("damaged-a", "damaged-b"), sides, strict=True):
        ranges += [
            BatchRangeRow(
                directory=wanted.directory, kind=name, first_offset=first, last_offset=last, records=None, detail=detail
            )
            for first, last, detail in side.damaged
        ]
    return row, ranges


class _Comparing:
    """Compares batches, as both sides give them, up to the same offset each time.

    Attributes:
        same: how many batches both have above what is cleaned.
        cleaned_to: a cleaner has worked below it, by a checkpoint or by batches that have fewer records than offsets.
    """

    def __init__(self, cleaned_to: int, first: int) -> None:
        self.same = 0
        self.cleaned_to = cleaned_to
        self._found: dict[str, list[list[int]]] = {"only-a": [], "only-b": [], "differs": [], "neither": []}
        self._end = first  # of the offsets that one of them has; of the first range 0, where no log need begin

    def add(self, rows: Rows, others: Rows) -> None:
        self._note_neither(rows, others)
        if len(rows) == len(others) and all(np.array_equal(rows[name], others[name]) for name in _COMPARED):
            self._note_same(rows)
            return
        for each in (rows, others):
            self._note_cleaned(each)
        in_both, at, other_at = np.intersect1d(
            rows["last_offset"], others["last_offset"], assume_unique=True, return_indices=True
        )
        equal = np.ones(len(in_both), np.bool_)
        for name in _COMPARED:
            equal &= rows[name][at] == others[name][other_at]
        self._note_same(rows[at[equal]])
        self._note("differs", rows[at[~equal]], np.arange(int((~equal).sum())) * 2)
        for kind, each, common in (("only-a", rows, at), ("only-b", others, other_at)):
            alone = np.setdiff1d(np.arange(len(each)), common, assume_unique=True)
            self._note(kind, each[alone], alone)

    def end(self, last: int) -> None:
        """Note that no more comes up to an offset."""
        if 0 < self._end <= last < OFFSET_MAX:
            self._found["neither"].append([self._end, last, 0])

    def _note_neither(self, rows: Rows, others: Rows) -> None:
        """Note offsets that neither has. A wrapper of magic 0 or 1 does not tell where it begins."""
        firsts = np.concatenate([rows["offset_field"], others["offset_field"]])
        lasts = np.concatenate([rows["last_offset"], others["last_offset"]])
        legacy = np.concatenate([rows["magic"], others["magic"]]) < formats.MAGIC_V2
        order = np.argsort(lasts, kind="stable")
        firsts, lasts, legacy = firsts[order], lasts[order], legacy[order]
        before = np.concatenate([[self._end - 1], np.maximum.accumulate(lasts)[:-1]])
        gaps = np.flatnonzero((firsts > before + 1) & ~legacy & ((before >= 0) | (self._end > 0)))
        found = self._found["neither"]
        found += [[int(before[at]) + 1, int(firsts[at]) - 1, 0] for at in gaps[: _RANGES_MAX - len(found)]]
        self._end = max(self._end, int(lasts[-1]) + 1)

    def ranges(self, directory: str) -> list[BatchRangeRow]:
        """What differs above what is cleaned."""
        return [
            BatchRangeRow(
                directory=directory,
                kind=kind,
                first_offset=first,
                last_offset=last,
                records=records if records >= 0 else None,
                detail=None,
            )
            for kind, ranges in self._found.items()
            for first, last, records, *_ in ranges
            if last >= self.cleaned_to
        ]

    def _note_same(self, rows: Rows) -> None:
        self.same += int((rows["last_offset"] >= self.cleaned_to).sum())

    def _note_cleaned(self, rows: Rows) -> None:
        fewer = (rows["records_count"] >= 0) & (rows["magic"] >= formats.MAGIC_V2)
        fewer &= rows["records_count"] < rows["last_offset"] - rows["offset_field"] + 1
        if fewer.any():
            if (cleaned_to := int(rows["last_offset"][fewer].max()) + 1) > self.cleaned_to:
                self.cleaned_to, self.same = cleaned_to, 0  # all that was counted lies before these batches
            for ranges in self._found.values():
                ranges[:] = [each for each in ranges if each[1] >= self.cleaned_to]

    def _note(self, kind: str, rows: Rows, numbers: NDArray[np.int64]) -> None:
        """Note batches that differ; those that follow each other are one range."""
        keep = rows["last_offset"] >= self.cleaned_to
        rows, numbers = rows[keep], numbers[keep]
        if not len(rows):
            return
        firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
        lasts = np.append(firsts[1:], len(rows)) - 1
        sums = np.add.reduceat(np.maximum(rows["records_count"], 0).astype(np.int64), firsts)
        sums[np.minimum.reduceat(rows["records_count"], firsts) < 0] = -1
        ranges = self._found[kind]
        for first, last, records in zip(firsts.tolist(), lasts.tolist(), sums.tolist(), strict=True):
            begin = min(int(rows["offset_field"][first]), int(rows["last_offset"][first]))
            end = int(rows["last_offset"][last])
            if ranges and (len(ranges) >= _RANGES_MAX or ranges[-1][1] + 1 == begin):
                ranges[-1][1] = end
                ranges[-1][2] = -1 if min(ranges[-1][2], records) < 0 else ranges[-1][2] + records
            else:
                ranges.append([begin, end, records])


def _side_by_side(ones: Iterator[Rows], others: Iterator[Rows]) -> Iterator[tuple[Rows, Rows]]:
    """Batches of both sides, up to the same offset each time."""
    none = np.empty(0, BATCH)
    one, other = next(ones, None), next(others, None)
    while one is not None and other is not None:
        cut = min(int(one["last_offset"][-1]), int(other["last_offset"][-1]))
        count, other_count = (int(np.searchsorted(rows["last_offset"], cut, "right")) for rows in (one, other))
        yield one[:count], other[:other_count]
        one = one[count:] if count < len(one) else next(ones, None)
        other = other[other_count:] if other_count < len(other) else next(others, None)
    while one is not None:
        yield one, none
        one = next(ones, None)
    while other is not None:
        yield none, other
        other = next(others, None)


def _rows(logs: Sequence[ReplicaLog], wanted: ReplicaRange, side: _Side) -> Iterator[Rows]:
    """The batches of one side that end in the range, in the order of offsets; what is damaged goes to `side`."""
    last = wanted.first - 1
    for log in logs:
        end = wanted.last if log.end is None else min(log.end - 1, wanted.last)
        try:
            before = None
            for rows in _rows_of_log(log, wanted, last, end):
                firsts = rows["offset_field"][0 if before is not None else 1 :]
                lasts = rows["last_offset"][:-1] if before is None else np.append(before, rows["last_offset"][:-1])
                is_new = rows["magic"][len(rows) - len(firsts) :] >= formats.MAGIC_V2
                side.has_inner_gaps |= bool(((firsts > lasts + 1) & is_new).any())
                yield rows
                before = last = int(rows["last_offset"][-1])
        except (OSError, KidxError) as error:
            first = max(last + 1, log.base_offset, wanted.first)
            side.damaged.append((first, max(end, first), f"{log.path}: {describe_error(error)}"))


def _rows_of_log(log: ReplicaLog, wanted: ReplicaRange, before: int, end: int) -> Iterator[Rows]:
    """The batches of a log that are sound and in order.

    Raises:
        OSError, LogChangedError: it cannot be read.
        MalformedRecordsError: what follows is no such batch, though the log goes on.
    """
    with opened_log(log.path) as opened:
        if opened.version.size < log.size:
            raise LogChangedError(f"{opened.version.size:,} bytes, {log.size:,} when it was listed; compare again")
        headers = opened.log(log.size, use_mmap=False)
        position = 0 if wanted.first <= log.base_offset else _first_position(headers, wanted.first)
        bytes_ = opened.log(log.size, use_mmap=False, access=Access.SEQUENTIAL)
        walk = BatchWalk(bytes_, position, Wanted(last_offset=wanted.last), checks=True, last_offset=before)
        try:
            for rows in _sound_rows(walk, log, wanted, before):
                yield rows
                before = int(rows["last_offset"][-1])
        except MalformedRecordsError as error:
            if zeros_from(bytes_, error.position) == bytes_.size - error.position:
                return  # room that was preallocated
            raise
        if not walk.is_past and walk.position < bytes_.size and log.end is not None and before < end:
            raise MalformedRecordsError(walk.position, "no whole batch", "the next batch")


def _sound_rows(walk: BatchWalk, log: ReplicaLog, wanted: ReplicaRange, before: int) -> Iterator[Rows]:
    """The batches of a walk that end in the range, up to the first that has a wrong checksum, or offsets that cannot
    follow those before it.

    Raises:
        OSError, LogChangedError, MalformedRecordsError: as `_rows_of_log`.
    """
    limit = OFFSET_MAX if log.end is None else log.end - 1
    for table in walk.tables():
        ends = table.rows["last_offset"]
        rows = table.rows[(ends >= wanted.first) & (ends <= wanted.last)].copy()
        previous = np.concatenate([[before], rows["last_offset"][:-1]])
        wrong = (rows["crc_is_right"] == 0) | (rows["last_offset"] <= previous) | (rows["last_offset"] > limit)
        wrong |= (rows["magic"] >= formats.MAGIC_V2) & (rows["offset_field"] <= previous)
        sound = int(np.argmax(wrong)) if wrong.any() else len(rows)
        if sound:
            yield rows[:sound]
            before = int(rows["last_offset"][sound - 1])
        if sound < len(rows):
            raise MalformedRecordsError(int(rows["position"][sound]), _what_is_wrong(rows[sound]), "the next batch")


def _what_is_wrong(row: np.void) -> str:
    if not row["crc_is_right"]:
        return "a batch with a wrong checksum"
    return f"a batch of offsets {row['offset_field']} to {row['last_offset']}"


def _first_position(log: LogBytes, first: int) -> int:
    """Where the first batch begins that ends at an offset or after it, by headers alone."""
    walk = BatchWalk(log, 0, Wanted(first_offset=first), whole=False)
    for table in walk.tables():
        return int(table.rows["position"][0])
    return log.size
