"""Acceptances of damage: the rows of the table `accepted`, read, written and removed; and when an acceptance still
holds. That is one rule, for tables of Arrow (`match_acceptances`) and as the condition of a join in SQL
(`acceptance_join_condition`).

An acceptance is for one finding: this file in its present state, with this reason at this byte. If any of these
changes, nobody has seen the new finding, and it counts as damage again. A gap has no file: it is the same gap while it
has the same offsets, which its detail names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import ALSO, DAMAGE
from kidxlib.audit.gaps import GAP, range_in
from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Flags, Positions, Values, differing, flags_of, positions_in, taken_at
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.storage.location import location, version_at
from kidxlib.tables.protocol import Tables

#: The verdicts that may be accepted; others are harmless and need no acceptance.
ACCEPTABLE: Final = tuple(verdict.value for verdict in DAMAGE)
#: The columns of `findings` and `accepted` with a file's state.
VERSION_NAMES: Final = ("file_bytes", "file_mtime_ns", "file_inode")
#: The columns in which a finding and its acceptance must agree, besides the key of `accepted`.
_SAME: Final = ("position", "path", *VERSION_NAMES)
_SCHEMA: Final = ACCEPTED.schema({*ACCEPTED.key, *_SAME, "found", "detail", "consequence"})
#: The columns of a finding and of its acceptance that the rule reads, by their names in `accepted`.
MATCHED_COLUMNS: Final = tuple(_SCHEMA.names)
#: The columns of `segments` with the same meaning, without the key.
_OF_SEGMENTS: Final = {
    "reason": "reason",
    "position": "reason_position",
    "path": "log_path",
    **dict(zip(VERSION_NAMES, LogVersion.names(), strict=True)),
    "found": "status",
    "detail": "reason_detail",
}
#: The columns that `findings_of_segments` needs.
SEGMENT_COLUMNS: Final = (*SEGMENTS.key, *_OF_SEGMENTS.values())
#: One of several findings in the detail of the finding that stands for all, as `worse` of `kidxlib/audit/finding`
#: writes it.
_ANOTHER: Final = re.compile(r"(?P<reason>[\w-]+)(?: at byte (?P<position>\d+))?: (?P<detail>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The damage that a user asked for: all of the topics, if neither a segment nor a gap is named.

    Attributes:
        segments: names, as `orders-3/1048576`.
        gaps: names, as `orders-3/100-199`.
    """

    segments: Collection[str]
    gaps: Collection[str]
    topics: re.Pattern[str]

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether the user asked for a row: a segment's key, or a finding on a file or a gap."""
        partition = f"{row['topic']}-{row['partition']}"
        if row.get("file") == GAP:
            is_named = f"{partition}/{range_in(row['detail'])}" in self.gaps
        else:
            is_named = f"{partition}/{row['base_offset']}" in self.segments
        is_asked = is_named or not (self.segments or self.gaps)
        return is_asked and self.topics.fullmatch(row["topic"]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptableDamage:
    """A finding that may be accepted; its fields are columns of the table `accepted`."""

    source: str
    topic: str
    partition: int
    base_offset: int
    file: str
    reason: str
    position: int | None
    found: str
    detail: str | None
    consequence: str | None
    file_bytes: int | None
    file_mtime_ns: int | None
    file_inode: int | None
    path: str

    @property
    def key(self) -> tuple[Any, ...]:
        """The key in the table `accepted`."""
        return tuple(getattr(self, name) for name in ACCEPTED.key)

    @property
    def name(self) -> str:
        """The name by which a user selects it, as `orders-3/1048576`."""
        if self.file == GAP:
            return f"{self.source}: {self.topic}-{self.partition}/{range_in(self.detail)}: {self.reason}"
        segment = f"{self.topic}-{self.partition}/{self.base_offset}"
        return f"{self.source}: {segment} {self.file}: {self.found}: {self.reason}"

    @property
    def version(self) -> tuple[int | None, int | None, int | None]:
        return self.file_bytes, self.file_mtime_ns, self.file_inode


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    damage: AcceptableDamage
    accepted_by: str
    accepted_at: datetime
    accepted_reason: str

    @property
    def line(self) -> str:
        return (
            f"{self.damage.name} (by {self.accepted_by} at {self.accepted_at:%Y-%m-%d %H:%M}Z: {self.accepted_reason})"
        )


def recorded_acceptances(
    tables: Tables, sources: Collection[str], selected: Selected | None = None
) -> list[Acceptance]:
    """The selected acceptances, or all, whether they still hold or not."""
    rows = tables.read(ACCEPTED, None, [Among("source", tuple(sources))])
    names = [field.name for field in fields(AcceptableDamage)]
    return [
        Acceptance(
            damage=AcceptableDamage(**{name: row[name] for name in names}),
            accepted_by=row["accepted_by"],
            accepted_at=row["accepted_at"],
            accepted_reason=row["accepted_reason"],
        )
        for row in rows.sort_by([(name, "ascending") for name in ACCEPTED.key]).to_pylist()
        if selected is None or selected.has(row)
    ]


def record_acceptances(tables: Tables, damages: Sequence[AcceptableDamage], by: str, at: datetime, reason: str) -> None:
    """Record that damage is accepted. This replaces an earlier acceptance with the same reason."""
    acceptance = {"accepted_by": by, "accepted_at": at, "accepted_reason": reason}
    rows = pa.Table.from_pylist([{**asdict(damage), **acceptance} for damage in damages], ACCEPTED.schema())
    tables.change_rows(ACCEPTED, {"row": rows}, partial(updates.written, table=ACCEPTED), by=ACCEPTED.key)


def withdraw_acceptances(tables: Tables, acceptances: Sequence[Acceptance]) -> None:
    keys = [dict(zip(ACCEPTED.key, acceptance.damage.key, strict=True)) for acceptance in acceptances]
    rows = pa.Table.from_pylist(keys, ACCEPTED.schema(ACCEPTED.key))
    tables.change_rows(ACCEPTED, {"key": rows}, partial(updates.removed, table=ACCEPTED), by=ACCEPTED.key)


def still_accepted(tables: Tables, sources: Collection[str]) -> list[Acceptance]:
    """The acceptances of files that have not changed since, as this machine sees them."""
    return [
        acceptance
        for acceptance in recorded_acceptances(tables, sources)
        if file_version_now(acceptance.damage.path) == acceptance.damage.version
    ]


def file_version_now(path: str) -> tuple[int | None, int | None, int | None]:
    """A file's version as findings and acceptances record it (`VERSION_NAMES`)."""
    version = version_at(location(path))
    return (None, None, None) if version is None else (version.size, version.mtime_ns, version.inode)


@dataclass(frozen=True, slots=True)
class MatchedAcceptances:
    """
    Attributes:
        at: for each finding the position of its acceptance; −1: it is not accepted.
        knows_consequence: whether the consequence was known, too, when the finding was accepted. It does not matter for
            a gap.
    """

    at: Positions
    knows_consequence: Flags

    @property
    def is_accepted(self) -> Flags:
        return self.at >= 0


def match_acceptances(findings: pa.Table, accepted: pa.Table) -> MatchedAcceptances:
    """The acceptance of each finding that still holds. Both tables have `MATCHED_COLUMNS`."""
    findings, accepted = _with_reasons(findings.select(MATCHED_COLUMNS)), accepted.select(MATCHED_COLUMNS)
    at = positions_in(findings, accepted, ACCEPTED.key)
    acceptances = taken_at(accepted, at)
    is_gap = flags_of(pc.equal(findings["file"], pa.scalar(GAP)))
    is_same = is_gap | ~differing(findings, acceptances, _SAME)
    # A build gives a segment a status, an audit gives its log a verdict; a torn end may have become broken since.
    both_by_audit = _is_verdict(findings) & _is_verdict(acceptances)
    is_same &= ~(both_by_audit & differing(findings, acceptances, ["found"]))
    # If a finding stands for several, each of them needs an acceptance.
    has_detail = is_gap | flags_of(pc.match_substring(findings["detail"], ALSO))
    is_same &= ~(has_detail & differing(findings, acceptances, ["detail"]))
    at = np.where(is_same, at, -1)
    return MatchedAcceptances(at, (at >= 0) & (is_gap | ~differing(findings, acceptances, ["consequence"])))


def findings_of_rows(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Findings as `MATCHED_COLUMNS`, for `match_acceptances`; null where a finding lacks a value."""
    return pa.Table.from_pylist([{name: row.get(name) for name in MATCHED_COLUMNS} for row in rows], _SCHEMA)


def findings_of_segments(rows: pa.Table) -> pa.Table:
    """Builds' findings on logs, as `MATCHED_COLUMNS` for `match_acceptances`, from `SEGMENT_COLUMNS` of damaged
    segments.
    """
    nothing = pa.nulls(rows.num_rows, pa.string())
    of_logs = rows.append_column("file", nothing.fill_null(LOG_SUFFIX)).append_column("consequence", nothing)
    return _renamed(of_logs, _OF_SEGMENTS)


def findings_of_audits(rows: pa.Table) -> pa.Table:
    """Rows of `findings` as `MATCHED_COLUMNS`, for `match_acceptances`."""
    return _renamed(rows, {"found": "verdict"})


def split_acceptances(accepted: pa.Table) -> pa.Table:
    """The acceptances of several findings at once, split: a row for each finding except the first."""
    more = []
    for row in accepted.filter(pc.match_substring(accepted["detail"], ALSO)).to_pylist():
        for text in row["detail"].split(ALSO)[1:]:
            if (another := _ANOTHER.fullmatch(text)) is not None:
                position = another["position"] and int(another["position"])
                more.append({**row, "reason": another["reason"], "position": position, "detail": another["detail"]})
    return pa.Table.from_pylist(more, accepted.schema)


def acceptance_join_condition(finding: Mapping[str, str]) -> str:
    """The rule as the condition of a join with `accepted AS a`. `finding` has the SQL expression of each of
    `MATCHED_COLUMNS` but the consequence.
    """
    is_gap, verdicts = f"{finding['file']} = '{GAP}'", ", ".join(map(repr, ACCEPTABLE))
    keys = [f"{finding[name]} = a.{name}" for name in ACCEPTED.key if name != "reason"]
    same = [f"({finding[name]} IS NOT DISTINCT FROM a.{name})" for name in _SAME]
    return f"""{" AND ".join(keys)}
  AND (coalesce({finding["reason"]}, '') = a.reason OR {is_gap}) -- of a gap the evidence may have changed
  AND ({is_gap} OR ({" AND ".join(same)}))
  AND (a.found = {finding["found"]} OR a.found NOT IN ({verdicts}) OR {finding["found"]} NOT IN ({verdicts}))
  AND (({finding["detail"]} IS NOT DISTINCT FROM a.detail)
       OR (NOT {is_gap} AND coalesce({finding["detail"]}, '') NOT LIKE '%{ALSO}%'))"""


def segment_columns_in_sql(table: str) -> dict[str, str]:
    """The argument of `acceptance_join_condition` for rows of `segments`."""
    others = {name: f"{table}.{column}" for name, column in _OF_SEGMENTS.items()}
    return {**_in_sql(table), **others, "file": f"'{LOG_SUFFIX}'"}


def finding_columns_in_sql(table: str) -> dict[str, str]:
    """The argument of `acceptance_join_condition` for rows of `findings`."""
    return {**_in_sql(table), "found": f"{table}.verdict"}


def _in_sql(table: str) -> dict[str, str]:
    return {name: f"{table}.{name}" for name in MATCHED_COLUMNS}


def _renamed(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """`MATCHED_COLUMNS` of rows that have them under other names."""
    return (
        rows.select([names.get(name, name) for name in MATCHED_COLUMNS])
        .rename_columns(list(MATCHED_COLUMNS))
        .cast(_SCHEMA)
    )


def _with_reasons(findings: pa.Table) -> pa.Table:
    """The findings with reasons as `accepted` has them: never null, and always the same for a gap."""
    is_gap: Values = pc.equal(findings["file"], pa.scalar(GAP))
    reasons: Values = pc.if_else(is_gap, pa.scalar(GAP), pc.coalesce(findings["reason"], pa.scalar("")))
    return findings.set_column(findings.schema.get_field_index("reason"), "reason", reasons)


def _is_verdict(findings: pa.Table) -> Flags:
    return flags_of(pc.is_in(findings["found"], value_set=pa.array(ACCEPTABLE)))
