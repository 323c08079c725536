"""Compares the logs of two replicas batch by batch, by offset. Their segments may begin at different offsets.

`compare_replica_directories` divides partitions into ranges of offsets, which workers compare (`_compare_range`).
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.catalog.results import COMPARED_REPLICAS, BatchRangeRow, ReplicaRangeRow
from kidxlib.engine.protocol import Engine
from kidxlib.engine.shares import cut_by_weight
from kidxlib.engine.work import ItemRows, Work, reads_little
from kidxlib.errors import KidxError, LogChangedError, MalformedRecordsError, describe_error
from kidxlib.format import layouts
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.segment_files import OFFSET_MAX, parse_segment_log
from kidxlib.format.topic_partition import COMPACTED_BY_BROKERS
from kidxlib.indexing.bins import bins_of
from kidxlib.operations.compare.comparison import (
    Comparison,
    ComparisonFinding,
    FindingKind,
    PartitionComparison,
    comparison_verdict,
    run_comparison,
)
from kidxlib.operations.compare.place import (
    ComparedPlace,
    DirectoryPair,
    ListedDirectory,
    MetadataOfPlaces,
    other_origin_findings,
    pair_directories,
)
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.batch_table_kernel import BATCH
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.storage.log_bytes import Access, LogBytes, zeros_from
from kidxlib.storage.opened_log import opened_log
from kidxlib.text.words import counted

#: A range of offsets has about this many bytes of logs on each side: a second or so of work.
_RANGE_BYTES: Final = 256 * 1024 * 1024

#: The fields that must be the same in both replicas. A batch may have another position: segments may begin elsewhere.
_COMPARED_FIELDS: Final = ("offset_field", "last_offset", "crc", "partition_leader_epoch", "size", "magic")
#: At most this many ranges of each kind are kept: in a cleaned log each batch might be a range.
_RANGES_MAX: Final = 1000

_Rows = NDArray[np.void]


def compare_replicas_of_places(
    one: ComparedPlace, other: ComparedPlace, topics: re.Pattern[str], known: MetadataOfPlaces, engine: Engine
) -> Comparison:
    """Compare the replicas in B with those in A. `topics` matches full names; `known` says which topics are compacted,
    and which nodes a partition is assigned to.
    """
    pairs, results, findings = pair_directories(one, other, topics)
    pairs = [pair for pair in pairs if pair.one.topic_partition is not None]
    findings = [_unless_assigned_elsewhere(finding, other, known) for finding in findings]
    kinds = {finding.directory: finding.kind.value for finding in findings}
    results = [replace(result, verdict=kinds.get(result.directory, result.verdict)) for result in results]
    findings += other_origin_findings(one, other, as_copy=False)
    findings += _one_broker_finding(one, other) if not pairs else ()
    for partition in compare_replica_directories(pairs, one, other, known, engine):
        partition_findings = partition.findings()
        findings += partition_findings
        results.append(
            PartitionComparison(
                directory=partition.directory,
                verdict=comparison_verdict(partition_findings),
                a_end_offset=partition.one_end,
                b_end_offset=partition.other_end,
                same_to_offset=partition.same_to,
            )
        )
    return Comparison(
        findings=findings,
        partitions=sorted(results, key=lambda result: result.directory),
        logs=sum(len(_logs(pair.one)) for pair in pairs),
        log_bytes=sum(log.size for pair in pairs for side in (pair.one, pair.other) for log in _logs(side)),
        files=0,
    )


def compare_replica_directories(
    pairs: Sequence[DirectoryPair],
    one: ComparedPlace,
    other: ComparedPlace,
    known: MetadataOfPlaces,
    engine: Engine,
    *,
    as_copy: bool = False,
) -> list[ReplicaFindings]:
    """The findings on each pair, in the order of the pairs. With `as_copy` (see `ReplicaFindings`), cleaned offsets are
    compared, too: offsets that were cleaned before the copy was made are the same in B.
    """
    ranges = [
        range_ for pair in pairs for range_ in _ranges(pair, 0 if as_copy else _cleaned_to(pair, one, other, known))
    ]
    rows, batches = _compare_in_workers(ranges, engine)
    return [
        ReplicaFindings(
            pair,
            sorted(rows[pair.one.name], key=lambda row: row.first_offset),
            sorted(batches[pair.one.name], key=lambda row: (row.first_offset, row.kind)),
            as_copy=as_copy,
        )
        for pair in pairs
    ]


def _one_broker_finding(one: ComparedPlace, other: ComparedPlace) -> Iterator[ComparisonFinding]:
    """The finding that A and B are log dirs of one broker, if they are. A broker has each partition once: that is why
    they have none in common.
    """
    is_one_broker = one.clusters == other.clusters and one.nodes == other.nodes and one.nodes
    if is_one_broker and one.directory_ids and other.directory_ids and not one.directory_ids & other.directory_ids:
        yield ComparisonFinding(
            kind=FindingKind.OTHER_ORIGIN,
            detail=f"A and B are log dirs of one broker (node.id {', '.join(sorted(one.nodes))}), which has each "
            "partition once: name them together, with a comma between, and another broker's log dirs for B",
        )


def _unless_assigned_elsewhere(
    finding: ComparisonFinding, other: ComparedPlace, known: MetadataOfPlaces
) -> ComparisonFinding:
    """The finding. A missing partition is harmless if the cluster's metadata assigns it to none of B's nodes."""
    if finding.kind is not FindingKind.MISSING:
        return finding
    if finding.partition is None:
        return replace(
            finding, kind=FindingKind.NOT_COMPARED, detail="in A: a broker was moving it, or has set it aside"
        )
    nodes = known.nodes(finding.partition)
    if not nodes or not other.nodes or other.nodes & nodes:
        return finding
    detail = f"it is assigned to nodes {', '.join(sorted(nodes))}, and B is of node {', '.join(sorted(other.nodes))}"
    return replace(finding, kind=FindingKind.NOT_COMPARED, detail=detail)


def _cleaned_to(pair: DirectoryPair, one: ComparedPlace, other: ComparedPlace, known: MetadataOfPlaces) -> int:
    """The offset below which a cleaner has, or may have, worked on one of the replicas."""
    partition = pair.one.topic_partition
    assert partition is not None
    checkpointed = max(place.checkpoints[CLEANER_CHECKPOINT].get(partition, 0) for place in (one, other))
    policy = known.policy(partition.topic)
    is_compacted = partition.topic in COMPACTED_BY_BROKERS or (policy is not None and "compact" in policy.value)
    if not is_compacted:
        return checkpointed
    # A broker does not clean its last segment (`LogCleanerManager.cleanableOffsets`).
    active = [log.base_offset for side in (pair.one, pair.other) for log in _logs(side)[-1:]]
    return max([checkpointed, *active])


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A segment's log of one replica; `end` is the base offset of the next segment, None for the last one."""

    path: str
    size: int
    base_offset: int
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """A range of a partition's offsets, and the segments of each side that may have batches of it.

    Attributes:
        first, last: a batch belongs to the range if its last offset is within these.
        cleaned_to: a cleaner has worked on one of the replicas below this offset.
    """

    directory: str
    first: int
    last: int
    one: Sequence[ReplicaLog]
    other: Sequence[ReplicaLog]
    cleaned_to: int
    log_bytes: int


@dataclass(slots=True)
class _Side:
    """What was read of one side.

    Attributes:
        damaged: ranges of offsets that could not be read, with the reason.
        has_inner_gaps: offsets are missing within a log, as after cleaning.
    """

    damaged: list[tuple[int, int, str]] = field(default_factory=list)
    end_offset: int = -1
    has_inner_gaps: bool = False

    def add(self, rows: _Rows) -> None:
        if len(rows):
            self.end_offset = max(self.end_offset, int(rows["last_offset"][-1]) + 1)


def _compare_range(range_: ReplicaRange) -> tuple[ReplicaRangeRow, list[BatchRangeRow]]:
    """Compare the batches of a range of offsets. Offsets that are damaged or cannot be read become rows of `damaged-a`
    and `damaged-b`.
    """
    comparing = _RangeComparison(range_.cleaned_to, range_.first)
    one, other = _Side(), _Side()
    of_one, of_other = _rows_of_side(range_.one, range_, one), _rows_of_side(range_.other, range_, other)
    for rows, others in _side_by_side(of_one, of_other):
        one.add(rows)
        other.add(others)
        comparing.add(rows, others)
    comparing.finish(range_.last)
    row = ReplicaRangeRow(
        directory=range_.directory,
        first_offset=range_.first,
        same_batches=comparing.same_batches,
        cleaned_to=comparing.cleaned_to,
        has_inner_gaps=one.has_inner_gaps or other.has_inner_gaps,
        a_end_offset=one.end_offset if one.end_offset >= 0 else None,
        b_end_offset=other.end_offset if other.end_offset >= 0 else None,
    )
    ranges = comparing.ranges(range_.directory)
    for name, side in (("damaged-a", one), ("damaged-b", other)):
        ranges += [
            BatchRangeRow(
                directory=range_.directory, kind=name, first_offset=first, last_offset=last, records=None, detail=detail
            )
            for first, last, detail in side.damaged
        ]
    return row, ranges


class _RangeComparison:
    """Compares the batches of both sides, a part of the range at a time.

    Attributes:
        same_batches: the number of batches above `cleaned_to` that both sides have.
        cleaned_to: a cleaner has worked below it, by a checkpoint or by batches that have fewer records than offsets.
    """

    def __init__(self, cleaned_to: int, first: int) -> None:
        self.same_batches = 0
        self.cleaned_to = cleaned_to
        #: By kind: first offset, last offset, records (−1 where unknown).
        self._ranges: dict[str, list[list[int]]] = {"only-a": [], "only-b": [], "differs": [], "neither": []}
        self._next_offset = first  # after all offsets so far; no gap is noted at 0, as logs may begin later

    def add(self, rows: _Rows, others: _Rows) -> None:
        self._note_neither(rows, others)
        if len(rows) == len(others) and all(np.array_equal(rows[name], others[name]) for name in _COMPARED_FIELDS):
            self._note_same(rows)
            return
        self._note_cleaned(rows)
        self._note_cleaned(others)
        in_both, at, other_at = np.intersect1d(
            rows["last_offset"], others["last_offset"], assume_unique=True, return_indices=True
        )
        equal = np.ones(len(in_both), np.bool_)
        for name in _COMPARED_FIELDS:
            equal &= rows[name][at] == others[name][other_at]
        self._note_same(rows[at[equal]])
        not_consecutive = np.arange(int((~equal).sum())) * 2
        self._note_differing("differs", rows[at[~equal]], not_consecutive)
        for kind, of_side, common in (("only-a", rows, at), ("only-b", others, other_at)):
            only_here = np.setdiff1d(np.arange(len(of_side)), common, assume_unique=True)
            self._note_differing(kind, of_side[only_here], only_here)

    def finish(self, last: int) -> None:
        """Note that neither side has more batches up to an offset."""
        if 0 < self._next_offset <= last < OFFSET_MAX:
            self._ranges["neither"].append([self._next_offset, last, 0])

    def ranges(self, directory: str) -> list[BatchRangeRow]:
        """The ranges that differ, above the cleaned offsets."""
        return [
            BatchRangeRow(
                directory=directory,
                kind=kind,
                first_offset=first,
                last_offset=last,
                records=records if records >= 0 else None,
                detail=None,
            )
            for kind, ranges in self._ranges.items()
            for first, last, records in ranges
            if last >= self.cleaned_to
        ]

    def _note_neither(self, rows: _Rows, others: _Rows) -> None:
        """Note offsets that neither side has. A wrapper of magic 0 or 1 does not tell its first offset."""
        firsts = np.concatenate([rows["offset_field"], others["offset_field"]])
        lasts = np.concatenate([rows["last_offset"], others["last_offset"]])
        legacy = np.concatenate([rows["magic"], others["magic"]]) < layouts.MAGIC_V2
        order = np.argsort(lasts, kind="stable")
        firsts, lasts, legacy = firsts[order], lasts[order], legacy[order]
        before = np.concatenate([[self._next_offset - 1], np.maximum.accumulate(lasts)[:-1]])
        gaps = np.flatnonzero((firsts > before + 1) & ~legacy & ((before >= 0) | (self._next_offset > 0)))
        neither = self._ranges["neither"]
        neither += [[int(before[at]) + 1, int(firsts[at]) - 1, 0] for at in gaps[: _RANGES_MAX - len(neither)]]
        self._next_offset = max(self._next_offset, int(lasts[-1]) + 1)

    def _note_same(self, rows: _Rows) -> None:
        self.same_batches += int((rows["last_offset"] >= self.cleaned_to).sum())

    def _note_cleaned(self, rows: _Rows) -> None:
        has_gaps = (rows["records_count"] >= 0) & (rows["magic"] >= layouts.MAGIC_V2)
        has_gaps &= rows["records_count"] < rows["last_offset"] - rows["offset_field"] + 1
        if has_gaps.any():
            if (cleaned_to := int(rows["last_offset"][has_gaps].max()) + 1) > self.cleaned_to:
                self.cleaned_to, self.same_batches = cleaned_to, 0  # all counted batches come before these
            for ranges in self._ranges.values():
                ranges[:] = [range_ for range_ in ranges if range_[1] >= self.cleaned_to]

    def _note_differing(self, kind: str, rows: _Rows, numbers: NDArray[np.int64]) -> None:
        """Note batches that differ. Batches with consecutive numbers make one range; so do adjacent offsets."""
        keep = rows["last_offset"] >= self.cleaned_to
        rows, numbers = rows[keep], numbers[keep]
        if not len(rows):
            return
        firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
        lasts = np.append(firsts[1:], len(rows)) - 1
        sums = np.add.reduceat(np.maximum(rows["records_count"], 0).astype(np.int64), firsts)
        sums[np.minimum.reduceat(rows["records_count"], firsts) < 0] = -1
        ranges = self._ranges[kind]
        for first, last, records in zip(firsts.tolist(), lasts.tolist(), sums.tolist(), strict=True):
            begin = min(int(rows["offset_field"][first]), int(rows["last_offset"][first]))
            end = int(rows["last_offset"][last])
            if ranges and (len(ranges) >= _RANGES_MAX or ranges[-1][1] + 1 == begin):
                ranges[-1][1] = end
                ranges[-1][2] = -1 if min(ranges[-1][2], records) < 0 else ranges[-1][2] + records
            else:
                ranges.append([begin, end, records])


def _side_by_side(ones: Iterator[_Rows], others: Iterator[_Rows]) -> Iterator[tuple[_Rows, _Rows]]:
    """The batches of both sides, up to the same offset each time."""
    none = np.empty(0, BATCH)
    one, other = next(ones, None), next(others, None)
    while one is not None and other is not None:
        last = min(int(one["last_offset"][-1]), int(other["last_offset"][-1]))
        count, other_count = (int(np.searchsorted(rows["last_offset"], last, "right")) for rows in (one, other))
        yield one[:count], other[:other_count]
        one = one[count:] if count < len(one) else next(ones, None)
        other = other[other_count:] if other_count < len(other) else next(others, None)
    while one is not None:
        yield one, none
        one = next(ones, None)
    while other is not None:
        yield none, other
        other = next(others, None)


def _rows_of_side(logs: Sequence[ReplicaLog], range_: ReplicaRange, side: _Side) -> Iterator[_Rows]:
    """The batches of one side that end in the range, in the order of offsets; `side` gets gaps and damaged offsets."""
    last = range_.first - 1
    for log in logs:
        end = range_.last if log.end is None else min(log.end - 1, range_.last)
        try:
            last_in_log = None
            for rows in _rows_of_log(log, range_, last, end):
                firsts = rows["offset_field"]
                ends_before = np.append(firsts[0] - 1 if last_in_log is None else last_in_log, rows["last_offset"][:-1])
                is_gap = (firsts > ends_before + 1) & (rows["magic"] >= layouts.MAGIC_V2)
                side.has_inner_gaps |= bool(is_gap.any())
                yield rows
                last_in_log = last = int(rows["last_offset"][-1])
        except (OSError, KidxError) as error:
            first = max(last + 1, log.base_offset, range_.first)
            side.damaged.append((first, max(end, first), f"{log.path}: {describe_error(error)}"))


def _rows_of_log(log: ReplicaLog, range_: ReplicaRange, before: int, end: int) -> Iterator[_Rows]:
    """The batches of a log that end in the range; all must be sound and in order, after `before` and up to `end`."""
    with opened_log(log.path) as opened:
        if opened.version.size < log.size:
            raise LogChangedError(f"{opened.version.size:,} bytes, {log.size:,} when it was listed; compare again")
        headers = opened.log(log.size, use_mmap=False)
        position = 0 if range_.first <= log.base_offset else _first_position(headers, range_.first)
        bytes_ = opened.log(log.size, use_mmap=False, access=Access.SEQUENTIAL)
        walk = BatchWalk(bytes_, position, WantedRecords(last_offset=range_.last), checks=True, last_offset=before)
        try:
            for rows in _sound_rows(walk, log, range_, before):
                yield rows
                before = int(rows["last_offset"][-1])
        except MalformedRecordsError as error:
            if zeros_from(bytes_, error.position) == bytes_.size - error.position:
                return  # only preallocated space follows
            raise
        if not walk.is_past and walk.position < bytes_.size and log.end is not None and before < end:
            raise MalformedRecordsError(walk.position, "no whole batch", "the next batch")


def _sound_rows(walk: BatchWalk, log: ReplicaLog, range_: ReplicaRange, before: int) -> Iterator[_Rows]:
    """The batches of a walk that end in the range, up to the first one with a wrong checksum, or with offsets that
    cannot come after those of the previous batch.
    """
    limit = OFFSET_MAX if log.end is None else log.end - 1
    for table in walk.tables():
        ends = table.rows["last_offset"]
        rows = table.rows[(ends >= range_.first) & (ends <= range_.last)].copy()
        previous = np.concatenate([[before], rows["last_offset"][:-1]])
        is_wrong = (rows["crc_is_right"] == 0) | (rows["last_offset"] <= previous) | (rows["last_offset"] > limit)
        is_wrong |= (rows["magic"] >= layouts.MAGIC_V2) & (rows["offset_field"] <= previous)
        count = int(np.argmax(is_wrong)) if is_wrong.any() else len(rows)
        if count:
            yield rows[:count]
            before = int(rows["last_offset"][count - 1])
        if count < len(rows):
            raise MalformedRecordsError(int(rows["position"][count]), _what_is_wrong(rows[count]), "the next batch")


def _what_is_wrong(row: np.void) -> str:
    if not row["crc_is_right"]:
        return "a batch with a wrong checksum"
    return f"a batch of offsets {row['offset_field']} to {row['last_offset']}"


def _first_position(log: LogBytes, first: int) -> int:
    """The position of the first batch that ends at an offset or after it. Only headers are read."""
    walk = BatchWalk(log, 0, WantedRecords(first_offset=first), whole=False)
    for table in walk.tables():
        return int(table.rows["position"][0])
    return log.size


def _logs(directory: ListedDirectory) -> list[ReplicaLog]:
    names = {base: name for name in directory.files if (base := parse_segment_log(name)) is not None}
    bases = sorted(names)
    return [
        ReplicaLog(str(directory.path / names[base]), directory.files[names[base]].size or 0, base, end)
        for base, end in zip(bases, [*bases[1:], None][: len(bases)], strict=True)
    ]


def _ranges(pair: DirectoryPair, cleaned_to: int) -> Iterator[ReplicaRange]:
    """A partition's offsets, divided where segments of A begin, or segments of B if A has none."""
    one, other = _logs(pair.one), _logs(pair.other)
    logs = one or other
    starts = [start for start, _ in cut_by_weight([log.size for log in logs], _RANGE_BYTES)]
    firsts = [0, *(logs[start].base_offset for start in starts[1:])]
    for first, following in zip(firsts, [*firsts[1:], None], strict=True):
        last = OFFSET_MAX if following is None else following - 1
        sides = [_logs_in_range(logs, first, last) for logs in (one, other)]
        yield ReplicaRange(
            directory=pair.one.name,
            first=first,
            last=last,
            one=sides[0],
            other=sides[1],
            cleaned_to=cleaned_to,
            log_bytes=sum(log.size for logs in sides for log in logs),
        )


def _logs_in_range(logs: Sequence[ReplicaLog], first: int, last: int) -> list[ReplicaLog]:
    return [log for log in logs if log.base_offset <= last and (log.end is None or log.end > first)]


def _compare_in_workers(
    ranges: Sequence[ReplicaRange], engine: Engine
) -> tuple[dict[str, list[ReplicaRangeRow]], dict[str, list[BatchRangeRow]]]:
    """The rows of `COMPARED_REPLICAS`, by directory."""
    log_bytes = sum(range_.log_bytes for range_ in ranges)
    name, bins = f"compare-{uuid.uuid4().hex[:16]}", bins_of([range_.log_bytes for range_ in ranges], engine.cores)
    units = [[ranges[number] for number in bin_] for bin_ in bins]
    staged = run_comparison(
        Work(name, units, _compare_ranges, COMPARED_REPLICAS, is_small=reads_little(log_bytes, len(ranges))),
        engine,
        "comparing",
        so_far=lambda done: f"{done.log_bytes:,} bytes",
        segments=sum(len(range_.one) + len(range_.other) for range_ in ranges),
        log_bytes=log_bytes,
    )
    rows: dict[str, list[ReplicaRangeRow]] = defaultdict(list)
    batches: dict[str, list[BatchRangeRow]] = defaultdict(list)
    for row in ReplicaRangeRow.of_arrow(staged.rows("range")):
        rows[row.directory].append(row)
    for batch_range in BatchRangeRow.of_arrow(staged.rows("batches")):
        batches[batch_range.directory].append(batch_range)
    return rows, batches


def _compare_ranges(ranges: Iterable[ReplicaRange]) -> Iterator[ItemRows]:
    """Rows of `COMPARED_REPLICAS`."""
    for range_ in ranges:
        row, batches = _compare_range(range_)
        rows = [{"range": row.values()}, *({"batches": batch_range.values()} for batch_range in batches)]
        yield ItemRows(segments=len(range_.one) + len(range_.other), log_bytes=range_.log_bytes, rows=rows)


#: At most this many ranges of one kind have a finding each; one more finding counts the rest.
_RANGES_SHOWN: Final = 20


class ReplicaFindings:
    """The findings on a partition that both sides have, from the ranges that workers compared.

    Attributes:
        directory: the partition's name.
        one_end, other_end: where the logs of A and B end; None without a sound batch.
        cleaned_to: a cleaner has worked on one of the logs below this offset.
    """

    def __init__(
        self,
        pair: DirectoryPair,
        ranges: Sequence[ReplicaRangeRow],
        batches: Sequence[BatchRangeRow],
        *,
        as_copy: bool,
    ) -> None:
        """`batches` differ or are damaged; they and `ranges` are in the order of offsets. With `as_copy`, B is no other
        broker's replica, but a copy of A with other segments: B may have more offsets, and differs where a cleaner has
        changed A since.
        """
        self._pair, self._ranges, self._batches, self._as_copy = pair, ranges, batches, as_copy
        self.directory = pair.one.name
        self.one_end = max((row.a_end_offset for row in ranges if row.a_end_offset is not None), default=None)
        self.other_end = max((row.b_end_offset for row in ranges if row.b_end_offset is not None), default=None)
        self.cleaned_to = max((row.cleaned_to for row in ranges), default=0)
        self._damaged = {side: [row for row in batches if row.kind == f"damaged-{side}"] for side in ("a", "b")}
        self._lower_end = min(self.one_end or 0, self.other_end or 0)

    @property
    def same_batches(self) -> int:
        """The number of batches above the cleaned offsets that both sides have."""
        return sum(
            row.same_batches
            for row in self._ranges
            if row.cleaned_to == self.cleaned_to or row.first_offset >= self.cleaned_to
        )

    @property
    def same_to(self) -> int | None:
        """The offset up to which both sides are the same; None if none is, or if a cleaner has worked on a log."""
        if self.cleaned_to:
            return None
        differing = [row.first_offset for row in self._batches if row.kind != "neither"]
        return min([self._lower_end, *differing]) or None

    def findings(self) -> list[ComparisonFinding]:
        """All findings; none where both are the same to their ends."""
        findings = [*self._topic_findings(), *self._damage_findings(), *self._batch_findings()]
        return [*findings, self._cleaned_finding(findings)] if self.cleaned_to else findings

    def _topic_findings(self) -> Iterator[ComparisonFinding]:
        if (other_topic := self._pair.other_topic) is not None and not self._as_copy:
            yield self._finding(FindingKind.OTHER_ORIGIN, other_topic)

    def _damage_findings(self) -> Iterator[ComparisonFinding]:
        ends = max(self.one_end or 0, self.other_end or 0)
        for side, rows in self._damaged.items():
            for row in rows:
                first, last = row.first_offset, min(row.last_offset, ends - 1)
                offsets = f"offsets {first}–{last}" if first <= last else f"from offset {first} on"
                detail = f"{offsets}: {side.upper()} is damaged: {row.detail}"
                yield self._finding(FindingKind.NOT_COMPARABLE, detail, first, last if first <= last else None)

    def _batch_findings(self) -> Iterator[ComparisonFinding]:
        by_kind: dict[FindingKind, list[tuple[BatchRangeRow, str]]] = {}
        damaged = {"only-a": self._damaged["b"], "only-b": self._damaged["a"]}
        for batch_range in self._batches:
            row = _undamaged(batch_range, damaged.get(batch_range.kind, ()))
            if row is not None and (kind_and_detail := self._kind_and_detail(row)) is not None:
                kind, detail = kind_and_detail
                by_kind.setdefault(kind, []).append((row, detail))
        for kind, rows in by_kind.items():
            if kind is FindingKind.BEHIND:
                yield self._behind_finding([row for row, _ in rows])
                continue
            for row, detail in rows[:_RANGES_SHOWN]:
                yield self._finding(kind, detail, row.first_offset, row.last_offset, row.records)
            if len(rows) > _RANGES_SHOWN:
                last = rows[-1][0].last_offset
                detail = f"{counted(len(rows) - _RANGES_SHOWN, 'more range')} up to offset {last}"
                yield self._finding(kind, detail, rows[_RANGES_SHOWN][0].first_offset, last)

    def _kind_and_detail(self, row: BatchRangeRow) -> tuple[FindingKind, str] | None:
        """The finding on a range; None if there is none, or if the finding on another range covers it."""
        offsets = f"offsets {row.first_offset}–{row.last_offset}"
        records = "" if row.records is None else f", {counted(row.records, 'record')}"
        if row.kind == "differs":
            return FindingKind.DIFFERS, f"{offsets}: other batches than in A"
        if row.kind == "neither":
            if any(compared.has_inner_gaps for compared in self._ranges) or any(self._damaged.values()):
                return None  # a cleaner has removed them, or damage hides them
            return FindingKind.NEITHER, f"{offsets}: neither side has them; look for a replica that does"
        if row.kind == "only-a":
            if self._overlaps(row, "only-b"):
                return FindingKind.DIFFERS, f"{offsets}: other batches than in A"
            if row.first_offset >= (self.other_end or 0) > 0:
                return FindingKind.BEHIND, ""
            return FindingKind.LACKS, f"{offsets}{records}: B lacks them"
        if row.kind == "only-b" and not self._overlaps(row, "only-a"):
            if row.first_offset >= (self.one_end or 0):
                return FindingKind.ONLY_IN_B, f"{offsets}{records}, beyond the end of A"
            if self._as_copy:
                return FindingKind.ONLY_IN_B, f"{offsets}{records}, which A lacks"
            return FindingKind.LACKS, f"{offsets}{records}: B has them, and A lacks them"
        return None

    def _overlaps(self, row: BatchRangeRow, kind: str) -> bool:
        return any(
            other.kind == kind and other.first_offset <= row.last_offset and row.first_offset <= other.last_offset
            for other in self._batches
        )

    def _behind_finding(self, rows: Sequence[BatchRangeRow]) -> ComparisonFinding:
        records = [row.records for row in rows]
        total = None if None in records else sum(count or 0 for count in records)
        lacking = "an unknown number of records" if total is None else counted(total, "record")
        first, last = rows[0].first_offset, rows[-1].last_offset
        end, until = self.other_end or first, self.one_end or last + 1
        detail = f"B ends at offset {end} of {until}: {counted(until - end, 'offset')}, {lacking}"
        files = self._pair.one.files.items()
        begins = [parse_segment_log(name) for name, file in files if file.size]
        segments = sum(begin is not None and begin >= end for begin in begins)
        return replace(self._finding(FindingKind.BEHIND, detail, end, until - 1, total), segments=segments)

    def _cleaned_finding(self, others: Sequence[ComparisonFinding]) -> ComparisonFinding:
        until = min(self.cleaned_to, max(self.one_end or 0, self.other_end or 0))
        above = "B or A ends there, so that nothing was compared"
        if self._lower_end > until:
            above = "above it see the other lines" if others else f"above it the same up to offset {self._lower_end}"
        kind, why = FindingKind.CLEANED, ", as each broker compacts its own log"
        if self._as_copy:
            kind, why = FindingKind.NOT_COMPARABLE, ": a cleaner has left other batches in A than in B"
        return self._finding(kind, f"offsets below {until} are not comparable{why}; {above}", 0, until - 1)

    def _finding(
        self,
        kind: FindingKind,
        detail: str,
        first_offset: int | None = None,
        last_offset: int | None = None,
        records: int | None = None,
    ) -> ComparisonFinding:
        return ComparisonFinding(
            kind=kind,
            directory=self.directory,
            first_offset=first_offset,
            last_offset=last_offset,
            records=records,
            detail=detail,
        )


def _undamaged(row: BatchRangeRow, damaged: Sequence[BatchRangeRow]) -> BatchRangeRow | None:
    """The part of a range outside `damaged`, the damaged ranges of the other side; None if all of it is damaged."""
    first, last = row.first_offset, row.last_offset
    for damage in damaged:
        if damage.first_offset <= first <= damage.last_offset:
            first = damage.last_offset + 1
        if damage.first_offset <= last <= damage.last_offset:
            last = damage.first_offset - 1
    if first > last:
        return None
    is_unchanged = (first, last) == (row.first_offset, row.last_offset)
    return row if is_unchanged else replace(row, first_offset=first, last_offset=last, records=None)
