"""The findings on a partition of which both sides have a replica, from the ranges of offsets that workers compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kidxlib.catalog.results import BatchRangeRow, ReplicaRangeRow
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.operations.compare.finding import Finding, Kind
from kidxlib.operations.compare.known import DirectoryPair
from kidxlib.text.words import counted

#: So many ranges have a finding each; one more counts the rest.
_SHOWN: Final = 20


class ReplicaFindings:
    """
    Attributes:
        directory: the partition's name.
        one_end, other_end: where the logs end; None without a sound batch.
        cleaned_to: a cleaner has worked on one of the logs below it.
    """

    def __init__(
        self,
        pair: DirectoryPair,
        ranges: Sequence[ReplicaRangeRow],
        batches: Sequence[BatchRangeRow],
        *,
        as_copy: bool,
    ) -> None:
        """`ranges`, and the `batches` that differ or are damaged, are in the order of offsets. With `as_copy`, B is a
        copy of A in segments that are cut elsewhere, and no other broker's replica: it may have more, and differs where
        a cleaner has changed A since.
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
        """The number of batches that both have above what a cleaner has worked on."""
        return sum(
            row.same_batches
            for row in self._ranges
            if row.cleaned_to == self.cleaned_to or row.first_offset >= self.cleaned_to
        )

    @property
    def same_to(self) -> int | None:
        """The offset up to which both have the same; None where that is nothing, or a cleaner has worked on a log."""
        if self.cleaned_to:
            return None
        differing = [row.first_offset for row in self._batches if row.kind != "neither"]
        return min([self._lower_end, *differing]) or None

    def findings(self) -> list[Finding]:
        """All findings; none where both are the same to their ends."""
        findings = [*self._topic_findings(), *self._damage_findings(), *self._batch_findings()]
        return [*findings, self._cleaned_finding(findings)] if self.cleaned_to else findings

    def _topic_findings(self) -> Iterator[Finding]:
        one, other = self._pair.one.topic_id, self._pair.other.topic_id
        if one is not None and other is not None and one != other and not self._as_copy:
            detail = f"topic id {other}, in A {one}: another topic of the same name"
            yield self._finding(Kind.OTHER_ORIGIN, detail)

    def _damage_findings(self) -> Iterator[Finding]:
        ends = max(self.one_end or 0, self.other_end or 0)
        for side, rows in self._damaged.items():
            for row in rows:
                first, last = row.first_offset, min(row.last_offset, ends - 1)
                offsets = f"offsets {first}–{last}" if first <= last else f"from offset {first} on"
                detail = f"{offsets}: {side.upper()} is damaged: {row.detail}"
                yield self._finding(Kind.NOT_COMPARABLE, detail, first, last if first <= last else None)

    def _batch_findings(self) -> Iterator[Finding]:
        by_kind: dict[Kind, list[tuple[BatchRangeRow, str]]] = {}
        damaged = {"only-a": self._damaged["b"], "only-b": self._damaged["a"]}
        for batches in self._batches:
            row = _undamaged(batches, damaged.get(batches.kind, ()))
            if row is not None and (kind_and_detail := self._kind_and_detail(row)) is not None:
                kind, detail = kind_and_detail
                by_kind.setdefault(kind, []).append((row, detail))
        for kind, rows in by_kind.items():
            if kind is Kind.BEHIND:
                yield self._behind_finding([row for row, _ in rows])
                continue
            for row, detail in rows[:_SHOWN]:
                yield self._finding(kind, detail, row.first_offset, row.last_offset, row.records)
            if len(rows) > _SHOWN:
                last = rows[-1][0].last_offset
                detail = f"{counted(len(rows) - _SHOWN, 'more range')} up to offset {last}"
                yield self._finding(kind, detail, rows[_SHOWN][0].first_offset, last)

    def _kind_and_detail(self, row: BatchRangeRow) -> tuple[Kind, str] | None:
        """The finding on a range; None where that on another range covers it."""
        offsets = f"offsets {row.first_offset}–{row.last_offset}"
        records = "" if row.records is None else f", {counted(row.records, 'record')}"
        if row.kind == "differs":
            return Kind.DIFFERS, f"{offsets}: other batches than in A"
        if row.kind == "neither":
            if any(compared.has_inner_gaps for compared in self._ranges) or any(self._damaged.values()):
                return None  # a cleaner has removed them; or nobody can tell
            return Kind.NEITHER, f"{offsets}: neither side has them; look for a replica that does"
        if row.kind == "only-a":
            if self._overlaps(row, "only-b"):
                return Kind.DIFFERS, f"{offsets}: other batches than in A"
            if row.first_offset >= (self.other_end or 0) > 0:
                return Kind.BEHIND, ""
            return Kind.LACKS, f"{offsets}{records}: B lacks them"
        if row.kind == "only-b" and not self._overlaps(row, "only-a"):
            if row.first_offset >= (self.one_end or 0):
                return Kind.ONLY_IN_B, f"{offsets}{records}, beyond the end of A"
            if self._as_copy:
                return Kind.ONLY_IN_B, f"{offsets}{records}, which A lacks"
            return Kind.LACKS, f"{offsets}{records}: B has them, and A lacks them"
        return None

    def _overlaps(self, row: BatchRangeRow, kind: str) -> bool:
        return any(
            batches.kind == kind and batches.first_offset <= row.last_offset and row.first_offset <= batches.last_offset
            for batches in self._batches
        )

    def _behind_finding(self, rows: Sequence[BatchRangeRow]) -> Finding:
        records = [row.records for row in rows]
        total = None if None in records else sum(count or 0 for count in records)
        of_records = "an unknown number of records" if total is None else counted(total, "record")
        first, last = rows[0].first_offset, rows[-1].last_offset
        end, until = self.other_end or first, self.one_end or last + 1
        detail = f"B ends at offset {end} of {until}: {counted(until - end, 'offset')}, {of_records}"
        files = self._pair.one.files.items()
        begins = [parse_segment_log(name) for name, file in files if file.size]
        segments = sum(begin is not None and begin >= end for begin in begins)
        return replace(self._finding(Kind.BEHIND, detail, end, until - 1, total), segments=segments)

    def _cleaned_finding(self, others: Sequence[Finding]) -> Finding:
        until = min(self.cleaned_to, max(self.one_end or 0, self.other_end or 0))
        above = "B or A ends there, so that nothing was compared"
        if self._lower_end > until:
            above = "above it see the other lines" if others else f"above it the same up to offset {self._lower_end}"
        kind, why = Kind.CLEANED, ", as each broker compacts its own log"
        if self._as_copy:
            kind, why = Kind.NOT_COMPARABLE, ": a cleaner has left other batches in A than in B"
        return self._finding(kind, f"offsets below {until} are not comparable{why}; {above}", 0, until - 1)

    def _finding(
        self,
        kind: Kind,
        detail: str,
        first_offset: int | None = None,
        last_offset: int | None = None,
        records: int | None = None,
    ) -> Finding:
        return Finding(
            kind=kind,
            directory=self.directory,
            first_offset=first_offset,
            last_offset=last_offset,
            records=records,
            detail=detail,
        )


def _undamaged(row: BatchRangeRow, damaged: Sequence[BatchRangeRow]) -> BatchRangeRow | None:
    """The part of a range where the other side, damaged at `damaged`, can be compared; None where there is none."""
    first, last = row.first_offset, row.last_offset
    for damage in damaged:
        if damage.first_offset <= first <= damage.last_offset:
            first = damage.last_offset + 1
        if damage.first_offset <= last <= damage.last_offset:
            last = damage.first_offset - 1
    if first > last:
        return None
    is_all = (first, last) == (row.first_offset, row.last_offset)
    return row if is_all else replace(row, first_offset=first, last_offset=last, records=None)
