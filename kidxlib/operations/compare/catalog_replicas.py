"""Compares the replicas that the sources of a catalog have, each with all others of its partition, by what the catalog
says of ranges of offsets: digests, leader epochs, counts of records. The logs tell the first batch that differs.

Sources hold replicas of one partition if its topic, number and topic id are the same. Two replicas are compared from
the later of their log starts up to the earlier of their high watermarks; batches beyond that are not committed yet, and
may differ. Segments may be cut differently. If digests of a range of offsets are equal, both replicas hold the same
batches there; if not, they differ in that range, and the logs tell the first offset, if they lie on this machine as the
catalog knows them. A range that reaches beyond the bounds tells nothing unless its digests are equal. So the last
offsets of an active segment are often undecided: its ranges end where the log ends, not at the high watermark.

Each replica of a compacted topic is cleaned by its own broker, and holds other batches than the others. Such topics are
compared by leader epochs and by their numbers of records, and are never called the same.

A replica lacks the offsets before its end of which it has no batch and another has one, whatever the high watermark is.
Damaged or unknown logs are not comparable, and a log that was not compared to its end is the same up to an offset. A
source that was listed earlier than another is behind by what was written since; that is no fault by itself.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.conditions import PRESENT, Among, scope_of
from kidxlib.catalog.matching import Flags, Longs, Values, flags_of, lengths_of, numbers_in, positions_in, runs
from kidxlib.catalog.partitions import PARTITIONS, rows_of_keys
from kidxlib.catalog.rows import Int32, Row, view_of
from kidxlib.catalog.segments import SEGMENTS, SegmentRow
from kidxlib.engine.shares import cut_by_weight
from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format.segment_files import OFFSET_MAX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.compare.catalog_replica_kernel import COMPARED, PAIR, compare_replica_pairs
from kidxlib.operations.compare.catalog_replica_verdict import (
    Difference,
    EpochDifference,
    Lack,
    LogPlace,
    ReplicaRelation,
    ReplicaVerdict,
)
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.outcome import Status
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.store.s3 import is_object
from kidxlib.tables.protocol import ROWS, TablesToRead

#: So many differences are looked for in logs.
_WALKS: Final = 100

_BY_CLEANER: Final = "cleaner-offset-checkpoint names it"
_BY_POLICY: Final = "its policy says so"
_BY_OFFSETS: Final = "segments of all replicas lack offsets"

_COLUMNS: Final = (
    *(*PARTITIONS.key, "base_offset", "next_offset", "status", "records", "offsets_increase"),
    *("offset_digests", "leader_epochs"),
)

#: The facts of so many segments are in memory at the same time, 2 KB each; one topic may have more.
_SEGMENTS_AT_ONCE: Final = 200_000
#: Two copies are replicas if they agree in these.
_PARTITION: Final = ("topic", "partition", "topic_id")
_COPY_COLUMNS: Final = (
    *("source", *_PARTITION, "first_base_offset", "log_end_offset", "log_start_offset"),
    *("high_watermark", "cleaner_offset"),
)


@dataclass(frozen=True, slots=True)
class Copies:
    """Partitions that several sources have.

    Attributes:
        rows: a row for each partition of each source, in the order of topics, partitions, topic ids and
            sources. A copy's number is that of its row.
        groups: for each partition the numbers of its first copy, and of the copy after its last.
    """

    rows: pa.Table
    groups: Sequence[tuple[int, int]]

    @classmethod
    def from_catalog(cls, tables: TablesToRead, sources: Collection[str] | None) -> Copies:
        where = [] if sources is None else [Among("source", sorted(sources))]
        rows = tables.read(PARTITIONS, (*_COPY_COLUMNS, "present"), where)
        rows = rows.filter(rows["present"]).select(list(_COPY_COLUMNS))
        rows = rows.sort_by([(name, "ascending") for name in (*_PARTITION, "source")])
        columns: list[Any] = [rows[name].combine_chunks() for name in _PARTITION]
        bounds = [(start, end) for start, end in runs(columns) if end - start > 1]
        if not bounds:
            return cls(rows.slice(0, 0), [])
        kept = pa.concat_tables([rows.slice(start, end - start) for start, end in bounds]).combine_chunks()
        groups, at = [], 0
        for start, end in bounds:
            groups.append((at, at + end - start))
            at += end - start
        return cls(kept, groups)

    def parts(self, tables: TablesToRead) -> Iterator[Copies]:
        """Parts whose segments are read one after the other. All copies of a topic are in one part."""
        where = [*scope_of({"copies": self.rows}, ("source", "topic")), PRESENT]
        counts = tables.counts(SEGMENTS, ("topic",), where)
        segments: dict[str, int] = {row["topic"]: row[ROWS.name] for row in counts.to_pylist()}
        of_rows = self.rows["topic"].to_pylist()
        topics = [str(of_rows[start]) for start, _ in self.groups]
        begins = [number for number, topic in enumerate(topics) if not number or topic != topics[number - 1]]
        weights = [segments.get(topics[begin], 0) for begin in begins]
        for start, end in cut_by_weight(weights, _SEGMENTS_AT_ONCE):
            yield self._part(begins[start], [*begins, len(topics)][end])

    def _part(self, first: int, end: int) -> Copies:
        """The partitions from `first` up to below `end`."""
        start, after = self.groups[first][0], self.groups[end - 1][1]
        groups = [(one - start, other - start) for one, other in self.groups[first:end]]
        return Copies(self.rows.slice(start, after - start), groups)


def compare_catalog_replicas(
    tables: TablesToRead,
    *,
    sources: Collection[str] | None = None,
    compacted: Collection[str] = (),
    walks: int = _WALKS,
) -> list[ReplicaVerdict]:
    """A verdict for each replica, but for the one that the others of its partition are compared with: that with which
    most agree, of several the one whose log ends last, then the first by the name of its source. In the order of
    topics, partitions and sources.

    Headers of batches are read of the first `walks` differences, where both logs lie on this machine as the catalog
    knows them. `compacted` are topics whose policy says so; others are known by `cleaner_offset`, or by offsets that
    segments of all their replicas lack.
    """
    copies = Copies.from_catalog(tables, sources)
    if not copies.groups:
        return []
    verdicts = [verdict for part in copies.parts(tables) for verdict in _verdicts(tables, part, frozenset(compacted))]
    return list(_with_first_offsets(tables, verdicts, walks))


@dataclass(frozen=True, slots=True)
class CatalogReplicaSegments:
    """Segments of copies, in the order of copies and base offsets.

    Attributes:
        order: the number of each segment's row in `rows`.
        copy: the number of the segment's copy.
        base, end: the base offset, and the last offset of valid batches + 1; the base offset where none is known.
        following: the base offset of the next segment; `OFFSET_MAX` for the last one.
        is_whole: all of the log is known.
        is_known: the batches of the valid part are known, and lie between the base offset and the next segment's.
    """

    rows: pa.Table
    order: Longs
    copy: Longs
    base: Longs
    end: Longs
    following: Longs
    is_whole: Flags
    is_known: Flags

    @classmethod
    def from_catalog(cls, tables: TablesToRead, copies: pa.Table) -> Self:
        rows = tables.read(SEGMENTS, _COLUMNS, [*scope_of({"copies": copies}, PARTITIONS.key), PRESENT])
        rows = rows.combine_chunks()
        copy = positions_in(rows, copies, PARTITIONS.key)  # −1 for other partitions
        base, _ = numbers_in(rows["base_offset"])
        end = np.maximum(_with(rows["next_offset"], base), base)
        order = np.lexsort((base, copy))[int((copy < 0).sum()) :]
        copy, base, end = copy[order], base[order], end[order]
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = copy[1:] != copy[:-1]
        following = np.where(is_last, OFFSET_MAX, np.roll(base, -1))
        overlaps = ~is_last & (end > following)
        overlaps[1:] |= overlaps[:-1]
        increase: Values = rows["offsets_increase"]
        is_known = flags_of(pc.and_(rows["offset_digests"].is_valid(), increase.fill_null(True)))[order] & ~overlaps
        is_whole = flags_of(pc.equal(rows["status"], pa.scalar(Status.OK.value)))[order] & is_known
        return cls(rows, order, copy, base, end, following, is_whole, is_known)

    def bounds(self, copies: int) -> Longs:
        """Where the segments of each copy begin, of shape (copies + 1,)."""
        return np.searchsorted(self.copy, np.arange(copies + 1))

    def summed(self, values: Longs, copies: int) -> Longs:
        """The sum of the segments' values, for each copy."""
        sums = np.concatenate([[0], np.cumsum(values)])
        return np.diff(sums[self.bounds(copies)])

    def records(self) -> tuple[Longs, Flags]:
        """The number of records of each segment, 0 where it is not known, and whether it is."""
        records, are_known = numbers_in(self.rows["records"])
        return records[self.order], are_known[self.order]


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Ranges of offsets, in the order of copies and offsets.

    Attributes:
        bounds: of shape (copies + 1,): where the ranges of each copy begin.
        first, last: offsets.
        digest: of the batches that begin in the range, as far as they are in one segment; 0 without one.
        is_known: False where nobody knows which batches there are.
    """

    bounds: Longs
    first: Longs
    last: Longs
    digest: Longs
    is_known: Flags

    @classmethod
    def of(cls, segments: CatalogReplicaSegments, copies: int) -> Self:
        """The ranges of segments: a range ends where its segment does; offsets behind valid batches are not known."""
        lists, starts, lengths = _lists(segments, "offset_digests")
        lengths = np.where(segments.is_known, lengths, 0)
        has_unknown = ~segments.is_whole & (segments.end < segments.following) | ~segments.is_known
        ends = np.cumsum(lengths + has_unknown)
        of_segment = np.repeat(np.arange(len(lengths)), lengths)
        at = np.arange(len(of_segment)) + np.repeat(np.cumsum(has_unknown) - has_unknown, lengths)
        rows = int(ends[-1]) if len(ends) else 0
        first, last, digest = (np.empty(rows, np.int64) for _ in range(3))
        is_known = np.zeros(rows, np.bool_)
        taken = _positions(starts, lengths)
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
class _Epochs:
    """The batches with a leader epoch above all before them in their segment, in the order of copies and offsets.

    Attributes:
        bounds: of shape (copies + 1,): where the batches of each copy begin.
    """

    bounds: Longs
    offset: Longs
    epoch: NDArray[np.int32]

    @classmethod
    def of(cls, segments: CatalogReplicaSegments, copies: int) -> Self:
        lists, starts, lengths = _lists(segments, "leader_epochs")
        taken = _positions(starts, lengths)
        bounds = np.concatenate([[0], np.cumsum(lengths)])[segments.bounds(copies)]
        return cls(bounds, _field(lists, "start_offset")[taken], _field(lists, "epoch")[taken])


def _positions(starts: Longs, lengths: Longs) -> Longs:
    """The positions of all elements of lists that begin at `starts`."""
    before = np.cumsum(lengths) - lengths
    positions: Longs = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return positions


def _lists(segments: CatalogReplicaSegments, name: str) -> tuple[Values, Longs, Longs]:
    """The elements of a column of lists, and where the list of each segment begins and how long it is."""
    column: Values = segments.rows[name].combine_chunks()
    starts = column.offsets.to_numpy()[:-1].astype(np.int64)
    return column.values, starts[segments.order], lengths_of(column)[segments.order]


def _field(structs: Values, name: str) -> Any:
    return structs.field(name).to_numpy()


@dataclass(frozen=True, slots=True)
class CatalogReplicaBounds:
    """Where each copy starts and ends.

    Attributes:
        start: the log start; above `end` where the copy has no segment.
        end: the high watermark, or the log end offset, if that is lower.
        log_end: the log end offset; the base offset of the last segment, where nobody knows it.
        records: in all segments; −1 where not all are known.
        has_gaps: some segment has fewer records than offsets.
    """

    start: Longs
    end: Longs
    log_end: Longs
    records: Longs
    has_gaps: Flags

    @classmethod
    def of(cls, copies: Copies, segments: CatalogReplicaSegments) -> CatalogReplicaBounds:
        rows, count = copies.rows, copies.rows.num_rows
        bounds = segments.bounds(count)
        has_segment = np.diff(bounds) > 0
        last_base = np.zeros(count, np.int64)
        last_base[has_segment] = segments.base[bounds[1:][has_segment] - 1]
        start, _ = numbers_in(pc.max_element_wise(rows["log_start_offset"], rows["first_base_offset"]))
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


#: How pairs of copies compare, each by the fields of `COMPARED`; by their numbers, the lower one first.
_Pairs = Mapping[tuple[int, int], Mapping[str, Any]]


def _compare_pairs(
    copies: Copies, segments: CatalogReplicaSegments, bounds: CatalogReplicaBounds, compacted: list[str | None]
) -> _Pairs:
    """Compare each copy with all others of its partition."""
    count = copies.rows.num_rows
    numbers = [pair for group in copies.groups for pair in itertools.combinations(range(*group), 2)]
    one, other = np.array(numbers, np.int64).reshape(-1, 2).T
    pairs = np.zeros(len(numbers), PAIR)
    pairs["one"], pairs["other"] = one, other
    pairs["first_offset"] = np.maximum(bounds.start[one], bounds.start[other])
    pairs["end_offset"] = np.minimum(bounds.end[one], bounds.end[other])
    pairs["logs_end"] = np.minimum(bounds.log_end[one], bounds.log_end[other])
    pairs["is_compacted"] = np.array([why is not None for why in compacted], np.bool_)[one]
    ranges, epochs = _Ranges.of(segments, count), _Epochs.of(segments, count)
    compared = np.zeros(len(numbers), COMPARED)
    of_ranges = ranges.bounds, ranges.first, ranges.last, ranges.digest, ranges.is_known
    compare_replica_pairs(pairs, *of_ranges, epochs.bounds, epochs.offset, epochs.epoch, compared)
    fields = COMPARED.names or ()
    rows = (dict(zip(fields, values, strict=True)) for values in compared.tolist())
    return dict(zip(numbers, rows, strict=True))


def _compacted_by(copies: Copies, bounds: CatalogReplicaBounds, topics: frozenset[str]) -> list[str | None]:
    """For each copy, how it is known that its topic is compacted; None where it is not. `topics` are those whose policy
    says so.

    Within a segment a broker leaves no offset out, and only compaction takes records out of it.
    """
    is_cleaned = copies.rows["cleaner_offset"].is_valid().to_pylist()
    names = copies.rows["topic"].to_pylist()
    compacted: list[str | None] = [None] * len(names)
    for start, end in copies.groups:
        if names[start] in topics:
            compacted[start:end] = [_BY_POLICY] * (end - start)
        elif any(is_cleaned[start:end]):
            compacted[start:end] = [_BY_CLEANER] * (end - start)
        elif bounds.has_gaps[start:end].all():
            compacted[start:end] = [_BY_OFFSETS] * (end - start)
    return compacted


def _with(column: Values, others: Longs) -> Longs:
    """The column, with the numbers of others where it is null."""
    numbers, are_known = numbers_in(column)
    return np.where(are_known, numbers, others)


def _verdicts(tables: TablesToRead, copies: Copies, compacted: frozenset[str]) -> list[ReplicaVerdict]:
    segments = CatalogReplicaSegments.from_catalog(tables, copies.rows)
    bounds = CatalogReplicaBounds.of(copies, segments)
    by = _compacted_by(copies, bounds, compacted)
    of_copies = _Verdicts(copies.rows, bounds, by, _compare_pairs(copies, segments, bounds, by))
    return [verdict for group in copies.groups for verdict in of_copies.verdicts(*group)]


class _Verdicts:
    """Says how copies compare with the one of their partition with which most agree."""

    def __init__(
        self, rows: pa.Table, bounds: CatalogReplicaBounds, compacted: Sequence[str | None], pairs: _Pairs
    ) -> None:
        names = ("topic", "partition", "topic_id", "source")
        self._keys = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
        self._starts, self._ends = bounds.start.tolist(), bounds.end.tolist()
        self._log_ends, self._records = bounds.log_end.tolist(), bounds.records.tolist()
        self._compacted, self._pairs = compacted, pairs

    def verdicts(self, first: int, end: int) -> list[ReplicaVerdict]:
        """The verdicts on the copies of one partition, by their numbers."""
        numbers = range(first, end)
        agreeing = {
            number: [other for other in numbers if other == number or self._agree(number, other)] for number in numbers
        }
        best = min(numbers, key=lambda number: (-len(agreeing[number]), -self._log_ends[number], number))
        return [self._verdict(number, best, agreeing[best], len(numbers)) for number in numbers if number != best]

    def _agree(self, one: int, other: int) -> bool:
        pair = self._pairs[min(one, other), max(one, other)]
        lacks = pair["one_lacks"] or pair["other_lacks"]
        return self._why_nothing(one, other) is None and not (pair["ranges"] or lacks or pair["epochs_disagree"])

    def _verdict(self, number: int, best: int, agreeing: Sequence[int], copies: int) -> ReplicaVerdict:
        topic, partition, topic_id, source = self._keys[number]
        pair = self._pairs[min(number, best), max(number, best)]
        first, end = max(self._starts[number], self._starts[best]), min(self._ends[number], self._ends[best])
        nothing, undecided = self._why_nothing(number, best), pair["straddling"] + pair["unknown"]
        behind = max(self._log_ends[best] - self._log_ends[number], 0)
        records, other_records = (
            None if count < 0 else count for count in (self._records[number], self._records[best])
        )
        lacks = _lack(pair, self._keys[min(number, best)][-1], self._keys[max(number, best)][-1])
        compared_to = None if nothing else end - pair["straddling"]
        verdict, reason = self._of_ends(number, best, pair, None if undecided else compared_to)
        if nothing is not None:
            verdict, reason = ReplicaRelation.BEHIND if behind else ReplicaRelation.NOT_COMPARABLE, nothing
        if lacks is not None:
            verdict = ReplicaRelation.LACKS
        if pair["epochs_disagree"]:
            verdict = ReplicaRelation.EPOCHS_DISAGREE
        if pair["ranges"] > pair["lacks_inside"]:
            verdict = ReplicaRelation.DIFFERS
        return ReplicaVerdict(
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            source=source,
            compared_with=self._keys[best][-1],
            agreeing=[self._keys[copy][-1] for copy in agreeing],
            has_majority=2 * len(agreeing) > copies,
            verdict=verdict,
            compacted=self._compacted[number],
            first_offset=None if nothing else first,
            end_offset=None if nothing else end,
            undecided_offsets=undecided,
            compared_to=compared_to,
            log_end_offset=self._log_ends[number],
            lacks=lacks,
            behind_offsets=behind,
            records=records,
            other_records=other_records,
            difference=_difference(pair),
            epochs=_epochs(pair, number < best),
            reason=reason,
        )

    def _of_ends(
        self, number: int, best: int, pair: Mapping[str, Any], compared_to: int | None
    ) -> tuple[ReplicaRelation, str | None]:
        """The verdict and reason where no batch differs, by how far the copies were compared; `compared_to` is None
        where digests could not tell of all.
        """
        behind = self._log_ends[best] > self._log_ends[number]
        if pair["unknown"]:
            return ReplicaRelation.NOT_COMPARABLE, _why_undecided(pair)
        if behind:
            return ReplicaRelation.BEHIND, _why_undecided(pair) or None
        if self._compacted[number] is not None:
            same = self._records[number] == self._records[best]
            numbers = "both have the same number of records" if same else "their numbers of records differ, as may be"
            return ReplicaRelation.NOT_COMPARABLE, f"each broker compacts its own log; {numbers}"
        if compared_to is None or compared_to < self._log_ends[number]:
            return ReplicaRelation.SAME_UP_TO, _why_undecided(pair) or "what follows is not known to be committed"
        if self._starts[number] > self._starts[best]:
            start, source = self._starts[best], self._keys[best][-1]
            return ReplicaRelation.SAME_UP_TO, f"its log starts at {self._starts[number]}, that of {source} at {start}"
        return ReplicaRelation.SAME, None

    def _why_nothing(self, one: int, other: int) -> str | None:
        """Why two copies have no offsets in common; None where they do."""
        for number in (one, other):
            if self._starts[number] > self._ends[number]:
                start, end, source = self._starts[number], self._ends[number], self._keys[number][-1]
                return (
                    f"nothing is committed in source {source}: its log starts at {start}, its high watermark is {end}"
                )
        earlier, later = sorted((one, other), key=lambda number: self._ends[number])
        if self._ends[earlier] > self._starts[later]:
            return None
        if self._ends[later] == self._starts[later] == self._ends[earlier] == self._starts[earlier]:
            return None  # both are empty
        return (
            f"no offset in common: in source {self._keys[earlier][-1]} the high watermark is {self._ends[earlier]}, in "
            f"source {self._keys[later][-1]} the log starts at {self._starts[later]}"
        )


def _why_undecided(pair: Mapping[str, Any]) -> str:
    parts = []
    if pair["straddling"]:
        parts.append(f"digests of {pair['straddling']} offsets cover others too, beyond log starts or high watermarks")
    if pair["unknown"]:
        parts.append(f"{pair['unknown']} offsets have no digest in the catalog, or their log is damaged there")
    return "; ".join(parts)


def _lack(pair: Mapping[str, Any], one: str, other: str) -> Lack | None:
    for side, source in (("one", one), ("other", other)):
        if ranges := pair[f"{side}_lacks"]:
            first, last = pair[f"{side}_lacks_first"], pair[f"{side}_lacks_last"]
            return Lack(source=source, first_offset=first, last_offset=last, ranges=ranges)
    return None


def _difference(pair: Mapping[str, Any]) -> Difference | None:
    if not pair["ranges"]:
        return None
    return Difference(first_offset=pair["first_offset"], last_offset=pair["last_offset"], ranges=pair["ranges"])


def _epochs(pair: Mapping[str, Any], is_one: bool) -> EpochDifference | None:
    if not pair["epochs_disagree"]:
        return None
    one, other = pair["one_epoch"], pair["other_epoch"]
    epoch, other_epoch = (one, other) if is_one else (other, one)
    return EpochDifference(offset=pair["epoch_offset"], epoch=epoch, other_epoch=other_epoch)


@view_of(SegmentRow)
class SegmentToWalk(Row):
    """A segment whose log may be read, up to `valid_bytes`: bytes behind these were not compared."""

    source: str
    topic: str
    partition: Int32
    base_offset: int
    next_offset: int | None
    valid_bytes: int | None
    log_bytes: int | None
    log_mtime_ns: int | None
    log_path: str


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is compared of a batch, and where it is."""

    base_offset: int
    last_offset: int
    crc: int
    place: LogPlace

    @property
    def compared(self) -> tuple[int, int, int]:
        return self.base_offset, self.last_offset, self.crc


def _with_first_offset(
    difference: Difference, one: Sequence[SegmentToWalk], other: Sequence[SegmentToWalk]
) -> Difference:
    """The difference with the first offset that differs, if both logs can be read here and are as the catalog knows
    them. Only headers of batches are read. `one` and `other` are in the order of offsets.
    """
    wanted = WantedRecords(difference.first_offset, difference.last_offset)
    try:
        with contextlib.closing(_batches(one, wanted)) as some, contextlib.closing(_batches(other, wanted)) as others:
            pair = _first_differing_pair(some, others)
    except (OSError, LogChangedError, MalformedRecordsError) as error:
        return replace(difference, note=str(error))
    if pair is None:
        return replace(difference, note="the logs do not differ there, though the catalog says it: build again")
    offsets = [batch.base_offset for batch in pair if batch is not None]
    place, other_place = (None if batch is None else batch.place for batch in pair)
    return replace(difference, offset=min(offsets), place=place, other_place=other_place)


def _first_differing_pair(
    some: Iterable[_Batch], others: Iterable[_Batch]
) -> tuple[_Batch | None, _Batch | None] | None:
    for pair in itertools.zip_longest(some, others):
        if pair[0] is None or pair[1] is None or pair[0].compared != pair[1].compared:
            return pair
    return None


def _batches(segments: Sequence[SegmentToWalk], wanted: WantedRecords) -> Generator[_Batch, None, None]:
    """The batches that begin in a range of offsets."""
    for segment in segments:
        next_offset = segment.next_offset
        if segment.base_offset > wanted.last_offset or (next_offset is not None and next_offset <= wanted.first_offset):
            continue
        if is_object(segment.log_path):
            raise OSError(f"{segment.log_path}: an object in a store; logs of this machine alone are walked over")
        with opened_log(segment.log_path) as opened:
            if (opened.version.size, opened.version.mtime_ns) != (segment.log_bytes, segment.log_mtime_ns):
                raise LogChangedError(f"{segment.log_path}: changed since the catalog was built; build again")
            log = opened.log(segment.valid_bytes, use_mmap=False)
            for table in BatchWalk(log, 0, wanted, whole=False).tables():
                for offset, last, crc, at in table.rows[["offset_field", "last_offset", "crc", "position"]].tolist():
                    if wanted.first_offset <= offset <= wanted.last_offset:
                        place = LogPlace(log_path=segment.log_path, position=at)
                        yield _Batch(offset, last, crc, place)


def _with_first_offsets(tables: TablesToRead, verdicts: list[ReplicaVerdict], walks: int) -> Iterator[ReplicaVerdict]:
    """The verdicts; the first `walks` differences with the first offset that differs, as the logs tell it."""
    differing = [verdict for verdict in verdicts if verdict.difference is not None]
    segments = _segments(tables, {place for verdict in differing[:walks] for place in _places(verdict)})
    walked = 0
    for verdict in verdicts:
        if (difference := verdict.difference) is None:
            yield verdict
            continue
        if walked < walks:
            difference = _with_first_offset(difference, *(segments[place] for place in _places(verdict)))
        else:
            difference = replace(difference, note=f"not looked for in the logs: it is not among the first {walks}")
        walked += 1
        yield replace(verdict, difference=difference)


def _places(verdict: ReplicaVerdict) -> tuple[PartitionKey, PartitionKey]:
    of_partition = verdict.topic, verdict.partition
    return (verdict.source, *of_partition), (verdict.compared_with, *of_partition)


def _segments(tables: TablesToRead, places: Collection[PartitionKey]) -> Mapping[PartitionKey, Sequence[SegmentToWalk]]:
    """The segments of partitions of sources, in the order of offsets."""
    segments: dict[PartitionKey, list[SegmentToWalk]] = defaultdict(list)
    if places:
        where = [*scope_of({"wanted": rows_of_keys(sorted(places))}, PARTITIONS.key), PRESENT]
        for row in SegmentToWalk.of_arrow(tables.read(SEGMENTS, SegmentToWalk.names(), where).sort_by("base_offset")):
            segments[row.source, row.topic, row.partition].append(row)
    return segments
