"""What was accepted: the rows of the table `accepted`, and when they no longer hold.

An acceptance is one of a finding: of this file, as it is now, with this reason at this byte. Where any of these is
another, nobody has looked at it, and it counts as damage again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.catalog.merge import delete_rows, merge_whole_rows
from jobs.common.damage.acceptable import Selects, is_selected
from jobs.common.damage.finding import Damage, version_now
from jobs.common.spark.local_rows import of_driver
from kidxlib.catalog.findings import ACCEPTED


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
        if is_selected(row, selects)
    ]


def accept(catalog: Catalog, damages: Sequence[Damage], by: str, at: datetime, reason: str) -> None:
    """Record that these are accepted; of an earlier acceptance of the same reason this takes the place."""
    names = [field.name for field in fields(Damage)]
    values = [(*(getattr(damage, name) for name in names), by, at, reason) for damage in damages]
    rows = of_driver(catalog.spark, values, ACCEPTED.schema())
    catalog.commit(ACCEPTED, lambda target: merge_whole_rows(target, ACCEPTED, rows))


def withdraw(catalog: Catalog, acceptances: Sequence[Acceptance]) -> None:
    """Remove these rows."""
    keys = [acceptance.damage.key for acceptance in acceptances]
    rows = of_driver(catalog.spark, keys, ACCEPTED.schema(ACCEPTED.key))
    catalog.commit(ACCEPTED, lambda target: delete_rows(target, ACCEPTED, rows))


def still_accepted(catalog: Catalog, sources: Collection[str]) -> list[Damage]:
    """What was accepted of files that are still what they were, as this machine sees them."""
    found = accepted(catalog, sources, lambda *_: True)
    return [each.damage for each in found if version_now(each.damage.path) == each.damage.version]
