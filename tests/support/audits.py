"""Audits within this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kidxlib.audit.finding import Verdict
from kidxlib.audit.partition import audit_partition
from kidxlib.audit.plan import partition_audits
from kidxlib.audit.rows import AuditRows, rows_of_partition, rows_of_segment
from kidxlib.audit.segment import SegmentForPartition, audit_segment
from kidxlib.build.directories import Target
from kidxlib.build.discover import find_segments
from kidxlib.build.source import source_at
from kidxlib.catalog.findings import FileFinding
from kidxlib.cli.main import kidx
from kidxlib.recovery.options import RecoverOptions
from kidxlib.terminal.options.sources import parse_topics


def audited(
    source: Path,
    index_dir: Path | None = None,
    options: RecoverOptions | None = None,
    *,
    clean_shutdown: bool | None = None,
    tiering: bool = False,
    deep: bool = False,
) -> AuditRows:
    """All that an audit finds, within this process."""
    options = options or RecoverOptions()
    target = Target(index_dir=index_dir, by_source=False)
    plan = find_segments([source_at(str(source), "it")], parse_topics(".*"), target, lambda _: options)
    audits, _ = partition_audits(
        plan, lambda _: options, clean_shutdown=clean_shutdown, tiering=tiering, topics=parse_topics(".*")
    )
    rows = AuditRows()
    for key, audit in audits.items():
        segments = [
            audit_segment(task, True, deep=deep, clean_shutdown=audit.last_stop.clean_shutdown)
            for task in plan.scan_tasks()
            if task.segment.partition_key == key
        ]
        for segment in segments:
            rows.files.extend(rows_of_segment("it", audit, segment))
        rows.add(rows_of_partition("it", audit, audit_partition(audit, map(SegmentForPartition.of, segments))))
    return rows


def problems_of(files: list[FileFinding]) -> dict[str, tuple[str, str | None]]:
    """What is said of files that are not identical or whole, by name."""
    reported = (file for file in files if not Verdict(file.verdict).is_problem_free)
    return {Path(file.path).name: (file.verdict, file.reason) for file in reported}


def verified(*arguments: object, code: int) -> dict[str, Any]:
    """The JSON object of `kidx verify`."""
    result = CliRunner().invoke(kidx, ["verify", "--json", *map(str, arguments)], standalone_mode=False)
    assert result.return_value == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found
