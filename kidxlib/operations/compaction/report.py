"""What is shown of compaction: tables on screen, or a JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.engine.staged import Staged
from kidxlib.operations.compaction.summary import CompactionReport, in_order
from kidxlib.terminal.build import TOPICS_SHOWN
from kidxlib.terminal.console import print_line, print_more
from kidxlib.terminal.tables import print_table
from kidxlib.text.counted import counted

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
    print_line(
        f"{decimal(before)} → {decimal(after)}, {counted(found.changed[0], 'change')}; {found.kept[0]:,} kept{same}"
    )


def report_as_json(found: CompactionReport, changes: Staged) -> dict[str, Any]:
    """The JSON object's part about index files.

    Args:
        changes: rows of `COMPACTED`.
    """
    return {
        "topics": [asdict(topic) for topic in found.topics],
        "changed_count": found.changed[0],
        "unchanged_count": found.unchanged,
        "kept_count": found.kept[0],
        "not_well_count": found.problems,
        "changes": in_order(changes.rows("compacted", JSON_COLUMNS)).select(JSON_COLUMNS).to_pylist(),
    }
