"""Compares the replicas that the sources of a catalog have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from kidxlib.catalog.conditions import PRESENT
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.compare.replicas.copies import Copies
from kidxlib.operations.compare.replicas.first_difference import SegmentToWalk, with_first_offset
from kidxlib.operations.compare.replicas.pairs import Bounds, Pairs, compacted_by
from kidxlib.operations.compare.replicas.ranges import Segments
from kidxlib.operations.compare.replicas.verdict import Difference, EpochDifference, Lack, ReplicaVerdict, Verdict
from kidxlib.tables.protocol import TablesToRead
from kidxlib.tables.scope import scope_of

#: So many differences are looked for in logs, if nobody says how many.
WALKS: Final = 100


def compare_replicas(
    tables: TablesToRead,
    *,
    sources: Collection[str] | None = None,
    compacted: Collection[str] = (),
    walks: int = WALKS,
) -> list[ReplicaVerdict]:
    """Say of each partition that several sources have whether its replicas are the same.

    The catalog alone is asked, and of replicas that differ their logs: where both lie on this machine as the catalog
    knows them, the headers of their batches are read for the first offset that differs.

    Args:
        tables: of a catalog.
        sources: those of brokers; None for all sources.
        compacted: topics of which a policy says that they are compacted. Others are known by `cleaner_offset`, or by
            offsets that segments of all their replicas lack.
        walks: so many differences at most are looked for in logs, the first ones.

    Returns:
        One for each replica but the one that those of its partition are compared with: one of those of which most
        agree; of these the one whose log ends last, then the first by the name of its source. In the order of topics,
        partitions and sources.

    Raises:
        CatalogError: the catalog cannot be read.
    """
    copies = Copies.read(tables, sources)
    if not copies.groups:
        return []
    found = [each for part in copies.parts(tables) for each in _verdicts(tables, part, frozenset(compacted))]
    return _with_first_offsets(tables, found, walks)


def _verdicts(tables: TablesToRead, copies: Copies, compacted: frozenset[str]) -> list[ReplicaVerdict]:
    """What the catalog says of copies."""
    segments = Segments.read(tables, copies.rows)
    bounds = Bounds.of(copies, segments)
    by = compacted_by(copies, bounds, compacted)
    compared = _Compared(copies.rows, bounds, by, Pairs.of(copies, segments, bounds, by))
    return [verdict for group in copies.groups for verdict in compared.verdicts(*group)]


class _Compared:
    """Copies, and what was found of each pair of them."""

    def __init__(self, rows: pa.Table, bounds: Bounds, compacted: Sequence[str | None], pairs: Pairs) -> None:
        names = ("topic", "partition", "topic_id", "source")
        self._keys = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
        self._starts, self._ends = bounds.start.tolist(), bounds.end.tolist()
        self._log_ends, self._records = bounds.log_end.tolist(), bounds.records.tolist()
        self._compacted = compacted
        fields = pairs.found.dtype.names or ()
        self._found = {
            (one, other): dict(zip(fields, values, strict=True))
            for (one, other), values in zip(pairs.pairs[["one", "other"]].tolist(), pairs.found.tolist(), strict=True)
        }

    def verdicts(self, first: int, end: int) -> list[ReplicaVerdict]:
        """What is said of the copies of one partition, by their numbers."""
        numbers = range(first, end)
        agreeing = {
            number: [other for other in numbers if other == number or self._agree(number, other)] for number in numbers
        }
        best = min(numbers, key=lambda number: (-len(agreeing[number]), -self._log_ends[number], number))
        return [self._verdict(number, best, agreeing[best], len(numbers)) for number in numbers if number != best]

    def _agree(self, one: int, other: int) -> bool:
        found = self._found[min(one, other), max(one, other)]
        lacks = found["one_lacks"] or found["other_lacks"]
        return self._why_nothing(one, other) is None and not (found["ranges"] or lacks or found["epochs_disagree"])

    def _verdict(self, number: int, best: int, agreeing: Sequence[int], copies: int) -> ReplicaVerdict:
        topic, partition, topic_id, source = self._keys[number]
        found = self._found[min(number, best), max(number, best)]
        first, end = max(self._starts[number], self._starts[best]), min(self._ends[number], self._ends[best])
        nothing, undecided = self._why_nothing(number, best), found["straddling"] + found["unknown"]
        behind = max(self._log_ends[best] - self._log_ends[number], 0)
        records, other_records = (None if each < 0 else each for each in (self._records[number], self._records[best]))
        lacks = _lack(found, self._keys[min(number, best)][-1], self._keys[max(number, best)][-1])
        compared_to = None if nothing else end - found["straddling"]
        verdict, reason = self._of_ends(number, best, found, None if undecided else compared_to)
        if nothing is not None:
            verdict, reason = Verdict.BEHIND if behind else Verdict.NOT_COMPARABLE, nothing
        if lacks is not None:
            verdict = Verdict.LACKS
        if found["epochs_disagree"]:
            verdict = Verdict.EPOCHS_DISAGREE
        if found["ranges"] > found["lacks_inside"]:
            verdict = Verdict.DIFFERS
        return ReplicaVerdict(
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            source=source,
            compared_with=self._keys[best][-1],
            agreeing=[self._keys[each][-1] for each in agreeing],
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
            difference=_difference(found),
            epochs=_epochs(found, number < best),
            reason=reason,
        )

    def _of_ends(
        self, number: int, best: int, found: Mapping[str, Any], compared_to: int | None
    ) -> tuple[Verdict, str | None]:
        """What is said of a copy that has no other batches, by how far it was compared.

        Args:
            compared_to: None where digests could not tell of all.
        """
        behind = self._log_ends[best] > self._log_ends[number]
        if found["unknown"]:
            return Verdict.NOT_COMPARABLE, _why_undecided(found)
        if behind:
            return Verdict.BEHIND, _why_undecided(found) or None
        if self._compacted[number] is not None:
            same = self._records[number] == self._records[best]
            numbers = "both have the same number of records" if same else "their numbers of records differ, as may be"
            return Verdict.NOT_COMPARABLE, f"each broker compacts its own log; {numbers}"
        if compared_to is None or compared_to < self._log_ends[number]:
            return Verdict.SAME_UP_TO, _why_undecided(found) or "what follows is not known to be committed"
        if self._starts[number] > self._starts[best]:
            start, source = self._starts[best], self._keys[best][-1]
            return Verdict.SAME_UP_TO, f"its log starts at {self._starts[number]}, that of {source} at {start}"
        return Verdict.SAME, None

    def _why_nothing(self, one: int, other: int) -> str | None:
        """Why two copies have no offsets in common; None where they have."""
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


def _why_undecided(found: Mapping[str, Any]) -> str:
    parts = []
    if found["straddling"]:
        parts.append(f"digests of {found['straddling']} offsets cover others too, beyond log starts or high watermarks")
    if found["unknown"]:
        parts.append(f"{found['unknown']} offsets have no digest in the catalog, or their log is damaged there")
    return "; ".join(parts)


def _lack(found: Mapping[str, Any], one: str, other: str) -> Lack | None:
    for side, source in (("one", one), ("other", other)):
        if ranges := found[f"{side}_lacks"]:
            first, last = found[f"{side}_lacks_first"], found[f"{side}_lacks_last"]
            return Lack(source=source, first_offset=first, last_offset=last, ranges=ranges)
    return None


def _difference(found: Mapping[str, Any]) -> Difference | None:
    if not found["ranges"]:
        return None
    return Difference(first_offset=found["first_offset"], last_offset=found["last_offset"], ranges=found["ranges"])


def _epochs(found: Mapping[str, Any], is_one: bool) -> EpochDifference | None:
    if not found["epochs_disagree"]:
        return None
    one, other = found["one_epoch"], found["other_epoch"]
    epoch, other_epoch = (one, other) if is_one else (other, one)
    return EpochDifference(offset=found["epoch_offset"], epoch=epoch, other_epoch=other_epoch)


_Place = tuple[str, str, int]


def _with_first_offsets(tables: TablesToRead, verdicts: list[ReplicaVerdict], walks: int) -> list[ReplicaVerdict]:
    """The verdicts, with what logs tell of the first so many differences."""
    numbers = [number for number, verdict in enumerate(verdicts) if verdict.difference is not None]
    walked, others = numbers[:walks], numbers[walks:]
    segments = _segments(tables, {place for number in walked for place in _places(verdicts[number])})
    found = list(verdicts)
    for number in numbers:
        verdict = verdicts[number]
        assert verdict.difference is not None
        if number in others:
            note = f"not looked for in the logs: it is not among the first {walks}"
            difference = replace(verdict.difference, note=note)
        else:
            difference = with_first_offset(verdict.difference, *(segments[place] for place in _places(verdict)))
        found[number] = replace(verdict, difference=difference)
    return found


def _places(verdict: ReplicaVerdict) -> tuple[_Place, _Place]:
    of_partition = verdict.topic, verdict.partition
    return (verdict.source, *of_partition), (verdict.compared_with, *of_partition)


def _segments(tables: TablesToRead, places: Collection[_Place]) -> Mapping[_Place, Sequence[SegmentToWalk]]:
    """The segments of partitions of sources, in the order of offsets."""
    found: dict[_Place, list[SegmentToWalk]] = defaultdict(list)
    if places:
        keys = [dict(zip(PARTITIONS.key, place, strict=True)) for place in sorted(places)]
        wanted = pa.Table.from_pylist(keys, PARTITIONS.schema(PARTITIONS.key))
        where = [*scope_of({"wanted": wanted}, PARTITIONS.key), PRESENT]
        for row in SegmentToWalk.of_arrow(tables.read(SEGMENTS, SegmentToWalk.names(), where).sort_by("base_offset")):
            found[row.source, row.topic, row.partition].append(row)
    return found
