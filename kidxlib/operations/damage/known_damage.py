"""The damage that a catalog knows: damaged segments by builds or by the last audits, gaps between logs, and what log
dirs have lost; and which of it somebody has accepted. A build tells of it (`KnownDamage`), a plan or a report names
what is missing (`KnownGapsAndLosses`), and `kidx accept` asks for what is new (`NewDamage`).

A run does not read unchanged segments again. So a run that reports only what it has read itself would report a damaged
source as free of problems the second time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import ALSO, Verdict
from kidxlib.audit.gaps import FACTS, GAP, FoundGaps, Gap, GapEvidence, PolicyOf, gaps_in
from kidxlib.catalog.conditions import Among, Condition, scope_of
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.matching import Values, differing, flags_of, positions_in, taken_at
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.indexing.build_counts import PROBLEMS_KEPT, SegmentProblem
from kidxlib.operations.damage.acceptances import (
    ACCEPTABLE,
    MATCHED_COLUMNS,
    SEGMENT_COLUMNS,
    VERSION_NAMES,
    AcceptableDamage,
    Acceptance,
    Selected,
    file_version_now,
    findings_of_audits,
    findings_of_rows,
    findings_of_segments,
    match_acceptances,
    recorded_acceptances,
)
from kidxlib.operations.damage.lost import ExpectedInLogDirs, Lost, NotBuilt
from kidxlib.recovery.outcome import ABSENT, END_REASONS, Status
from kidxlib.run.known_topics import KnownTopics, read_known_topics
from kidxlib.run.sources import ListedSources, SourceNotReached, as_sources, source_paths
from kidxlib.storage.location import location
from kidxlib.tables.protocol import Tables, TablesToRead
from kidxlib.terminal.console import warn
from kidxlib.terminal.run_summary import gap_lines
from kidxlib.text.words import counted

#: The status under which damaged segments are counted that somebody has accepted.
ACCEPTED_STATUS: Final = "accepted"

#: The condition on rows of `segments` that the segment is damaged.
DAMAGED: Final = Among("status", (Status.OK.value, *(status.value for status in ABSENT)), negated=True)
_COLUMNS_OF_DAMAGED: Final = (*SEGMENTS.key, "status", "reason", "reason_position", "reason_detail", "log_path")
_ACCEPTANCE: Final = ("accepted_by", "accepted_at", "accepted_reason")

_ABSENT: Final = Among("status", tuple(status.value for status in ABSENT))

#: The columns that are read of all segments. For topics with gaps, the other columns of `FACTS` are read, too.
_COLUMNS_OF_ALL: Final = tuple(name for name in FACTS if name not in ("topic_id", "log_bytes"))

_OF_FINDINGS: Final = FINDINGS.schema(AcceptableDamage.__dataclass_fields__.keys()).names


@dataclass(frozen=True, slots=True)
class KnownAcceptedGap:
    """A gap between logs by the catalog, and who has accepted it."""

    gap: Gap
    accepted_by: str
    accepted_reason: str

    @property
    def line(self) -> str:
        gap = self.gap
        return f"{gap.name}: {gap.detail} (by {self.accepted_by}: {self.accepted_reason})"


@dataclass(frozen=True, slots=True)
class KnownGaps:
    """The gaps between logs that a catalog knows.

    Attributes:
        found: gaps that nobody has accepted, and gaps that are explained.
        accepted: in the order of source, topic, partition and offset.
    """

    found: FoundGaps = field(default_factory=FoundGaps)
    accepted: tuple[KnownAcceptedGap, ...] = ()

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
            yield f"damaged: {counted(self.damaged, 'segment')} of the catalog{more}; {which}"
            yield (
                "  all of them: --json, or in the catalog SELECT * FROM segments WHERE status NOT IN "
                "('ok', 'gone', 'deleted'); kidx accept records that one may stay as it is"
            )
        elif self.accepted:
            first = self.listed[0]
            yield (
                f"accepted: {counted(self.accepted, 'segment')} of the catalog, damaged; the first is {first.line} "
                f"(by {first.accepted_by}: {first.accepted_reason})"
            )
        if self.by_audits:
            broken = counted(len(self.by_audits), "segment")
            yield (
                f"broken: {broken} by the last audit, and not read again, as no log has changed; the first is "
                f"{self.by_audits[0].line}; kidx verify says what comes of it"
            )


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
    accepted = tables.read(ACCEPTED, [*MATCHED_COLUMNS, *_ACCEPTANCE], [Among("file", (LOG_SUFFIX,))])
    matched = match_acceptances(findings_of_segments(damaged), accepted)
    rows, acceptances = damaged.select(_COLUMNS_OF_DAMAGED), taken_at(accepted, matched.at)
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
    segments = taken_at(rows, at).rename_columns([*SEGMENTS.key, "status", *VERSION_NAMES])
    is_whole = flags_of(pc.equal(segments["status"], pa.scalar(Status.OK.value)))
    findings = findings.filter(pa.array((at >= 0) & is_whole & ~differing(findings, segments, VERSION_NAMES)))
    accepted = tables.read(ACCEPTED, MATCHED_COLUMNS, [Among("file", (LOG_SUFFIX,))])
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
    """Findings of audits that still count: rows of `findings` by the last audit of each partition; an audit of other
    topics does not count. Segments that are missing from their source are left out.
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
    """The sources that an audit of this catalog has recorded; an audit records whole logs, too."""
    return [str(source) for source in pc.unique(tables.read(FINDINGS, ["source"])["source"]).to_pylist()]


def known_logs(
    tables: TablesToRead, sources: Collection[str], topics: re.Pattern[str], gone: pa.Table | None = None
) -> pa.Table:
    """The logs among which `gaps_between` looks for gaps: `FACTS` of all segments that the catalog has of some sources
    and topics. Facts that `_COLUMNS_OF_ALL` lacks are null.

    `gone` has the keys of segments that a listing did not find, if the catalog does not say so yet.
    """
    rows = tables.read(SEGMENTS, _COLUMNS_OF_ALL, [Among("source", tuple(sources))])
    names = [topic for topic in map(str, pc.unique(rows["topic"]).to_pylist()) if topics.fullmatch(topic)]
    rows = rows.filter(pc.is_in(rows["topic"], value_set=pa.array(names, pa.string())))
    if gone is not None and gone.num_rows:
        is_gone: Values = pa.array(positions_in(rows, gone, SEGMENTS.key) >= 0)
        status: Values = pc.if_else(is_gone, Status.GONE.value, rows["status"])
        rows = rows.set_column(rows.schema.get_field_index("status"), "status", status)
    for name in set(FACTS) - {*_COLUMNS_OF_ALL}:
        kind = SEGMENTS.schema().field(name).type
        rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    return rows


def gaps_between(tables: TablesToRead, rows: pa.Table, policy_of: PolicyOf, directories: GapEvidence) -> KnownGaps:
    """The known damage between logs: the gaps between those that `known_logs` returned, and which of them somebody has
    accepted.
    """
    found = gaps_in(rows, policy_of, directories)
    if not found.lost:
        return KnownGaps(found)
    found = found.with_known(tables.read(SEGMENTS, FACTS, [Among("topic", sorted({gap.topic for gap in found.lost}))]))
    return _with_accepted_gaps(tables, found)


def _recorded_policies_and_directories(
    tables: TablesToRead, sources: Collection[str], known: KnownTopics
) -> tuple[PolicyOf, GapEvidence]:
    """What explains gaps of recorded sources: the policies of topics, and the directories of partitions."""
    rows = tables.read(PARTITIONS, [*PARTITIONS.key, "topic_id", "directory"], [Among("source", tuple(sources))])
    partitions = rows.to_pylist()
    directories = {tuple(row[name] for name in PARTITIONS.key): location(row["directory"]) for row in partitions}
    policy_of = known.policy_of((row["source"], row["topic"], row["topic_id"]) for row in partitions)
    return policy_of, GapEvidence(directories)


def _with_accepted_gaps(tables: TablesToRead, found: FoundGaps) -> KnownGaps:
    accepted = tables.read(ACCEPTED, [*MATCHED_COLUMNS, "accepted_by", "accepted_reason"], [Among("file", (GAP,))])
    at = match_acceptances(findings_of_rows(_gap_as_finding(gap) for gap in found.lost), accepted).at
    acceptances = accepted.select(["accepted_by", "accepted_reason"]).to_pylist()
    matched = list(zip(found.lost, at, strict=True))
    lost = tuple(gap for gap, number in matched if number < 0)
    return KnownGaps(
        replace(found, lost=lost),
        tuple(KnownAcceptedGap(gap, **acceptances[number]) for gap, number in matched if number >= 0),
    )


def _gap_as_finding(gap: Gap) -> dict[str, Any]:
    key = dict(zip(SEGMENTS.key, (*gap.partition_key, gap.first_offset), strict=True))
    return {**key, "file": GAP, "found": gap.finding.verdict.value, "detail": gap.detail}


@dataclass(frozen=True, slots=True)
class KnownGapsAndLosses:
    """What is known to be missing, and was not deleted by retention: offsets between logs, whole partitions, ends of
    logs.

    Attributes:
        not_reached, not_built: as in `ExpectedInLogDirs`.
    """

    gaps: KnownGaps
    lost: Lost
    not_reached: tuple[SourceNotReached, ...]
    not_built: tuple[NotBuilt, ...]

    @classmethod
    def in_sources(
        cls,
        tables: TablesToRead,
        names: Collection[str],
        topics: re.Pattern[str],
        known: KnownTopics,
        seen: ListedSources,
    ) -> Self:
        """Everything that is known to be missing in these sources by the catalog, the checkpoints and the metadata of
        the sources' clusters. `seen` are the sources as they were listed.
        """
        sources = [source for source in as_sources(source_paths(tables)) if source.name in names]
        policy_of, directories = _recorded_policies_and_directories(tables, names, known)
        expected_in_log_dirs = ExpectedInLogDirs.recorded(tables, sources, topics, known, seen)
        logs = known_logs(tables, names, topics)
        return cls(
            gaps_between(tables, logs, policy_of, directories),
            expected_in_log_dirs.lost(tables, logs),
            expected_in_log_dirs.not_reached,
            expected_in_log_dirs.not_built,
        )

    @property
    def is_loss(self) -> bool:
        """Whether something is known to be missing that nobody has accepted, or could not be looked for."""
        return bool(self.gaps.found.lost or self.not_reached) or self.lost.is_loss

    @property
    def counts(self) -> dict[str, int]:
        return {**self.gaps.counts, **self.lost.counts, "not_reached": len(self.not_reached)}

    def as_json(self) -> dict[str, Any]:
        return {**self.gaps.as_json(), **self.in_log_dirs_as_json()}

    def in_log_dirs_as_json(self) -> dict[str, Any]:
        """What is known to be missing but for gaps between logs."""
        not_reached = [source.as_json() for source in self.not_reached]
        not_built = [asdict(log_dir) for log_dir in self.not_built]
        return {**self.lost.as_json(), "not_reached": not_reached, "not_built": not_built}


@dataclass(frozen=True, slots=True)
class NewDamage:
    """Damage that nobody has accepted, or only with another consequence.

    Attributes:
        all: all damage, accepted or not.
        accepted: the acceptances that still hold.
        new: damage without such an acceptance.
        again: the keys of `new` damage that was accepted when its consequence was another.
    """

    all: list[AcceptableDamage]
    accepted: list[Acceptance]
    new: list[AcceptableDamage]
    again: frozenset[tuple[Any, ...]]

    def line(self, damage: AcceptableDamage) -> str:
        at = "" if damage.position is None else f" at byte {damage.position:,}"
        again = (
            "; accepted before, when something else was known of what it leads to" if damage.key in self.again else ""
        )
        return f"{damage.name}{at}: {damage.detail or damage.path}{again}"


def new_damage(tables: Tables, sources: Collection[str], selected: Selected) -> NewDamage:
    """The damage that the catalog knows, and which of it nobody has accepted."""
    recorded = recorded_acceptances(tables, sources, selected)
    paths = {name: path for name, path in source_paths(tables).items() if name in sources}
    known_topics = read_known_topics(as_sources(paths))
    policy_of, directories = _recorded_policies_and_directories(tables, sources, known_topics)
    gaps = gaps_between(tables, known_logs(tables, sources, selected.topics), policy_of, directories).all_lost
    damages = damage_now(tables, sources, selected, gaps, directories)
    matched = match_acceptances(
        findings_of_rows(map(asdict, damages)), findings_of_rows(asdict(acceptance.damage) for acceptance in recorded)
    )
    is_known = matched.knows_consequence
    return NewDamage(
        all=damages,
        accepted=[recorded[at] for at in sorted(matched.at[is_known])],
        new=[damage for damage, known in zip(damages, is_known, strict=True) if not known],
        again=frozenset(
            damage.key for damage, is_accepted in zip(damages, matched.is_accepted, strict=True) if is_accepted
        ),
    )


def damage_now(
    tables: Tables, sources: Collection[str], selected: Selected, gaps: Sequence[Gap], directories: GapEvidence
) -> list[AcceptableDamage]:
    """The damage that the catalog knows: segments by builds, files by the last audit of their partition, and gaps
    between logs, whether an audit has seen these or not.
    """
    damaged = tables.read(SEGMENTS, SEGMENT_COLUMNS, [Among("source", tuple(sources)), DAMAGED])
    of_segments = [AcceptableDamage(**row) for row in findings_of_segments(damaged).to_pylist() if selected.has(row)]
    known = {damage.key: damage for damage in of_segments}
    for row in last_findings(tables, sources, [Among("verdict", ACCEPTABLE)], [*_OF_FINDINGS, "verdict"]).to_pylist():
        if row["file"] == GAP or not selected.has(row):
            continue
        damage = AcceptableDamage(**{name: row[name] for name in _OF_FINDINGS}, found=row["verdict"])
        if file_version_now(damage.path) != damage.version:
            warn(f"{damage.path}: it has changed since it was audited: run verify_index again to accept what it is now")
            continue
        # If a build and an audit both found damage in a log, the audit's finding is kept: it says more.
        of_build = known.get(damage.key, damage)
        if (of_build.position, of_build.version) == (damage.position, damage.version):
            known[damage.key] = damage
    of_gaps = [_gap_as_damage(gap, directories) for gap in gaps]
    known |= {damage.key: damage for damage in of_gaps if selected.has(asdict(damage))}
    return sorted(known.values(), key=lambda damage: damage.key)


def _gap_as_damage(gap: Gap, directories: GapEvidence) -> AcceptableDamage:
    """A gap as damage that may be accepted. Its reason is always the same: further evidence makes it no other gap."""
    row = gap.row(directories.places[gap.partition_key]).values()
    values = {name: row[name] for name in _OF_FINDINGS if name in row}
    return AcceptableDamage(**{**values, "reason": GAP, "found": row["verdict"]})
