"""When an acceptance of damage still holds: one rule, for tables of Arrow and as the condition of a join in SQL.

An acceptance is for one finding: this file in its present state, with this reason at this byte. If any of these
changes, nobody has seen the new finding, and it counts as damage again. A gap has no file: it is the same gap while it
has the same offsets, which its detail names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.finding import ALSO, DAMAGE
from kidxlib.audit.gaps import GAP
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.matching import Flags, Positions, Values, differing, flags_of, positions_in
from kidxlib.catalog.segments import SEGMENTS, LogVersion
from kidxlib.format.segment_files import LOG_SUFFIX

#: The verdicts that may be accepted; others are harmless and need no acceptance.
ACCEPTABLE: Final = tuple(verdict.value for verdict in DAMAGE)
#: The columns of `findings` and `accepted` with a file's state.
VERSION_NAMES: Final = ("file_bytes", "file_mtime_ns", "file_inode")
#: The columns in which a finding and its acceptance must agree, besides the key of `accepted`.
_SAME: Final = ("position", "path", *VERSION_NAMES)
_SCHEMA: Final = ACCEPTED.schema({*ACCEPTED.key, *_SAME, "found", "detail", "consequence"})
#: The columns of a finding and of its acceptance that the rule reads, by their names in `accepted`.
COLUMNS: Final = tuple(_SCHEMA.names)
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
    """The acceptance of each finding that still holds. Both tables have `COLUMNS`."""
    findings, accepted = _with_reasons(findings.select(COLUMNS)), accepted.select(COLUMNS)
    at = positions_in(findings, accepted, ACCEPTED.key)
    places: Values = pa.array(np.maximum(at, 0), mask=at < 0)
    acceptances = accepted.take(places)
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


def findings_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """`COLUMNS` of findings; null where a finding lacks a value."""
    return pa.Table.from_pylist([{name: row.get(name) for name in COLUMNS} for row in rows], _SCHEMA)


def findings_of_segments(rows: pa.Table) -> pa.Table:
    """`COLUMNS` of builds' findings on logs, from `SEGMENT_COLUMNS` of damaged segments."""
    nothing = pa.nulls(rows.num_rows, pa.string())
    of_logs = rows.append_column("file", nothing.fill_null(LOG_SUFFIX)).append_column("consequence", nothing)
    return _renamed(of_logs, _OF_SEGMENTS)


def findings_of_audits(rows: pa.Table) -> pa.Table:
    """`COLUMNS` of rows of `findings`."""
    return _renamed(rows, {"found": "verdict"})


def others_of(accepted: pa.Table) -> pa.Table:
    """The acceptances of several findings at once, split: a row for each finding except the first."""
    more = []
    for row in accepted.filter(pc.match_substring(accepted["detail"], ALSO)).to_pylist():
        for text in row["detail"].split(ALSO)[1:]:
            if (another := _ANOTHER.fullmatch(text)) is not None:
                position = another["position"] and int(another["position"])
                more.append({**row, "reason": another["reason"], "position": position, "detail": another["detail"]})
    return pa.Table.from_pylist(more, accepted.schema)


def on_accepted(finding: Mapping[str, str]) -> str:
    """The rule as the condition of a join with `accepted AS a`. `finding` has the SQL expression of each of `COLUMNS`
    but the consequence.
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


def of_segments_in_sql(table: str) -> dict[str, str]:
    """The argument of `on_accepted` for rows of `segments`."""
    others = {name: f"{table}.{column}" for name, column in _OF_SEGMENTS.items()}
    return {**_in_sql(table), **others, "file": f"'{LOG_SUFFIX}'"}


def of_audits_in_sql(table: str) -> dict[str, str]:
    """The argument of `on_accepted` for rows of `findings`."""
    return {**_in_sql(table), "found": f"{table}.verdict"}


def _in_sql(table: str) -> dict[str, str]:
    return {name: f"{table}.{name}" for name in COLUMNS}


def _renamed(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """`COLUMNS` of rows that have them under other names."""
    return rows.select([names.get(name, name) for name in COLUMNS]).rename_columns(list(COLUMNS)).cast(_SCHEMA)


def _with_reasons(findings: pa.Table) -> pa.Table:
    """The findings with reasons as `accepted` has them: never null, and always the same for a gap."""
    is_gap: Values = pc.equal(findings["file"], pa.scalar(GAP))
    reasons: Values = pc.if_else(is_gap, pa.scalar(GAP), pc.coalesce(findings["reason"], pa.scalar("")))
    return findings.set_column(findings.schema.get_field_index("reason"), "reason", reasons)


def _is_verdict(findings: pa.Table) -> Flags:
    return flags_of(pc.is_in(findings["found"], value_set=pa.array(ACCEPTABLE)))
