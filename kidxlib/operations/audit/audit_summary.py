"""Sums up an audit: which of its findings are accepted, which files the last audits of the catalog found wrong, and
what the report shows.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import IN_USE, WORST_FIRST, Verdict
from kidxlib.audit.gaps import GAP, Gap
from kidxlib.audit.index_files.sparse_indexes import PREALLOCATED, REBUILT_WITH_OFFSET_INDEX
from kidxlib.audit.rows import RowKind
from kidxlib.audit.startup.simulation import StartupAction
from kidxlib.audit.summary import COUNTED, NOTHING_LOST, ActionCounts, AuditSummary, FilesAlike, MissingIndexes
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED, FileFinding
from kidxlib.catalog.matching import Values, positions_in
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.results import NotReadyRow, StartupPartitionRow, StartupRow
from kidxlib.catalog.rows import SEGMENT_KEY, Row, SegmentKey
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import INDEX_SUFFIXES, LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.audit.run_audit import ORDERS, AuditResults
from kidxlib.operations.damage.acceptances import (
    ACCEPTABLE,
    MATCHED_COLUMNS,
    Acceptance,
    findings_of_audits,
    findings_of_rows,
    match_acceptances,
    still_accepted,
)
from kidxlib.operations.damage.known_damage import ACCEPTED_STATUS, audited_sources, known_damage, last_findings
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.outcome import LINES_SHOWN, Outcome
from kidxlib.text.words import counted

#: The key of a finding within an audit.
_FILE_KEY: Final = (*SEGMENTS.key, "file")
#: The columns of a finding that are read.
_COLUMNS: Final = tuple("verdict" if name == "found" else name for name in MATCHED_COLUMNS)

_R = TypeVar("_R", bound=Row)

#: If more segments than these have no `.index`, the missing files are reported together.
_MISSING_ONE_BY_ONE: Final = 3
#: If a kind has more files than these, they are reported together: safe files with one reason, and time indexes that
#: are preallocated although a marker says that the broker stopped cleanly. A false marker leaves one of these in each
#: partition.
_KIND_ONE_BY_ONE: Final = 3

#: The verdicts that are reported, and the conditions on the rows that are reported one by one.
_REPORTED: Final = tuple(verdict.value for verdict in WORST_FIRST)
_RECOVERED: Final = Among("action", (StartupAction.REBUILD.value, StartupAction.TRUNCATE.value))
_LOST: Final = Among("action", tuple(action.value for action in NOTHING_LOST), negated=True)


@dataclass(frozen=True, slots=True)
class AcceptedAuditFindings:
    """The findings of an audit that are accepted.

    Attributes:
        files: how many files have an accepted finding, by suffix and verdict.
        losses: how many segments lose something at a broker's next start and are accepted, by the broker's action. A
            segment is accepted if the damage of its own log is; or if all damage in its partition's logs is accepted
            together with its consequence, so that the deletion of later segments was known.
        keys: the key of the segment and the file of each accepted finding.
        acceptances: the acceptance of each of these findings, in the same order.
    """

    files: Mapping[tuple[str, str], int] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    keys: pa.Table = field(default_factory=ACCEPTED.schema(_FILE_KEY).empty_table)
    acceptances: Sequence[Acceptance] = ()

    @property
    def count(self) -> int:
        return sum(self.files.values())

    @property
    def partitions(self) -> frozenset[PartitionKey]:
        return frozenset(acceptance.damage.key[:3] for acceptance in self.acceptances)

    def tell(self, outcome: Outcome) -> None:
        if self.count:
            outcome.line(
                f"accepted: {counted(self.count, 'finding')}, not counted above; they fail no audit "
                f"(table {ACCEPTED.name})"
            )
            outcome.line(*(f"  {acceptance.line}" for acceptance in self.acceptances[:LINES_SHOWN]))
            outcome.add_more_line(self.count - LINES_SHOWN, f"; all of them are in the table {ACCEPTED.name}")

    def as_json(self) -> list[dict[str, Any]]:
        names = (*_FILE_KEY, "reason")
        return [
            {
                **{name: getattr(acceptance.damage, name) for name in names},
                "accepted_by": acceptance.accepted_by,
                "accepted_at": acceptance.accepted_at.isoformat(),
                "accepted_reason": acceptance.accepted_reason,
            }
            for acceptance in self.acceptances
        ]

    def taken_from(self, summary: AuditSummary) -> AuditSummary:
        """The summary of an audit without its accepted findings, by which the exit code goes."""
        actions = {
            action: replace(counts, segments=counts.segments - self.losses.get(action, 0))
            for action, counts in summary.actions.items()
        }
        gaps = replace(summary.gaps, lost=tuple(gap for gap in summary.gaps.lost if not self._has_gap(gap)))
        return replace(summary, files=summary.files - Counter(self.files), actions=actions, gaps=gaps)

    def _has_gap(self, gap: Gap) -> bool:
        accepted = (acceptance.damage for acceptance in self.acceptances if acceptance.damage.file == GAP)
        return any((*damage.key[:3], damage.detail) == (*gap.partition_key, gap.detail) for damage in accepted)


@dataclass(frozen=True, slots=True)
class AuditedCatalog:
    """The numbers of a catalog after an audit was recorded in it.

    Attributes:
        segments: how many segments it has, by source and status; None without a catalog.
        files: how many files the last audits found wrong, by source and verdict; None without a catalog.
    """

    accepted: AcceptedAuditFindings = field(default_factory=AcceptedAuditFindings)
    segments: Mapping[tuple[str, str], int] | None = None
    files: Mapping[tuple[str, str], int] | None = None

    @classmethod
    def of(cls, tables: Tables, results: AuditResults, sources: Sequence[str], topics: re.Pattern[str]) -> Self:
        """Sum up a catalog after an audit of these sources and topics was recorded in it."""
        audited = audited_sources(tables)
        acceptances = still_accepted(tables, audited)
        of_sources = [acceptance for acceptance in acceptances if acceptance.damage.source in sources]
        return cls(
            _accepted_findings(results, of_sources),
            known_damage(tables, sources, topics).figures,
            _files_of_last_audits(tables, audited, acceptances),
        )


def _accepted_findings(results: AuditResults, acceptances: Sequence[Acceptance]) -> AcceptedAuditFindings:
    if not acceptances:
        return AcceptedAuditFindings()
    files = results.rows(RowKind.FILE, _COLUMNS, [Among("verdict", ACCEPTABLE)])
    damages = findings_of_rows(asdict(acceptance.damage) for acceptance in acceptances)
    of_files = match_acceptances(findings_of_audits(files), damages)
    files = files.append_column("is_accepted", pa.array(of_files.is_accepted))
    files = files.append_column("knows_consequence", pa.array(of_files.knows_consequence))
    key, kinds = list(PARTITIONS.key), ["file", "verdict"]
    counts = files.filter(files["is_accepted"]).group_by(kinds).aggregate([([], "count_all")])
    logs = files.filter(pc.equal(files["file"], pa.scalar(LOG_SUFFIX)))
    excused = logs.group_by(key).aggregate([("knows_consequence", "all")])
    excused = excused.filter(excused["knows_consequence_all"])
    lost = results.rows(RowKind.SEGMENT, [*SEGMENTS.key, "action"], [_LOST])
    is_known = positions_in(lost, excused, key) >= 0
    is_known |= positions_in(lost, logs.filter(logs["is_accepted"]), SEGMENTS.key) >= 0
    losses = lost.filter(pa.array(is_known)).group_by("action").aggregate([([], "count_all")])
    keys = files.filter(files["is_accepted"]).select(_FILE_KEY)
    accepted = {tuple(row.values()) for row in keys.to_pylist()}
    return AcceptedAuditFindings(
        {(row["file"], row["verdict"]): row["count_all"] for row in counts.to_pylist()},
        {row["action"]: row["count_all"] for row in losses.to_pylist()},
        keys,
        [each for each in acceptances if tuple(getattr(each.damage, name) for name in _FILE_KEY) in accepted],
    )


def _files_of_last_audits(
    tables: Tables, sources: Collection[str], acceptances: Collection[Acceptance]
) -> Counter[tuple[str, str]]:
    """How many files the last audit of their partition found wrong, by source and verdict, over all sources that were
    ever audited. Accepted files have `ACCEPTED_STATUS` in place of their verdict.
    """
    verdicts = (*ACCEPTABLE, ACCEPTED_STATUS)
    files: Counter[tuple[str, str]] = Counter(dict.fromkeys(((source, v) for source in sources for v in verdicts), 0))
    findings = last_findings(tables, sources, [Among("verdict", ACCEPTABLE)], _COLUMNS)
    damages = findings_of_rows(asdict(acceptance.damage) for acceptance in acceptances)
    of_files = match_acceptances(findings_of_audits(findings), damages)
    verdict: Values = pc.if_else(pa.array(of_files.is_accepted), pa.scalar(ACCEPTED_STATUS), findings["verdict"])
    of_sources = pa.table({"source": findings["source"], "verdict": verdict})
    for row in of_sources.group_by(["source", "verdict"]).aggregate([([], "count_all")]).to_pylist():
        files[row["source"], row["verdict"]] += row["count_all"]
    return files


def summarise_audit(
    results: AuditResults,
    log_dir_failures: Sequence[str],
    *,
    tiering: bool,
    left_out: pa.Table | None = None,
    list_safe: bool = False,
) -> AuditSummary:
    """Sum an audit up. `log_dir_failures` is what keeps a broker from starting with a log dir, besides logs of
    partitions. `left_out` has `_FILE_KEY` of findings that are counted but not reported. `list_safe` reports safe files
    one by one, and not all of a kind together; `tiering` also says which segments are not ready for tiered storage.
    """
    summary = AuditSummary(failures=dict.fromkeys(log_dir_failures))
    kinds = ["file", "verdict"]
    files = results.rows(RowKind.FILE, kinds).group_by(kinds).aggregate([([], "count_all")])
    for row in files.to_pylist():
        summary.files[row["file"], row["verdict"]] = row["count_all"]
    summary.gaps = results.gaps
    rows = results.rows(RowKind.FILE, None, [Among("verdict", _REPORTED), Among("file", (GAP,), negated=True)])
    if left_out is not None:
        rows = rows.filter(pa.array(positions_in(rows, left_out, left_out.column_names) < 0))
    summary.in_use = _in_use(rows)
    is_missing = _without_offset_index(rows)
    summary.missing = _missing(rows.filter(is_missing))
    is_reported: Values = pc.invert(is_missing)
    rows = rows if summary.missing is None else rows.filter(is_reported)
    if not list_safe:
        summary.together, rows = _kinds(rows)
    summary.reported = _reported(rows, rows.num_rows if list_safe else LINES_SHOWN)
    startup = results.rows(RowKind.SEGMENT, ["action", *COUNTED])
    sums = startup.group_by("action").aggregate([([], "count_all"), *((name, "sum") for name in COUNTED)])
    for row in sums.to_pylist():
        counts = {name: row[f"{name}_sum"] or 0 for name in COUNTED}
        summary.actions[row["action"]] = ActionCounts(row["count_all"], **counts)
    summary.lost = _first(StartupRow, results.rows(RowKind.SEGMENT, None, [_LOST]), ORDERS[RowKind.SEGMENT])
    partitions = results.rows(RowKind.PARTITION)
    starts = _first(StartupPartitionRow, partitions, ORDERS[RowKind.PARTITION], partitions.num_rows)
    for start in starts:
        summary.add_start(start)
    summary.rebuilt = _rebuilt(results, summary.reported, {start.partition_key: start.directory for start in starts})
    if tiering:
        not_ready = results.rows(RowKind.NOT_READY)
        summary.not_ready = _first(NotReadyRow, not_ready, ORDERS[RowKind.NOT_READY])
        summary.not_ready_count = not_ready.num_rows
    return summary


def _in_use(rows: pa.Table) -> tuple[int, int]:
    """How many logs a broker was writing to, and how many of their bytes were not judged."""
    is_in_use: Values = pc.equal(rows["reason"], pa.scalar(IN_USE)).fill_null(False)
    logs = rows.filter(is_in_use)
    beyond: Values = pc.subtract(logs["file_bytes"], logs["position"])
    return logs.num_rows, pc.sum(beyond).as_py() or 0


def _without_offset_index(rows: pa.Table) -> Values:
    """Which rows are about a missing `.index`, or about a `.timeindex` that is rebuilt together with one."""
    is_missing = pc.equal(rows["reason"], pa.scalar("missing"))
    is_index = pc.and_(pc.equal(rows["file"], pa.scalar(OFFSET_INDEX_SUFFIX)), is_missing)
    is_with_index = pc.equal(rows["consequence"], pa.scalar(REBUILT_WITH_OFFSET_INDEX))
    return pc.or_kleene(is_index, is_with_index).fill_null(False)


def _missing(missing: pa.Table) -> MissingIndexes | None:
    """The missing index files, if they are reported together; None if they are reported one by one."""
    indexes = missing.filter(pc.equal(missing["file"], pa.scalar(OFFSET_INDEX_SUFFIX)))
    if indexes.num_rows <= _MISSING_ONE_BY_ONE:
        return None
    [first] = _first(FileFinding, indexes, ORDERS[RowKind.FILE], 1)
    return MissingIndexes(indexes.num_rows, missing.num_rows, first)


def _kinds(rows: pa.Table) -> tuple[tuple[FilesAlike, ...], pa.Table]:
    """The files that are reported together by verdict and reason, and the other rows."""
    is_preallocated: Values = pc.equal(rows["reason"], pa.scalar(PREALLOCATED)).fill_null(False)
    is_of_any: Values = pc.or_(pc.equal(rows["verdict"], pa.scalar(Verdict.SAFE.value)), is_preallocated)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for row in (
        rows.filter(is_of_any).group_by(["verdict", "reason", "file"]).aggregate([([], "count_all")]).to_pylist()
    ):
        counts.setdefault((row["verdict"], row["reason"]), {})[row["file"]] = row["count_all"]
    kinds = []
    for (verdict, reason), files in sorted(counts.items()):
        if sum(files.values()) <= _KIND_ONE_BY_ONE:
            continue
        is_of_reason: Values = pc.equal(rows["reason"], pa.scalar(reason)).fill_null(False)
        is_of_kind: Values = pc.and_(pc.equal(rows["verdict"], pa.scalar(verdict)), is_of_reason)
        [first] = _first(FileFinding, rows.filter(is_of_kind), ORDERS[RowKind.FILE], 1)
        kinds.append(FilesAlike(reason, dict(sorted(files.items())), first))
        is_left: Values = pc.invert(is_of_kind)
        rows = rows.filter(is_left)
    return tuple(kinds), rows


def _reported(rows: pa.Table, count: int) -> list[FileFinding]:
    # The worst first, and logs before index and auxiliary files.
    rank: Values = pc.index_in(rows["verdict"], value_set=pa.array(_REPORTED))
    is_no_log: Values = pc.not_equal(rows["file"], pa.scalar(LOG_SUFFIX)).cast(pa.int8())
    rows = rows.append_column("rank", rank).append_column("is_no_log", is_no_log)
    return _first(FileFinding, rows, ["rank", "is_no_log", *ORDERS[RowKind.FILE]], count)


def _rebuilt(
    results: AuditResults, reported: Sequence[FileFinding], directories: Mapping[PartitionKey, str]
) -> frozenset[str]:
    """Paths of reported files beside a log that a broker's next start recovers, and so rebuilds
    (`LogSegment.recover`).
    """
    beside = [
        file
        for file in reported
        if file.file in INDEX_SUFFIXES
        and not _names_rebuild(file)
        and os.path.dirname(file.path) == directories.get(file.partition_key)
    ]
    conditions = [_RECOVERED, Among("base_offset", {file.base_offset for file in beside})]
    rows = SegmentKey.of_arrow(results.rows(RowKind.SEGMENT, SEGMENT_KEY, conditions)) if beside else []
    recovered = {(*row.partition_key, row.base_offset) for row in rows}
    return frozenset(file.path for file in beside if (*file.partition_key, file.base_offset) in recovered)


def _names_rebuild(file: FileFinding) -> bool:
    """Whether the finding itself says that a broker rebuilds the file."""
    is_missing_index = file.file == OFFSET_INDEX_SUFFIX and file.reason == "missing"
    return is_missing_index or file.consequence == REBUILT_WITH_OFFSET_INDEX


def _first(row_type: type[_R], rows: pa.Table, order: Sequence[str], count: int = LINES_SHOWN) -> list[_R]:
    return row_type.of_arrow(rows.sort_by([(name, "ascending") for name in order]).slice(0, count))
