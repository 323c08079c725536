"""The rows of the table `accepted`, read, written and removed; and the damage that nobody has accepted. The module
`acceptance_rule` says when an acceptance still holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa

from kidxlib.audit.gaps import GAP, Directories, Gap, finding_row, range_in
from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED, FINDINGS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.damage.acceptance_rule import (
    ACCEPTABLE,
    SEGMENT_COLUMNS,
    findings_of,
    findings_of_segments,
    match_acceptances,
)
from kidxlib.operations.damage.damaged_segments import DAMAGED, last_findings
from kidxlib.operations.damage.gaps import gaps_between, known_logs, recorded_policies_and_directories
from kidxlib.run.known_topics import read_known_topics
from kidxlib.run.sources import as_sources, source_paths
from kidxlib.storage.location import location, version_at
from kidxlib.tables.protocol import Tables
from kidxlib.terminal.console import warn


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
class Damage:
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


_OF_FINDINGS: Final = FINDINGS.schema(Damage.__dataclass_fields__.keys()).names


def version_now(path: str) -> tuple[int | None, int | None, int | None]:
    version = version_at(location(path))
    return (None, None, None) if version is None else (version.size, version.mtime_ns, version.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    damage: Damage
    accepted_by: str
    accepted_at: datetime
    accepted_reason: str

    @property
    def line(self) -> str:
        return (
            f"{self.damage.name} (by {self.accepted_by} at {self.accepted_at:%Y-%m-%d %H:%M}Z: {self.accepted_reason})"
        )


def accepted(tables: Tables, sources: Collection[str], selected: Selected | None = None) -> list[Acceptance]:
    """The selected acceptances, or all, whether they still hold or not."""
    rows = tables.read(ACCEPTED, None, [Among("source", tuple(sources))])
    names = [field.name for field in fields(Damage)]
    return [
        Acceptance(
            damage=Damage(**{name: row[name] for name in names}),
            accepted_by=row["accepted_by"],
            accepted_at=row["accepted_at"],
            accepted_reason=row["accepted_reason"],
        )
        for row in rows.sort_by([(name, "ascending") for name in ACCEPTED.key]).to_pylist()
        if selected is None or selected.has(row)
    ]


def accept(tables: Tables, damages: Sequence[Damage], by: str, at: datetime, reason: str) -> None:
    """Record that damage is accepted. This replaces an earlier acceptance with the same reason."""
    acceptance = {"accepted_by": by, "accepted_at": at, "accepted_reason": reason}
    rows = pa.Table.from_pylist([{**asdict(damage), **acceptance} for damage in damages], ACCEPTED.schema())
    tables.change_rows(ACCEPTED, {"row": rows}, partial(updates.written, table=ACCEPTED), by=ACCEPTED.key)


def withdraw(tables: Tables, acceptances: Sequence[Acceptance]) -> None:
    keys = [dict(zip(ACCEPTED.key, acceptance.damage.key, strict=True)) for acceptance in acceptances]
    rows = pa.Table.from_pylist(keys, ACCEPTED.schema(ACCEPTED.key))
    tables.change_rows(ACCEPTED, {"key": rows}, partial(updates.removed, table=ACCEPTED), by=ACCEPTED.key)


def still_accepted(tables: Tables, sources: Collection[str]) -> list[Acceptance]:
    """The acceptances of files that have not changed since, as this machine sees them."""
    return [
        acceptance
        for acceptance in accepted(tables, sources)
        if version_now(acceptance.damage.path) == acceptance.damage.version
    ]


@dataclass(frozen=True, slots=True)
class NewDamage:
    """Damage that nobody has accepted, or only with another consequence.

    Attributes:
        all: all damage, accepted or not.
        accepted: the acceptances that still hold.
        new: damage without such an acceptance.
        again: the keys of `new` damage that was accepted when its consequence was another.
    """

    all: list[Damage]
    accepted: list[Acceptance]
    new: list[Damage]
    again: frozenset[tuple[Any, ...]]

    def line(self, damage: Damage) -> str:
        at = "" if damage.position is None else f" at byte {damage.position:,}"
        again = (
            "; accepted before, when something else was known of what it leads to" if damage.key in self.again else ""
        )
        return f"{damage.name}{at}: {damage.detail or damage.path}{again}"


def new_damage(tables: Tables, sources: Collection[str], selected: Selected) -> NewDamage:
    recorded = accepted(tables, sources, selected)
    paths = {name: path for name, path in source_paths(tables).items() if name in sources}
    known_topics = read_known_topics(as_sources(paths))
    policy_of, directories = recorded_policies_and_directories(tables, sources, known_topics)
    gaps = gaps_between(tables, known_logs(tables, sources, selected.topics), policy_of, directories).all_lost
    damages = damage_now(tables, sources, selected, gaps, directories)
    matched = match_acceptances(
        findings_of(map(asdict, damages)), findings_of(asdict(acceptance.damage) for acceptance in recorded)
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
    tables: Tables, sources: Collection[str], selected: Selected, gaps: Sequence[Gap], directories: Directories
) -> list[Damage]:
    """The damage that the catalog knows: segments by builds, files by the last audit of their partition, and gaps
    between logs, whether an audit has seen these or not.
    """
    damaged = tables.read(SEGMENTS, SEGMENT_COLUMNS, [Among("source", tuple(sources)), DAMAGED])
    of_segments = [Damage(**row) for row in findings_of_segments(damaged).to_pylist() if selected.has(row)]
    known = {damage.key: damage for damage in of_segments}
    for row in last_findings(tables, sources, [Among("verdict", ACCEPTABLE)], [*_OF_FINDINGS, "verdict"]).to_pylist():
        if row["file"] == GAP or not selected.has(row):
            continue
        damage = Damage(**{name: row[name] for name in _OF_FINDINGS}, found=row["verdict"])
        if version_now(damage.path) != damage.version:
            warn(f"{damage.path}: it has changed since it was audited: run verify_index again to accept what it is now")
            continue
        # If a build and an audit both found damage in a log, the audit's finding is kept: it says more.
        of_build = known.get(damage.key, damage)
        if (of_build.position, of_build.version) == (damage.position, damage.version):
            known[damage.key] = damage
    of_gaps = [_of_gap(gap, directories) for gap in gaps]
    known |= {damage.key: damage for damage in of_gaps if selected.has(asdict(damage))}
    return sorted(known.values(), key=lambda damage: damage.key)


def _of_gap(gap: Gap, directories: Directories) -> Damage:
    """A gap as damage that may be accepted. Its reason is always the same: further evidence makes it no other gap."""
    row = finding_row(gap, directories.places[gap.partition_key]).values()
    values = {name: row[name] for name in _OF_FINDINGS if name in row}
    return Damage(**{**values, "reason": GAP, "found": row["verdict"]})
