"""What was accepted: the rows of the table `accepted`, and when they no longer hold.

An acceptance is one of a finding: of this file, as it is now, with this reason at this byte. Where any of these is
another, nobody has looked at it, and it counts as damage again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from kidxlib.audit.gaps import GAP, range_in
from kidxlib.catalog import updates
from kidxlib.catalog.conditions import Among
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.storage.location import location, version_at
from kidxlib.tables.protocol import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """What was asked for.

    Attributes:
        segments: by name, as `orders-3/1048576`.
        gaps: by name, as `orders-3/100-199`. Where neither is named, all are meant.
    """

    segments: Collection[str]
    gaps: Collection[str]
    topics: re.Pattern[str]

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether a segment, or a finding on a file or a gap, was asked for.

        Args:
            row: the key of a segment; of a finding `file` and `detail`, too.
        """
        partition = f"{row['topic']}-{row['partition']}"
        if row.get("file") == GAP:
            is_named = f"{partition}/{range_in(row['detail'])}" in self.gaps
        else:
            is_named = f"{partition}/{row['base_offset']}" in self.segments
        is_asked = is_named or not (self.segments or self.gaps)
        return is_asked and self.topics.fullmatch(row["topic"]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A finding that may be accepted; fields as in the table `accepted`."""

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
        """The key of its row in the table `accepted`."""
        return tuple(getattr(self, name) for name in ACCEPTED.key)

    @property
    def name(self) -> str:
        """What a person calls it."""
        if self.file == GAP:
            return f"{self.source}: {self.topic}-{self.partition}/{range_in(self.detail)}: {self.reason}"
        segment = f"{self.topic}-{self.partition}/{self.base_offset}"
        return f"{self.source}: {segment} {self.file}: {self.found}: {self.reason}"

    @property
    def version(self) -> tuple[int | None, int | None, int | None]:
        return self.file_bytes, self.file_mtime_ns, self.file_inode


def version_now(path: str) -> tuple[int | None, int | None, int | None]:
    version = version_at(location(path))
    return (None, None, None) if version is None else (version.size, version.mtime_ns, version.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A row of the table `accepted`."""

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
    """What was accepted, whether it still holds or not; None selects all."""
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
    """Record that these are accepted; of an earlier acceptance of the same reason this takes the place."""
    of_all = {"accepted_by": by, "accepted_at": at, "accepted_reason": reason}
    rows = pa.Table.from_pylist([{**asdict(damage), **of_all} for damage in damages], ACCEPTED.schema())
    tables.change(ACCEPTED, {"row": rows}, partial(updates.written, table=ACCEPTED), by=ACCEPTED.key)


def withdraw(tables: Tables, acceptances: Sequence[Acceptance]) -> None:
    """Remove these rows."""
    keys = [dict(zip(ACCEPTED.key, acceptance.damage.key, strict=True)) for acceptance in acceptances]
    rows = pa.Table.from_pylist(keys, ACCEPTED.schema(ACCEPTED.key))
    tables.change(ACCEPTED, {"key": rows}, partial(updates.removed, table=ACCEPTED), by=ACCEPTED.key)


def still_accepted(tables: Tables, sources: Collection[str]) -> list[Acceptance]:
    """What was accepted of files that are still what they were, as this machine sees them."""
    found = accepted(tables, sources)
    return [each for each in found if version_now(each.damage.path) == each.damage.version]
