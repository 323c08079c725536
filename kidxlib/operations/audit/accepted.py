"""What of an audit is accepted, and what the last audits of a catalog say that is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import ALSO
from kidxlib.audit.gaps import GAP, Gap
from kidxlib.audit.rows import Kind
from kidxlib.audit.summary import AuditSummary
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Flags, Values, differing, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.accept.acceptances import Acceptance, still_accepted
from kidxlib.operations.accept.damage import ACCEPTABLE, VERSION_NAMES, Damage
from kidxlib.operations.audit.found import Found
from kidxlib.operations.audit.summary import LOST
from kidxlib.operations.damage.damaged_segments import known_damage
from kidxlib.operations.damage.known_damage import ACCEPTED_STATUS
from kidxlib.operations.damage.last_findings import audited_sources, last_findings
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.audit import SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.text.counted import counted

#: The key of a finding within an audit.
FILE_KEY: Final = (*SEGMENTS.key, "file")
#: What a finding and what was accepted have in common, besides the key of what was accepted.
_SAME: Final = ("position", "path", *VERSION_NAMES)
#: What is looked at of a finding.
_COLUMNS: Final = (*ACCEPTED.key, *_SAME, "verdict", "detail", "consequence")


@dataclass(frozen=True, slots=True)
class AcceptedFindings:
    """What of an audit's findings is accepted.

    Attributes:
        files: how many, by suffix and verdict.
        losses: segments of which a broker would drop something at its next start, by what it does: those whose own
            log's damage is accepted; and those of a partition in whose logs all damage is accepted, with what a broker
            does about it: it was known then that it deletes these.
        keys: of the findings, the key of the segment and the file.
        acceptances: of the findings, in order.
    """

    files: Mapping[tuple[str, str], int] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    keys: pa.Table = field(default_factory=ACCEPTED.schema(FILE_KEY).empty_table)
    acceptances: Sequence[Acceptance] = ()

    @property
    def count(self) -> int:
        return sum(self.files.values())

    @property
    def partitions(self) -> frozenset[PartitionKey]:
        """The partitions whose findings are accepted."""
        return frozenset(each.damage.key[:3] for each in self.acceptances)

    def show(self) -> None:
        """Print which findings are accepted."""
        if self.count:
            print_line(
                f"accepted: {counted(self.count, 'finding')}, not counted above; they fail no audit "
                f"(table {ACCEPTED.name})"
            )
            for each in self.acceptances[:SHOWN]:
                print_line(f"  {each.line}")
            print_more(self.count - SHOWN, f"; all of them are in the table {ACCEPTED.name}")

    def as_json(self) -> list[dict[str, Any]]:
        """Which findings are accepted, by whom and why."""
        names = (*FILE_KEY, "reason")
        return [
            {
                **{name: getattr(each.damage, name) for name in names},
                "accepted_by": each.accepted_by,
                "accepted_at": each.accepted_at.isoformat(),
                "accepted_reason": each.accepted_reason,
            }
            for each in self.acceptances
        ]

    def taken_from(self, summary: AuditSummary) -> AuditSummary:
        """What an audit comes to without it: what its exit code and its table go by."""
        actions = {
            action: replace(counts, segments=counts.segments - self.losses.get(action, 0))
            for action, counts in summary.actions.items()
        }
        lost = [each for each in summary.gaps.lost if not self.has_gap(each)]
        gaps = replace(summary.gaps, lost=tuple(lost))
        return replace(summary, files=summary.files - Counter(self.files), actions=actions, gaps=gaps)

    def has_gap(self, gap: Gap) -> bool:
        """Whether a gap is accepted."""
        accepted = (each.damage for each in self.acceptances if each.damage.file == GAP)
        return any((*each.key[:3], each.detail) == (*gap.partition_key, gap.detail) for each in accepted)


@dataclass(frozen=True, slots=True)
class AuditedCatalog:
    """What a catalog says once an audit is recorded in it.

    Attributes:
        segments: how many it has, by source and status; None where there is no catalog.
        files: how many the last audits found wrong, by source and verdict; None where there is no catalog.
    """

    accepted: AcceptedFindings = field(default_factory=AcceptedFindings)
    segments: Mapping[tuple[str, str], int] | None = None
    files: Mapping[tuple[str, str], int] | None = None

    @classmethod
    def of(cls, tables: Tables, found: Found, sources: Sequence[str], topics: re.Pattern[str]) -> Self:
        """What is accepted of an audit of some sources and topics."""
        audited = audited_sources(tables)
        held = still_accepted(tables, audited)
        return cls(
            _accepted_findings(found, [each for each in held if each.damage.source in sources]),
            known_damage(tables, sources, topics).figures,
            _files_of_last_audits(tables, audited, [each.damage for each in held]),
        )


def judged(files: pa.Table, held: Collection[Damage]) -> tuple[Flags, Flags]:
    """Which findings are accepted: the file is as it was, and what is found in it is what was accepted: not another
    byte, not a torn end that is broken by now, and nothing besides; of a gap, the same offsets. And which of these lead
    to the same.

    Args:
        files: findings, with at least what is looked at of them.
        held: what is accepted.
    """
    accepted = pa.Table.from_pylist([asdict(damage) for damage in held], _DAMAGE)
    number = files.schema.get_field_index("reason")
    is_gap: Values = pc.equal(files["file"], pa.scalar(GAP))
    reasons: Values = pc.if_else(is_gap, pa.scalar(GAP), pc.coalesce(files["reason"], pa.scalar("")))
    at = positions_in(files.set_column(number, "reason", reasons), accepted, ACCEPTED.key)
    places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
    beside = accepted.take(places)
    # A build says of a segment how it stands, an audit of its log a verdict.
    by_audit: Values = pc.is_in(beside["found"], value_set=pa.array(ACCEPTABLE))
    other_verdict = _flags(by_audit) & _flags(pc.not_equal(beside["found"], files["verdict"]))
    is_merged: Values = pc.or_(is_gap, pc.match_substring(files["detail"], ALSO))
    is_accepted: Flags = (at >= 0) & ~differing(files, beside, _SAME) & ~other_verdict
    is_accepted &= ~(_flags(is_merged) & differing(files, beside, ["detail"]))
    return is_accepted, is_accepted & ~differing(files, beside, ["consequence"])


_DAMAGE: Final = ACCEPTED.schema(Damage.__dataclass_fields__.keys())


def _accepted_findings(found: Found, held: Sequence[Acceptance]) -> AcceptedFindings:
    """What of an audit is accepted.

    Args:
        held: what is accepted of its sources.
    """
    if not held:
        return AcceptedFindings()
    files = found.rows(Kind.FILE, _COLUMNS, [Among("verdict", ACCEPTABLE)])
    is_accepted, knows_consequence = judged(files, [each.damage for each in held])
    files = files.append_column("is_accepted", pa.array(is_accepted))
    files = files.append_column("knows_consequence", pa.array(knows_consequence))
    key, kinds = list(PARTITIONS.key), ["file", "verdict"]
    counts = files.filter(files["is_accepted"]).group_by(kinds).aggregate([([], "count_all")])
    logs = files.filter(pc.equal(files["file"], pa.scalar(LOG_SUFFIX)))
    excused = logs.group_by(key).aggregate([("knows_consequence", "all")])
    excused = excused.filter(excused["knows_consequence_all"])
    lost = found.rows(Kind.SEGMENT, [*SEGMENTS.key, "action"], [LOST])
    is_known = positions_in(lost, excused, key) >= 0
    is_known |= positions_in(lost, logs.filter(logs["is_accepted"]), SEGMENTS.key) >= 0
    losses = lost.filter(pa.array(is_known)).group_by("action").aggregate([([], "count_all")])
    keys = files.filter(files["is_accepted"]).select(FILE_KEY)
    names = {tuple(row.values()) for row in keys.to_pylist()}
    return AcceptedFindings(
        {(row["file"], row["verdict"]): row["count_all"] for row in counts.to_pylist()},
        {row["action"]: row["count_all"] for row in losses.to_pylist()},
        keys,
        [each for each in held if tuple(getattr(each.damage, name) for name in FILE_KEY) in names],
    )


def _files_of_last_audits(
    tables: Tables, sources: Collection[str], held: Collection[Damage]
) -> Counter[tuple[str, str]]:
    """How many files the last audit of their partition found wrong, by source and verdict. Files that are accepted have
    `ACCEPTED_STATUS` in place of their verdict.

    Args:
        sources: all that were ever audited.
        held: what is accepted of them.
    """
    verdicts = (*ACCEPTABLE, ACCEPTED_STATUS)
    files: Counter[tuple[str, str]] = Counter(dict.fromkeys(((source, v) for source in sources for v in verdicts), 0))
    found = last_findings(tables, sources, Among("verdict", ACCEPTABLE), _COLUMNS)
    is_accepted, _ = judged(found, held)
    verdict: Values = pc.if_else(pa.array(is_accepted), pa.scalar(ACCEPTED_STATUS), found["verdict"])
    of_sources = pa.table({"source": found["source"], "verdict": verdict})
    for row in of_sources.group_by(["source", "verdict"]).aggregate([([], "count_all")]).to_pylist():
        files[row["source"], row["verdict"]] += row["count_all"]
    return files


def _flags(column: Values) -> Flags:
    """Whether each is true; of a null it is not."""
    flags: Flags = column.fill_null(False).to_numpy().astype(np.bool_)
    return flags
