"""Damage that is known and accepted: what there is to accept, what was accepted, and when that no longer holds.

An acceptance is one of a finding: of this file, as it is now, with this reason at this byte. Where any of these is
another, nobody has looked at it, and it counts as damage again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import reduce
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column
from pyspark.sql import functions as F

from jobs.common.catalog import Catalog
from jobs.common.commits import while_others_commit
from jobs.common.driver_rows import of_driver
from jobs.common.known_damage import is_damaged
from jobs.common.tables import ACCEPTED, LOG_VERSION_NAMES, SEGMENTS, spark_schema
from kidxlib.audit import Verdict
from kidxlib.audit_log import ALSO
from kidxlib.console import warn
from kidxlib.names import LOG_SUFFIX
from kidxlib.objects import location
from kidxlib.show_audit import DAMAGE
from kidxlib.storage import version_at

#: Verdicts of an audit that may be accepted: those that are nothing to worry about need not be.
ACCEPTABLE: Final = tuple(verdict.value for verdict in DAMAGE)
VERSION_NAMES: Final = ("file_bytes", "file_mtime_ns", "file_inode")


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
        """That of the table `accepted`."""
        return tuple(getattr(self, name) for name in ACCEPTED.key)

    @property
    def name(self) -> str:
        """What a person calls it."""
        segment = f"{self.topic}-{self.partition}/{self.base_offset}"
        return f"{self.source}: {segment} {self.file}: {self.found}: {self.reason}"

    @property
    def identity(self) -> tuple[Any, ...]:
        """What must still be so for an acceptance to hold: a torn end may be broken by now, and where a finding stands
        for several, each of them counts.
        """
        others = self.detail if ALSO in (self.detail or "") else None
        return (
            *self.key,
            self.position,
            *self.version,
            self.path,
            self.found == Verdict.TORN,
            others,
            self.consequence,
        )

    @property
    def version(self) -> tuple[int | None, int | None, int | None]:
        return self.file_bytes, self.file_mtime_ns, self.file_inode


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


#: Says of a source, topic, partition and base offset whether it was asked for.
Selects = Callable[[str, str, int, int], bool]


def damage_now(catalog: Catalog, sources: Collection[str], selects: Selects) -> list[Damage]:
    """What the catalog knows to be damaged: segments, and files that the last audit of their partition found so."""
    segments = catalog.read(SEGMENTS).where(F.col("source").isin(*sources))
    damaged = segments.where(is_damaged()).select(
        *SEGMENTS.key,
        F.lit(LOG_SUFFIX).alias("file"),
        "reason",
        F.col("reason_position").alias("position"),
        F.col("status").alias("found"),
        F.col("reason_detail").alias("detail"),
        F.lit(None).cast("string").alias("consequence"),
        *(F.col(name).alias(other) for name, other in zip(LOG_VERSION_NAMES, VERSION_NAMES, strict=True)),
        F.col("log_path").alias("path"),
    )
    of_segments = [Damage(**row.asDict()) for row in damaged.collect() if _selected(row, selects)]
    known = {damage.key: damage for damage in of_segments}
    for row in catalog.last_findings(sources, ACCEPTABLE).collect():
        damage = _found(row.asDict())
        if not _selected(row, selects):
            continue
        if _version(damage.path) != damage.version:
            warn(f"{damage.path}: it has changed since it was audited: run verify_index again to accept what it is now")
            continue
        # What an audit says of a log that the catalog says too is one finding; the audit's word has more.
        of_build = known.get(damage.key, damage)
        if (of_build.position, of_build.version) == (damage.position, damage.version):
            known[damage.key] = damage
    return sorted(known.values(), key=lambda damage: damage.key)


def accepted(catalog: Catalog, sources: Collection[str], selects: Selects) -> list[Acceptance]:
    """What was accepted, whether it still holds or not."""
    rows = catalog.read(ACCEPTED).where(F.col("source").isin(*sources)).orderBy(*ACCEPTED.key).collect()
    names = [field.name for field in fields(Damage)]
    return [
        Acceptance(
            damage=Damage(**{name: row[name] for name in names}),
            accepted_by=row["accepted_by"],
            accepted_at=row["accepted_at"],
            accepted_reason=row["accepted_reason"],
        )
        for row in rows
        if _selected(row, selects)
    ]


def accept(catalog: Catalog, damages: Sequence[Damage], by: str, at: datetime, reason: str) -> None:
    """Record that these are accepted; of an earlier acceptance of the same reason this takes the place."""
    names = [field.name for field in fields(Damage)]
    values = [(*(getattr(damage, name) for name in names), by, at, reason) for damage in damages]
    rows = of_driver(catalog.spark, values, spark_schema(ACCEPTED.columns))

    def commit(target: DeltaTable) -> None:
        merge = target.alias("old").merge(rows.alias("new"), _same_key())
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    _commit(catalog, commit)


def withdraw(catalog: Catalog, acceptances: Sequence[Acceptance]) -> None:
    """Remove these rows."""
    keys = [acceptance.damage.key for acceptance in acceptances]
    rows = of_driver(catalog.spark, keys, ACCEPTED.schema(ACCEPTED.key))

    def commit(target: DeltaTable) -> None:
        target.alias("old").merge(rows.alias("new"), _same_key()).whenMatchedDelete().execute()

    _commit(catalog, commit)


def still_accepted(catalog: Catalog, sources: Collection[str]) -> list[Damage]:
    """What was accepted of files that are still what they were, as this machine sees them."""
    found = accepted(catalog, sources, lambda *_: True)
    return [each.damage for each in found if _version(each.damage.path) == each.damage.version]


def selected_segments(names: Collection[str], topics: re.Pattern[str]) -> Selects:
    """What `--segment` and `--topics` select.

    Args:
        names: `TOPIC-PARTITION/BASE_OFFSET` each; all segments where there is none.
    """

    def selects(source: str, topic: str, partition: int, base_offset: int) -> bool:
        named = not names or f"{topic}-{partition}/{base_offset}" in names
        return named and topics.fullmatch(topic) is not None

    return selects


def _selected(row: Any, selects: Selects) -> bool:
    return selects(*(row[name] for name in SEGMENTS.key))


def _found(finding: Mapping[str, Any]) -> Damage:
    """A row of `findings`."""
    names = [field.name for field in fields(Damage) if field.name != "found"]
    return Damage(**{name: finding[name] for name in names}, found=finding["verdict"])


def _version(path: str) -> tuple[int | None, int | None, int | None]:
    version = version_at(location(path))
    return (None, None, None) if version is None else (version.size, version.mtime_ns, version.inode)


def _same_key() -> Column:
    return reduce(Column.__and__, [F.col(f"old.{name}") == F.col(f"new.{name}") for name in ACCEPTED.key])


def _commit(catalog: Catalog, commit: Callable[[DeltaTable], None]) -> None:
    path = catalog.table_path(ACCEPTED)
    while_others_commit(path, lambda: commit(DeltaTable.forPath(catalog.spark, path)))
