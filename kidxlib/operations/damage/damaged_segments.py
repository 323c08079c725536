"""Finds the damaged segments of a catalog, by builds or by the last audits, and which of them somebody has accepted.

A run does not read unchanged segments again. So a run that reports only what it has read itself would report a damaged
source as free of problems the second time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import ALSO, Verdict
from kidxlib.catalog.conditions import Among, Condition
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.matching import Values, differing, flags_of, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.indexing.build_counts import PROBLEMS_KEPT, SegmentProblem
from kidxlib.operations.damage.acceptance_rule import (
    COLUMNS,
    SEGMENT_COLUMNS,
    VERSION_NAMES,
    findings_of_audits,
    findings_of_segments,
    match_acceptances,
)
from kidxlib.operations.damage.gaps import KnownGaps
from kidxlib.operations.damage.lost import Lost
from kidxlib.recovery.outcome import ABSENT, END_REASONS, Status
from kidxlib.tables.protocol import Tables, scope_of

#: The status under which damaged segments are counted that somebody has accepted.
ACCEPTED_STATUS: Final = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment(SegmentProblem):
    """A damaged segment, and who has accepted it, if anybody."""

    accepted_by: str | None
    accepted_at: datetime | None
    accepted_reason: str | None

    @property
    def is_accepted(self) -> bool:
        return self.accepted_by is not None

    @property
    def line(self) -> str:
        return f"{self.status}: {self.log_path}: byte {self.reason_position or 0}: {self.reason}: {self.reason_detail}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "accepted_at": self.accepted_at and self.accepted_at.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDamage:
    """The damage that a catalog knows.

    Attributes:
        segments: the number of segments of the whole catalog, by source and status; accepted ones count as
            `ACCEPTED_STATUS`.
        damaged: the number of segments of the wanted sources and topics that are damaged and not accepted.
        accepted: the number of these that are damaged and accepted.
        listed: the first of both, those that are not accepted first; at most `PROBLEMS_KEPT`.
        gaps: the gaps between the logs of these sources and topics.
        lost: partitions, starts and ends of logs that their log dirs have lost.
        by_audits: logs that builds found whole and that the last audit found broken, as they still are; in the order of
            keys, without accepted ones. Their status is the audit's verdict.
    """

    segments: Mapping[tuple[str, str], int] = field(default_factory=dict)
    damaged: int = 0
    accepted: int = 0
    listed: Sequence[DamagedSegment] = ()
    gaps: KnownGaps = field(default_factory=KnownGaps)
    lost: Lost = field(default_factory=Lost)
    by_audits: Sequence[DamagedSegment] = ()

    def present(self, source: str) -> int:
        """The number of a source's segments that are present by the catalog."""
        return sum(count for (name, status), count in self.segments.items() if name == source and status not in ABSENT)

    @property
    def figures(self) -> dict[tuple[str, str], int]:
        """`segments` with zeros for metrics: a metric that disappears would look as if nobody had measured it."""
        statuses = (*(status.value for status in Status), ACCEPTED_STATUS)
        sources = sorted({source for source, _ in self.segments})
        return {(source, status): self.segments.get((source, status), 0) for source in sources for status in statuses}

    @property
    def counts(self) -> dict[str, int]:
        return {
            "damaged": self.damaged,
            "accepted": self.accepted,
            **self.gaps.counts,
            **self.lost.counts,
            "broken_by_audits": len(self.by_audits),
        }

    def as_json(self) -> dict[str, Any]:
        segments = [segment.as_json() for segment in self.listed]
        of_segments = {"damaged": self.damaged, "accepted": self.accepted, "segments": segments}
        by_audits = [segment.as_json() for segment in self.by_audits[:PROBLEMS_KEPT]]
        return {**of_segments, **self.gaps.as_json(), **self.lost.as_json(), "broken_by_audits": by_audits}

    @property
    def is_loss(self) -> bool:
        """Whether something is damaged or missing that nobody has accepted."""
        return bool(self.damaged or self.by_audits or self.gaps.found.lost or self.lost.is_loss)

    def lines(self, *, many_sources: bool, named: Collection[str] = ()) -> Iterator[str]:
        """The lines on screen; none without damage. `named` are logs that the run has named already."""
        yield from self.lost.lines(many_sources=many_sources)
        yield from self.gaps.lines(many_sources=many_sources)
        if self.damaged:
            more = f", and {self.accepted:,} accepted" if self.accepted else ""
            first = self.listed[0]
            which = "the first is named above" if first.log_path in named else f"the first is {first.line}"
            yield f"damaged: {_segments(self.damaged)} of the catalog{more}; {which}"
            yield (
                "  all of them: --json, or in the catalog SELECT * FROM segments WHERE status NOT IN "
                "('ok', 'gone', 'deleted'); kidx accept records that one may stay as it is"
            )
        elif self.accepted:
            first = self.listed[0]
            yield (
                f"accepted: {_segments(self.accepted)} of the catalog, damaged; the first is {first.line} "
                f"(by {first.accepted_by}: {first.accepted_reason})"
            )
        if self.by_audits:
            broken = _segments(len(self.by_audits))
            yield (
                f"broken: {broken} by the last audit, and not read again, as no log has changed; the first is "
                f"{self.by_audits[0].line}; kidx verify says what comes of it"
            )


def _segments(count: int) -> str:
    return f"{count:,} segment{'s' if count != 1 else ''}"


#: The condition on rows of `segments` that the segment is damaged.
DAMAGED: Final = Among("status", (Status.OK.value, *(status.value for status in ABSENT)), negated=True)
_COLUMNS: Final = (*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail", "log_path")
_ACCEPTANCE: Final = ("accepted_by", "accepted_at", "accepted_reason")

_ABSENT: Final = Among("status", tuple(status.value for status in ABSENT))


def known_damage(
    tables: Tables, sources: Collection[str], topics: re.Pattern[str], gone: pa.Table | None = None
) -> KnownDamage:
    """The damage that a catalog knows of some sources and topics, and its segments by status.

    `gone` has the keys of segments that a listing did not find, if the catalog does not say so yet.
    """
    counts = tables.counts(SEGMENTS, ["source", "status"]).to_pylist()
    segments = Counter({(row["source"], row["status"]): row["rows"] for row in counts})
    damaged = tables.read(SEGMENTS, SEGMENT_COLUMNS, [DAMAGED])
    if gone is not None and gone.num_rows:
        damaged = damaged.filter(positions_in(damaged, gone, SEGMENTS.key) < 0)
    if not damaged.num_rows:
        return KnownDamage(segments=segments)
    of_catalog = [DamagedSegment(**row) for row in _with_acceptances(tables, damaged).to_pylist()]
    for row in of_catalog:
        if row.is_accepted:
            segments[row.source, row.status] -= 1
            segments[row.source, ACCEPTED_STATUS] += 1
    asked = [row for row in of_catalog if row.source in sources and topics.fullmatch(row.topic)]
    asked.sort(key=lambda row: (row.is_accepted, row.source, row.topic, row.partition, row.base_offset))
    accepted = sum(row.is_accepted for row in asked)
    return KnownDamage(
        segments=segments, damaged=len(asked) - accepted, accepted=accepted, listed=asked[:PROBLEMS_KEPT]
    )


def _with_acceptances(tables: Tables, damaged: pa.Table) -> pa.Table:
    """The columns of `DamagedSegment`, with the acceptances that still hold."""
    accepted = tables.read(ACCEPTED, [*COLUMNS, *_ACCEPTANCE], [Among("file", (LOG_SUFFIX,))])
    matched = match_acceptances(findings_of_segments(damaged), accepted)
    places: Values = pa.array(np.maximum(matched.at, 0), mask=~matched.is_accepted)
    rows, acceptances = damaged.select(_COLUMNS), accepted.take(places)
    for name in _ACCEPTANCE:
        rows = rows.append_column(name, acceptances[name])
    return rows


def broken_by_audits(tables: Tables, sources: Collection[str], topics: re.Pattern[str]) -> list[DamagedSegment]:
    """The logs that a build found whole, that the last audit of their partition found broken, and that have not changed
    since; accepted ones are left out. The disk may have changed a byte after the build, and no build reads such a log
    again.

    Findings on how a log follows other logs are left out: a build looks for gaps and ends itself, and an overlap
    belongs to the other log.
    """
    is_broken = (Among("verdict", (Verdict.BROKEN.value,)), Among("file", (LOG_SUFFIX,)))
    names = [*SEGMENTS.key, "file", "reason", "position", "detail", "consequence", "verdict", "path", *VERSION_NAMES]
    findings = last_findings(tables, sources, is_broken, names)
    is_asked = [topics.fullmatch(str(topic)) is not None for topic in findings["topic"].to_pylist()]
    findings = findings.filter(pc.and_(pa.array(is_asked, pa.bool_()), _is_of_own_bytes(findings)))
    if not findings.num_rows:
        return []
    rows = tables.read(
        SEGMENTS, [*SEGMENTS.key, "status", *LogVersion.names()], scope_of({"found": findings}, SEGMENTS.key)
    )
    at = positions_in(findings, rows, SEGMENTS.key)
    places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
    segments = rows.take(places).rename_columns([*SEGMENTS.key, "status", *VERSION_NAMES])
    is_whole = flags_of(pc.equal(segments["status"], pa.scalar(Status.OK.value)))
    findings = findings.filter(pa.array((at >= 0) & is_whole & ~differing(findings, segments, VERSION_NAMES)))
    accepted = tables.read(ACCEPTED, COLUMNS, [Among("file", (LOG_SUFFIX,))])
    findings = findings.filter(pa.array(~match_acceptances(findings_of_audits(findings), accepted).is_accepted))
    logs = [
        DamagedSegment(
            **{name: row[name] for name in (*SEGMENTS.key, "reason")},
            status=row["verdict"],
            reason_position=row["position"],
            reason_detail=row["detail"],
            log_path=row["path"],
            accepted_by=None,
            accepted_at=None,
            accepted_reason=None,
        )
        for row in findings.to_pylist()
    ]
    return sorted(logs, key=lambda log: (log.source, log.topic, log.partition, log.base_offset))


def _is_of_own_bytes(findings: pa.Table) -> Values:
    """Flags of the findings on logs that are about the log's own bytes."""
    also: Values = pc.match_substring_regex(findings["detail"], f"{ALSO}({'|'.join(END_REASONS)})")
    is_end: Values = pc.is_in(findings["reason"], value_set=pa.array(END_REASONS))
    either: Values = pc.or_(is_end, also.fill_null(pa.scalar(False)))
    return either


def last_findings(
    tables: Tables, sources: Collection[str], where: Sequence[Condition], names: Sequence[str]
) -> pa.Table:
    """Rows of `findings` by the last audit of each partition; an audit of other topics does not count. Segments that
    are missing from their source are left out.
    """
    key, of_sources = list(PARTITIONS.key), Among("source", tuple(sources))
    wanted = FINDINGS.schema(names).names
    read = FINDINGS.schema({*wanted, *SEGMENTS.key, "audit_id"}).names
    findings = tables.read(FINDINGS, read, [of_sources, *where])
    if not findings.num_rows:
        return findings.select(wanted)
    scope = scope_of({"found": findings}, key)
    audits = tables.read(FINDINGS, [*key, "audited_at", "audit_id"], scope)
    audits = audits.sort_by([("audited_at", "ascending"), ("audit_id", "ascending")])
    last = audits.group_by(key, use_threads=False).aggregate([("audit_id", "last")])
    last_of = last["audit_id_last"].take(positions_in(findings, last, key))
    findings = findings.filter(pc.equal(findings["audit_id"], last_of))
    gone = tables.read(SEGMENTS, SEGMENTS.key, [*scope, _ABSENT])
    return findings.filter(pa.array(positions_in(findings, gone, SEGMENTS.key) < 0)).select(wanted)


def audited_sources(tables: Tables) -> list[str]:
    return [str(source) for source in pc.unique(tables.read(FINDINGS, ["source"])["source"]).to_pylist()]
