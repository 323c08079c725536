"""The gaps between a catalog's logs, and which of them somebody has accepted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.gaps import FACTS, GAP, Directories, FoundGaps, Gap, PolicyOf, gaps_in
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.damage.acceptance_rule import COLUMNS, findings_of, match_acceptances
from kidxlib.recovery.outcome import Status
from kidxlib.run.known_topics import KnownTopics
from kidxlib.storage.location import location
from kidxlib.tables.protocol import TablesToRead
from kidxlib.terminal.run_summary import gap_lines

#: The columns that are read of all segments. For topics with gaps, the other columns of `FACTS` are read, too.
_FIRST: Final = tuple(name for name in FACTS if name not in ("topic_id", "log_bytes"))


@dataclass(frozen=True, slots=True)
class AcceptedGap:
    gap: Gap
    accepted_by: str
    accepted_reason: str

    @property
    def line(self) -> str:
        gap = self.gap
        return f"{gap.name}: {gap.detail} (by {self.accepted_by}: {self.accepted_reason})"


@dataclass(frozen=True, slots=True)
class KnownGaps:
    """
    Attributes:
        found: gaps that nobody has accepted, and gaps that are explained.
        accepted: in the order of source, topic, partition and offset.
    """

    found: FoundGaps = field(default_factory=FoundGaps)
    accepted: tuple[AcceptedGap, ...] = ()

    @property
    def all_lost(self) -> list[Gap]:
        """The gaps that nothing explains, accepted or not."""
        return [*self.found.lost, *(accepted.gap for accepted in self.accepted)]

    @property
    def counts(self) -> dict[str, int]:
        return {"gaps": len(self.found.lost), "gaps_accepted": len(self.accepted)}

    def as_json(self) -> dict[str, Any]:
        return {
            **self.found.as_json(),
            "gaps_accepted": [
                {
                    **accepted.gap.as_json(),
                    "accepted_by": accepted.accepted_by,
                    "accepted_reason": accepted.accepted_reason,
                }
                for accepted in self.accepted
            ],
        }

    def lines(self, *, many_sources: bool) -> Iterator[str]:
        """A line for each topic with lost offsets, one with the number of explained gaps, one on accepted gaps, and one
        for each accepted gap whose log has come back under another name.
        """
        yield from gap_lines(self.found, many_sources=many_sources)
        if self.accepted:
            more = f"; {len(self.accepted) - 1:,} more" if len(self.accepted) > 1 else ""
            yield f"accepted: {self.accepted[0].line}{more}"
        for accepted in self.accepted:
            if accepted.gap.remedy is not None:
                yield f"noted: {accepted.gap.name}: the gap is accepted, and {accepted.gap.remedy}"


def known_logs(
    tables: TablesToRead, sources: Collection[str], topics: re.Pattern[str], gone: pa.Table | None = None
) -> pa.Table:
    """`FACTS` of the segments that the catalog has of some sources and topics, null those that `_FIRST` lacks.

    `gone` has the keys of segments that a listing did not find, if the catalog does not say so yet.
    """
    rows = tables.read(SEGMENTS, _FIRST, [Among("source", tuple(sources))])
    names = [topic for topic in map(str, pc.unique(rows["topic"]).to_pylist()) if topics.fullmatch(topic)]
    rows = rows.filter(pc.is_in(rows["topic"], value_set=pa.array(names, pa.string())))
    if gone is not None and gone.num_rows:
        is_gone: Values = pa.array(positions_in(rows, gone, SEGMENTS.key) >= 0)
        status: Values = pc.if_else(is_gone, Status.GONE.value, rows["status"])
        rows = rows.set_column(rows.schema.get_field_index("status"), "status", status)
    for name in set(FACTS) - {*_FIRST}:
        kind = SEGMENTS.schema().field(name).type
        rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    return rows


def gaps_between(tables: TablesToRead, rows: pa.Table, policy_of: PolicyOf, directories: Directories) -> KnownGaps:
    """The gaps between the logs that `known_logs` returned."""
    found = gaps_in(rows, policy_of, directories)
    if not found.lost:
        return KnownGaps(found)
    found = found.with_known(tables.read(SEGMENTS, FACTS, [Among("topic", sorted({gap.topic for gap in found.lost}))]))
    return _with_accepted(tables, found)


def recorded_policies_and_directories(
    tables: TablesToRead, sources: Collection[str], known: KnownTopics
) -> tuple[PolicyOf, Directories]:
    """What explains gaps of recorded sources: the policies of topics, and the directories of partitions."""
    rows = tables.read(PARTITIONS, [*PARTITIONS.key, "topic_id", "directory"], [Among("source", tuple(sources))])
    partitions = rows.to_pylist()
    directories = {tuple(row[name] for name in PARTITIONS.key): location(row["directory"]) for row in partitions}
    policy_of = known.policy_of((row["source"], row["topic"], row["topic_id"]) for row in partitions)
    return policy_of, Directories(directories)


def _with_accepted(tables: TablesToRead, found: FoundGaps) -> KnownGaps:
    accepted = tables.read(ACCEPTED, [*COLUMNS, "accepted_by", "accepted_reason"], [Among("file", (GAP,))])
    at = match_acceptances(findings_of(_as_finding(gap) for gap in found.lost), accepted).at
    acceptances = accepted.select(["accepted_by", "accepted_reason"]).to_pylist()
    matched = list(zip(found.lost, at, strict=True))
    lost = tuple(gap for gap, number in matched if number < 0)
    return KnownGaps(
        replace(found, lost=lost),
        tuple(AcceptedGap(gap, **acceptances[number]) for gap, number in matched if number >= 0),
    )


def _as_finding(gap: Gap) -> dict[str, Any]:
    key = dict(zip(SEGMENTS.key, (*gap.partition_key, gap.first_offset), strict=True))
    return {**key, "file": GAP, "found": gap.finding.verdict.value, "detail": gap.detail}
