"""What of an audit is accepted, and what the last audits of a catalog say that is not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.common.catalog.catalog import Catalog
from jobs.common.damage.acceptances import still_accepted
from jobs.common.damage.finding import ACCEPTABLE, VERSION_NAMES, Damage
from jobs.common.damage.segments import known_damage
from jobs.common.spark.local_rows import of_driver
from kidxlib.audit.finding import ALSO
from kidxlib.audit.rows import Kind
from kidxlib.audit.summary import NOTHING_LOST, AuditSummary
from kidxlib.catalog.findings import ACCEPTED
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.operations.known_damage import ACCEPTED_STATUS
from kidxlib.terminal.console import print_line

#: What a finding and what was accepted have in common.
_SAME: Final = (*ACCEPTED.key, "position", "path", *VERSION_NAMES)
_IDENTITY: Final = (*_SAME, "found", "detail", "consequence")


@dataclass(frozen=True, slots=True)
class AcceptedFindings:
    """What of an audit's findings is accepted.

    Attributes:
        files: how many, by suffix and verdict.
        losses: segments of which a broker would drop something at its next start, by what it does: those whose own
            log's damage is accepted; and those of a partition in whose logs all damage is accepted, with what a broker
            does about it: it was known then that it deletes these.
    """

    files: Mapping[tuple[str, str], int] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.files.values())

    def show(self) -> None:
        if self.count:
            print_line(f"accepted: {self.count:,} of these findings; they fail no audit (table {ACCEPTED.name})")

    def taken_from(self, summary: AuditSummary) -> AuditSummary:
        """What an audit comes to without it: what its exit code goes by."""
        actions = {
            action: replace(counts, segments=counts.segments - self.losses.get(action, 0))
            for action, counts in summary.actions.items()
        }
        return replace(summary, files=summary.files - Counter(self.files), actions=actions)


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
    def of(cls, catalog: Catalog, found: DataFrame, sources: Sequence[str], topics: re.Pattern[str]) -> Self:
        """What is accepted of an audit of some sources and topics, which found `found`: rows of `FOUND`, computed."""
        audited = catalog.audited_sources()
        held = still_accepted(catalog, audited)
        return cls(
            _accepted_findings(catalog, found, [each for each in held if each.source in sources]),
            known_damage(catalog, sources, topics).figures,
            _files_of_last_audits(catalog, audited, held),
        )


def _accepted_findings(catalog: Catalog, found: DataFrame, held: Collection[Damage]) -> AcceptedFindings:
    """What of an audit is accepted.

    Args:
        found: rows of `FOUND`, computed.
        held: what is accepted of its sources.
    """
    if not held:
        return AcceptedFindings()
    files = found.where(f"{Kind.FILE} IS NOT NULL").select(f"{Kind.FILE}.*").where(F.col("verdict").isin(*ACCEPTABLE))
    judged = _judged(catalog, files, held).cache()
    try:
        counts = judged.where("is_accepted").groupBy("file", "verdict").count().collect()
        logs = judged.where(F.col("file") == LOG_SUFFIX)
        excused = logs.groupBy(*PARTITIONS.key).agg(F.every("knows_consequence").alias("excused")).where("excused")
        segments = found.where(f"{Kind.SEGMENT} IS NOT NULL").select(f"{Kind.SEGMENT}.*")
        lost = segments.where(~F.col("action").isin(*(action.value for action in NOTHING_LOST)))
        of_partitions = lost.join(F.broadcast(excused), list(PARTITIONS.key), "left_semi")
        of_logs = lost.join(F.broadcast(logs.where("is_accepted")), list(SEGMENTS.key), "left_semi")
        losses = of_partitions.union(of_logs).distinct().groupBy("action").count().collect()
    finally:
        judged.unpersist()
    return AcceptedFindings(
        {(row["file"], row["verdict"]): row["count"] for row in counts}, {row["action"]: row["count"] for row in losses}
    )


def _files_of_last_audits(
    catalog: Catalog, sources: Collection[str], held: Collection[Damage]
) -> Counter[tuple[str, str]]:
    """How many files the last audit of their partition found wrong, by source and verdict. Files that are accepted have
    `ACCEPTED_STATUS` in place of their verdict.

    Args:
        sources: all that were ever audited.
        held: what is accepted of them.
    """
    verdicts = (*ACCEPTABLE, ACCEPTED_STATUS)
    files: Counter[tuple[str, str]] = Counter(dict.fromkeys(((source, v) for source in sources for v in verdicts), 0))
    found = catalog.last_findings(sources, ACCEPTABLE)
    judged = _judged(catalog, found, held)
    for row in judged.groupBy("source", "verdict", "is_accepted").count().collect():
        files[row["source"], ACCEPTED_STATUS if row["is_accepted"] else row["verdict"]] += row["count"]
    return files


def _judged(catalog: Catalog, files: DataFrame, held: Collection[Damage]) -> DataFrame:
    """Findings with `is_accepted`: the file is as it was, and what is found in it is what was accepted: not another
    byte, not a torn end that is broken by now, and nothing besides. And `knows_consequence`: it leads to the same.
    """
    columns = ACCEPTED.schema(_IDENTITY)
    values = [tuple(getattr(damage, name) for name in columns.names) for damage in held]
    accepted = of_driver(catalog.spark, values, columns).withColumn("is_accepted", F.lit(True))
    same = [F.col(f"found.{name}").eqNullSafe(F.col(f"accepted.{name}")) for name in _SAME]
    # A build says of a segment how it stands, an audit of its log a verdict.
    same.append(F.col("accepted.found").isin(*ACCEPTABLE) <= (F.col("accepted.found") == F.col("found.verdict")))
    merged = F.contains(F.coalesce("found.detail", F.lit("")), F.lit(ALSO))
    same.append(merged <= F.col("found.detail").eqNullSafe(F.col("accepted.detail")))
    condition = reduce(Column.__and__, same)
    joined = files.alias("found").join(F.broadcast(accepted.alias("accepted")), condition, "left")
    is_accepted = F.coalesce("is_accepted", F.lit(False))
    same_consequence = F.col("found.consequence").eqNullSafe(F.col("accepted.consequence"))
    return joined.select(
        "found.*", is_accepted.alias("is_accepted"), (is_accepted & same_consequence).alias("knows_consequence")
    )
