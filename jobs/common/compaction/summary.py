"""What compaction has changed, or would change, summed up by topic, with a few files by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.compaction.change import NOT_OURS, ChangeAction, ChangeOutcome
from kidxlib.terminal.build import PROBLEMS_SHOWN

_KEPT: Final = f"outcome = '{ChangeOutcome.KEPT.value}'"
_UNCHANGED: Final = f"outcome = '{ChangeOutcome.UNCHANGED.value}'"
_CHANGED: Final = f"NOT ({_KEPT} OR {_UNCHANGED})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSavings:
    """What one action does to the files of one topic; files that stay are not counted.

    Attributes:
        changes: files, or pairs of indexes.
        mean_scan_bytes_before, mean_scan_bytes_after: bytes of log that a lookup walks through, on average.
        max_scan_bytes_before, max_scan_bytes_after: at most.
    """

    topic: str
    action: str
    changes: int
    bytes_before: int
    bytes_after: int
    mean_scan_bytes_before: int | None
    max_scan_bytes_before: int | None
    mean_scan_bytes_after: int | None
    max_scan_bytes_after: int | None


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What it comes to.

    Attributes:
        changed: some of the files that change, as lines, and how many there are.
        unchanged: how many pairs of indexes have the same bytes at the interval that they are to have.
        kept: some of the files that stay though they were to change, as lines, and how many there are.
        problems: how many of these a person should look into.
    """

    topics: list[TopicSavings]
    changed: tuple[int, list[str]]
    unchanged: int
    kept: tuple[int, list[str]]
    problems: int


def report(changes: DataFrame) -> CompactionReport:
    """Sum changes up."""
    weight = F.coalesce("log_bytes", F.lit(0))
    by_topic = (
        changes.where(_CHANGED)
        .groupBy("topic", "action")
        .agg(
            F.count("*").alias("changes"),
            F.sum("bytes_before").alias("bytes_before"),
            F.coalesce(F.sum("bytes_after"), F.lit(0)).alias("bytes_after"),
            *(
                F.round(F.try_divide(F.sum(F.col(name) * weight), F.sum(F.when(F.col(name).isNotNull(), weight))))
                .cast("bigint")
                .alias(name)
                for name in ("mean_scan_bytes_before", "mean_scan_bytes_after")
            ),
            *(F.max(name).alias(name) for name in ("max_scan_bytes_before", "max_scan_bytes_after")),
        )
        .orderBy("topic", "action")
    )
    [counts] = changes.agg(
        F.count_if(F.expr(_CHANGED)).alias("changed"),
        F.count_if(F.expr(_UNCHANGED)).alias("unchanged"),
        F.count_if(F.expr(_KEPT)).alias("kept"),
        F.count_if(F.expr(_KEPT) & (F.col("reason") != NOT_OURS)).alias("not_well"),
    ).collect()
    return CompactionReport(
        topics=[TopicSavings(**row.asDict()) for row in by_topic.collect()],
        changed=(counts["changed"], _lines(changes.where(_CHANGED))),
        unchanged=counts["unchanged"],
        kept=(counts["kept"], _lines(changes.where(_KEPT))),
        problems=counts["not_well"],
    )


def _lines(changes: DataFrame) -> list[str]:
    shown = changes.orderBy(*SEGMENTS.key, "action", "path").limit(PROBLEMS_SHOWN)
    return [_line(row.asDict()) for row in shown.collect()]


def _line(row: dict[str, Any]) -> str:
    what = f"{row['action']}: {row['path']}: "
    if row["outcome"] == ChangeOutcome.KEPT.value:
        return f"kept: {what}{row['reason']}"
    if row["action"] == ChangeAction.REMOVE.value:
        return f"{what}{row['bytes_before']:,} bytes, {row['reason']}"
    of_index = (
        " with its .timeindex" if row["action"] in (ChangeAction.COARSEN.value, ChangeAction.DENSIFY.value) else ""
    )
    intervals = "" if row["interval_before"] is None else f", {row['interval_before']:,} → {row['interval_bytes']:,}"
    return f"{what}{row['bytes_before']:,} → {row['bytes_after']:,} bytes{of_index}{intervals}"
