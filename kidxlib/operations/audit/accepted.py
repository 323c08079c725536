"""What of an audit is accepted, and what the last audits of a catalog say that is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.gaps import GAP, Gap
from kidxlib.audit.rows import Kind
from kidxlib.audit.summary import AuditSummary
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.accept.acceptances import Acceptance, still_accepted
from kidxlib.operations.audit.found import Found
from kidxlib.operations.audit.summary import LOST
from kidxlib.operations.damage.acceptance_rule import ACCEPTABLE, COLUMNS, findings_of, findings_of_audits, held
from kidxlib.operations.damage.damaged_segments import known_damage
from kidxlib.operations.damage.known_damage import ACCEPTED_STATUS
from kidxlib.operations.damage.last_findings import audited_sources, last_findings
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.audit import SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.text.counted import counted

#: The key of a finding within an audit.
FILE_KEY: Final = (*SEGMENTS.key, "file")
#: What is looked at of a finding.
_COLUMNS: Final = tuple("verdict" if name == "found" else name for name in COLUMNS)


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
        acceptances = still_accepted(tables, audited)
        return cls(
            _accepted_findings(found, [each for each in acceptances if each.damage.source in sources]),
            known_damage(tables, sources, topics).figures,
            _files_of_last_audits(tables, audited, acceptances),
        )


def _accepted_findings(found: Found, acceptances: Sequence[Acceptance]) -> AcceptedFindings:
    """What of an audit is accepted.

    Args:
        acceptances: those of its sources.
    """
    if not acceptances:
        return AcceptedFindings()
    files = found.rows(Kind.FILE, _COLUMNS, [Among("verdict", ACCEPTABLE)])
    of_files = held(findings_of_audits(files), findings_of(asdict(each.damage) for each in acceptances))
    files = files.append_column("is_accepted", pa.array(of_files.is_accepted))
    files = files.append_column("knows_consequence", pa.array(of_files.knows_consequence))
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
        [each for each in acceptances if tuple(getattr(each.damage, name) for name in FILE_KEY) in names],
    )


def _files_of_last_audits(
    tables: Tables, sources: Collection[str], acceptances: Collection[Acceptance]
) -> Counter[tuple[str, str]]:
    """How many files the last audit of their partition found wrong, by source and verdict. Files that are accepted have
    `ACCEPTED_STATUS` in place of their verdict.

    Args:
        sources: all that were ever audited.
        acceptances: those of them.
    """
    verdicts = (*ACCEPTABLE, ACCEPTED_STATUS)
    files: Counter[tuple[str, str]] = Counter(dict.fromkeys(((source, v) for source in sources for v in verdicts), 0))
    found = last_findings(tables, sources, Among("verdict", ACCEPTABLE), _COLUMNS)
    of_files = held(findings_of_audits(found), findings_of(asdict(each.damage) for each in acceptances))
    verdict: Values = pc.if_else(pa.array(of_files.is_accepted), pa.scalar(ACCEPTED_STATUS), found["verdict"])
    of_sources = pa.table({"source": found["source"], "verdict": verdict})
    for row in of_sources.group_by(["source", "verdict"]).aggregate([([], "count_all")]).to_pylist():
        files[row["source"], row["verdict"]] += row["count_all"]
    return files
