"""What is shown of compaction: tables on screen, or a JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import DataFrame
from rich.filesize import decimal

from jobs.common.compaction.summary import CompactionReport
from jobs.common.compaction.tables import MaintainedTable
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.terminal.build import TOPICS_SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.terminal.tables import print_table

#: A row of the JSON object's `changes`.
JSON_COLUMNS: Final = (
    *(*SEGMENTS.key, "action", "outcome", "reason", "path", "bytes_before", "bytes_after", "interval_before"),
    *("interval_bytes", "mean_scan_bytes_before", "max_scan_bytes_before"),
    *("mean_scan_bytes_after", "max_scan_bytes_after"),
)

#: On screen. What a lookup scans is given in bytes of log.
_TOPIC_COLUMNS: Final = (
    *("topic", "action", "changes", "bytes before", "bytes after"),
    *("mean scan before", "mean scan after", "longest scan before", "longest scan after"),
)
_TABLE_COLUMNS: Final = (
    *("table", "files before", "files after", "bytes before", "bytes after"),
    *("rows for a point query before", "rows for a point query after", "rows expired", "files to vacuum"),
)


def print_report(found: CompactionReport, *, applied: bool) -> None:
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
                        topic.mean_scan_bytes_before,
                        topic.mean_scan_bytes_after,
                        topic.max_scan_bytes_before,
                        topic.max_scan_bytes_after,
                    )
                ),
            )
            for topic in shown
        ],
        text_columns=2,
    )
    print_more(len(found.topics) - len(shown), " rows")
    for count, lines in (found.changed, found.kept):
        for line in lines:
            print_line(line)
        print_more(count - len(lines), "; --json has all")
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
    found: CompactionReport | None, changes: DataFrame | None, tables: Sequence[MaintainedTable]
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
            "not_well_count": found.problems,
            "changes": rows.toArrow().to_pylist(),
        }
    return shown
