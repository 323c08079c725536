"""Audits within this process."""

from __future__ import annotations

from pathlib import Path

from kidxlib.discover import source_at
from kidxlib.plan import Target, find_segments, parse_topics
from kidxlib.recover import RecoverOptions
from kidxlib.show_audit import Kind, Row, rows_of_partition, rows_of_segment
from kidxlib.verify import audit_partition, audit_segment, partition_audits


def audited(
    source: Path,
    mirror: Path | None = None,
    options: RecoverOptions | None = None,
    *,
    clean_shutdown: bool | None = None,
    tiering: bool = False,
    deep: bool = False,
) -> dict[Kind, list[Row]]:
    """All that an audit finds, within this process."""
    options = options or RecoverOptions()
    target = Target(index_dir=mirror, by_source=False, publish_truncated=False)
    plan = find_segments([source_at(str(source), "it")], parse_topics(".*"), target, lambda _: options)
    audits, _ = partition_audits(
        plan, lambda _: options, clean_shutdown=clean_shutdown, tiering=tiering, topics=parse_topics(".*")
    )
    rows: dict[Kind, list[Row]] = {kind: [] for kind in Kind}
    for key, audit in audits.items():
        segments = [audit_segment(task, True, deep=deep) for task in plan.tasks if task.segment.partition_key == key]
        found = [row for segment in segments for row in rows_of_segment("it", audit, segment)]
        for kind, row in [*found, *rows_of_partition("it", audit, audit_partition(audit, segments))]:
            rows[kind].append(row)
    return rows
