"""What the catalog knows to be damaged, whether a run finds anything new or not; and what of that is accepted.

A segment that was read once is not read again while it stays as it is, so a run that goes by what it has read itself
would call a source well at the second look.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog import Catalog
from jobs.common.driver_rows import of_driver
from jobs.common.tables import ACCEPTED, LOG_VERSION_NAMES, SEGMENTS, Table
from kidxlib.console import print_line
from kidxlib.names import LOG_SUFFIX
from kidxlib.plan import PartitionKey
from kidxlib.recover import ABSENT, Status
from kidxlib.summary import NOT_WELL_KEPT, NotWell

#: Beside the statuses, what the figures call segments that are damaged and accepted as they are.
ACCEPTED_STATUS: Final = "accepted"

_NO_DAMAGE: Final = (Status.OK, *ABSENT)
_ACCEPTANCE: Final = ("accepted_by", "accepted_at", "accepted_reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSegment(NotWell):
    """A damaged segment of the catalog, as the tables `segments` and `accepted` have it; None: not accepted."""

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
    """How the segments stand that a catalog has.

    Attributes:
        segments: of the whole catalog, by source and status; those that are accepted have `ACCEPTED_STATUS` in place of
            theirs.
        damaged: how many of the sources and topics that were asked for are damaged, and not accepted.
        accepted: how many of these are accepted.
        listed: of both, the damaged ones first; at most `NOT_WELL_KEPT`.
    """

    segments: Mapping[tuple[str, str], int] = field(default_factory=dict)
    damaged: int = 0
    accepted: int = 0
    listed: Sequence[DamagedSegment] = ()

    def present(self, source: str) -> int:
        """How many segments of a source are in it, as far as the catalog knows."""
        return sum(count for (name, status), count in self.segments.items() if name == source and status not in ABSENT)

    @property
    def figures(self) -> dict[tuple[str, str], int]:
        """`segments`, zeros too: a figure that vanished would look like one that nobody took."""
        statuses = (*(status.value for status in Status), ACCEPTED_STATUS)
        sources = sorted({source for source, _ in self.segments})
        return {(source, status): self.segments.get((source, status), 0) for source in sources for status in statuses}

    @property
    def counts(self) -> dict[str, int]:
        return {"damaged": self.damaged, "accepted": self.accepted}

    def as_json(self) -> dict[str, Any]:
        return {**self.counts, "segments": [segment.as_json() for segment in self.listed]}

    def show(self) -> None:
        """Print how many there are, the first by name, and how to see the others; nothing where there is none."""
        if self.damaged:
            more = f", and {self.accepted:,} accepted" if self.accepted else ""
            print_line(f"damaged: {_segments(self.damaged)} of the catalog{more}; the first is {self.listed[0].line}")
            print_line(
                "  all of them: --json, or in the catalog SELECT * FROM segments WHERE status NOT IN "
                "('ok', 'gone', 'deleted'); ./spark-submit.sh accept records that one may stay as it is"
            )
        elif self.accepted:
            first = self.listed[0]
            print_line(
                f"accepted: {_segments(self.accepted)} of the catalog, damaged; the first is {first.line} "
                f"(by {first.accepted_by}: {first.accepted_reason})"
            )


def _segments(count: int) -> str:
    return f"{count:,} segment{'s' if count != 1 else ''}"


def known_damage(
    catalog: Catalog,
    sources: Collection[str],
    topics: re.Pattern[str],
    gone: Collection[tuple[PartitionKey, int]] = (),
) -> KnownDamage:
    """How a catalog's segments stand.

    Args:
        sources, topics: what was asked for; topics by their full names.
        gone: segments that a listing did not find, if that is not recorded yet.
    """
    counts = catalog.read(SEGMENTS).groupBy("source", "status").count().collect()
    segments = Counter({(row["source"], row["status"]): int(row["count"]) for row in counts})
    if all(status in _NO_DAMAGE for _, status in segments):
        return KnownDamage(segments=segments)
    found = _damaged(catalog)
    if gone:
        keys = of_driver(catalog.spark, [(*key, base) for key, base in gone], SEGMENTS.schema(SEGMENTS.key))
        found = found.join(keys, list(SEGMENTS.key), "left_anti")
    found = found.cache()  # few, and asked for twice
    try:
        is_accepted = F.col("accepted_by").isNotNull().alias("is_accepted")
        by_topic = found.groupBy("source", "topic", "status", is_accepted).count().collect()
        for row in by_topic:
            if row["is_accepted"]:
                segments[row["source"], row["status"]] -= row["count"]
                segments[row["source"], ACCEPTED_STATUS] += row["count"]
        asked = [row for row in by_topic if row["source"] in sources and topics.fullmatch(row["topic"])]
        wanted = F.col("source").isin(*sources) & F.col("topic").isin(*{row["topic"] for row in asked})
        first = found.where(wanted).orderBy(is_accepted, *SEGMENTS.key).limit(NOT_WELL_KEPT).collect() if asked else []
    finally:
        found.unpersist()
    return KnownDamage(
        segments=segments,
        damaged=sum(row["count"] for row in asked if not row["is_accepted"]),
        accepted=sum(row["count"] for row in asked if row["is_accepted"]),
        listed=[DamagedSegment(**row.asDict()) for row in first],
    )


def is_there(catalog: Catalog, table: Table) -> bool:
    return DeltaTable.isDeltaTable(catalog.spark, catalog.table_path(table))


def is_damaged() -> Column:
    """Of a row of `segments`: its log is in its source, and not well from end to end."""
    return ~F.col("status").isin(*(status.value for status in _NO_DAMAGE))


def _damaged(catalog: Catalog) -> DataFrame:
    """The columns of `DamagedSegment`, each segment with who accepted it as it is now."""
    columns = ("status", "reason", "reason_position", "reason_detail", "log_path")
    segments = catalog.read(SEGMENTS).where(is_damaged()).select(*SEGMENTS.key, *columns, *LOG_VERSION_NAMES)
    if not is_there(catalog, ACCEPTED):  # a catalog of an older release, that no build has brought up to date
        nobody = (F.lit(None).cast(field.dataType).alias(field.name) for field in ACCEPTED.schema(_ACCEPTANCE))
        return segments.drop(*LOG_VERSION_NAMES).select("*", *nobody)
    accepted = catalog.read(ACCEPTED).where(F.col("file") == LOG_SUFFIX)
    same = {
        **{name: name for name in (*SEGMENTS.key, "reason")},
        "reason_position": "position",
        **dict(zip(LOG_VERSION_NAMES, ("file_bytes", "file_mtime_ns", "file_inode"), strict=True)),
    }
    condition = reduce(
        Column.__and__, [F.col(f"found.{name}").eqNullSafe(F.col(f"accepted.{other}")) for name, other in same.items()]
    )
    joined = segments.alias("found").join(F.broadcast(accepted.alias("accepted")), condition, "left")
    return joined.select(*(f"found.{name}" for name in (*SEGMENTS.key, *columns)), *_ACCEPTANCE)
