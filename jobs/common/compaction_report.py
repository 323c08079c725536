"""What compaction has changed, or would change: by topic, file by file, and what stays though it should not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.filesize import decimal

from jobs.common.maintain_tables import MaintainedTable
from jobs.common.tables import SEGMENTS
from kidxlib.compact import NOT_OURS, Action, Outcome
from kidxlib.console import print_line, print_table
from kidxlib.summary import NOT_WELL_SHOWN, TOPICS_SHOWN

#: A row of the JSON object's `changes`.
JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after", "interval_before"),
    *("interval_bytes", "scan_mean_before", "scan_most_before", "scan_mean_after", "scan_most_after"),
)

#: On screen. What a lookup scans is told in bytes of log.
_TOPIC_COLUMNS: Final = (
    *("topic", "action", "changes", "bytes before", "bytes after"),
    *("mean scan before", "mean scan after", "longest scan before", "longest scan after"),
)
_TABLE_COLUMNS: Final = (
    *("table", "files before", "files after", "bytes before", "bytes after"),
    *("rows for a point query before", "rows for a point query after", "rows expired", "files to vacuum"),
)

_KEPT: Final = f"outcome = '{Outcome.KEPT.value}'"
_UNCHANGED: Final = f"outcome = '{Outcome.UNCHANGED.value}'"
_CHANGED: Final = f"NOT ({_KEPT} OR {_UNCHANGED})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSavings:
    """What one action does to the files of one topic; files that stay are not counted.

    Attributes:
        changes: files, or pairs of indexes.
        scan_mean_before, scan_mean_after: bytes of log that a lookup walks through, on average over segments.
        scan_most_before, scan_most_after: at most.
    """

    topic: str
    action: str
    changes: int
    bytes_before: int
    bytes_after: int
    scan_mean_before: int | None
    scan_most_before: int | None
    scan_mean_after: int | None
    scan_most_after: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """What it comes to.

    Attributes:
        changed: some of the files that change, as lines, and how many there are.
        unchanged: how many pairs of indexes have the same bytes at the interval that they are to have.
        kept: likewise of those that stay, though they were to change.
        not_well: how many of these a person should look into.
    """

    topics: list[TopicSavings]
    changed: tuple[int, list[str]]
    unchanged: int
    kept: tuple[int, list[str]]
    not_well: int


def report(changes: DataFrame) -> Report:
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
                for name in ("scan_mean_before", "scan_mean_after")
            ),
            *(F.max(name).alias(name) for name in ("scan_most_before", "scan_most_after")),
        )
        .orderBy("topic", "action")
    )
    [counts] = changes.agg(
        F.count_if(F.expr(_CHANGED)).alias("changed"),
        F.count_if(F.expr(_UNCHANGED)).alias("unchanged"),
        F.count_if(F.expr(_KEPT)).alias("kept"),
        F.count_if(F.expr(_KEPT) & (F.col("reason") != NOT_OURS)).alias("not_well"),
    ).collect()
    return Report(
        topics=[TopicSavings(**row.asDict()) for row in by_topic.collect()],
        changed=(counts["changed"], _lines(changes.where(_CHANGED))),
        unchanged=counts["unchanged"],
        kept=(counts["kept"], _lines(changes.where(_KEPT))),
        not_well=counts["not_well"],
    )


def _lines(changes: DataFrame) -> list[str]:
    shown = changes.orderBy(*SEGMENTS.key, "action", "path").limit(NOT_WELL_SHOWN)
    return [_line(row.asDict()) for row in shown.collect()]


def _line(row: dict[str, Any]) -> str:
    what = f"{row['action']}: {row['path']}: "
    if row["outcome"] == Outcome.KEPT.value:
        return f"kept: {what}{row['reason']}"
    if row["action"] == Action.REMOVE.value:
        return f"{what}{row['bytes_before']:,} bytes, {row['reason']}"
    of_index = " with its .timeindex" if row["action"] in (Action.COARSEN.value, Action.DENSIFY.value) else ""
    intervals = "" if row["interval_before"] is None else f", {row['interval_before']:,} → {row['interval_bytes']:,}"
    return f"{what}{row['bytes_before']:,} → {row['bytes_after']:,} bytes{of_index}{intervals}"


def print_report(found: Report, *, applied: bool) -> None:
    """Show a row per topic and action, and a line for each of a few files."""
    shown = found.topics[:TOPICS_SHOWN]
    print_table(
        "changed" if applied else "would change; nothing was written: --apply does it",
        _TOPIC_COLUMNS,
        [
            (
                topic.topic,
                topic.action,
                topic.changes,
                topic.bytes_before,
                topic.bytes_after,
                *(
                    "-" if cost is None else cost
                    for cost in (
                        topic.scan_mean_before,
                        topic.scan_mean_after,
                        topic.scan_most_before,
                        topic.scan_most_after,
                    )
                ),
            )
            for topic in shown
        ],
        text_columns=2,
    )
    if len(found.topics) > len(shown):
        print_line(f"… and {len(found.topics) - len(shown):,} more rows")
    for count, lines in (found.changed, found.kept):
        for line in lines:
            print_line(line)
        if count > len(lines):
            print_line(f"… and {count - len(lines):,} more; --json has all")
    before = sum(topic.bytes_before for topic in found.topics)
    after = sum(topic.bytes_after for topic in found.topics)
    same = f"; same bytes at the new interval: {found.unchanged:,}" if found.unchanged else ""
    print_line(f"{decimal(before)} → {decimal(after)}, {found.changed[0]:,} changes; {found.kept[0]:,} kept{same}")


def print_tables(tables: Sequence[MaintainedTable], *, applied: bool) -> None:
    """Show a row per table."""
    print_table(
        "tables" if applied else "tables; nothing was written: --apply does it",
        _TABLE_COLUMNS,
        [
            (
                table.table,
                table.before.files,
                _after(table, "files"),
                table.before.bytes,
                _after(table, "bytes"),
                "-" if table.before.point_query_rows is None else table.before.point_query_rows,
                _after(table, "point_query_rows"),
                table.expired_rows,
                table.vacuumed_files,
            )
            for table in tables
        ],
        text_columns=1,
    )


def _after(table: MaintainedTable, name: str) -> int | str:
    value = None if table.after is None else getattr(table.after, name)
    return "-" if value is None else int(value)


def report_as_json(
    found: Report | None, changes: DataFrame | None, tables: Sequence[MaintainedTable]
) -> dict[str, Any]:
    """The JSON object's part about changes."""
    shown: dict[str, Any] = {"tables": [asdict(table) for table in tables]}
    if found is not None and changes is not None:
        rows = changes.select(*JSON_COLUMNS).orderBy(*SEGMENTS.key, "action", "path")
        shown |= {
            "topics": [asdict(topic) for topic in found.topics],
            "changed_count": found.changed[0],
            "unchanged_count": found.unchanged,
            "kept_count": found.kept[0],
            "not_well_count": found.not_well,
            "changes": rows.toArrow().to_pylist(),
        }
    return shown
