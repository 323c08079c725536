"""`kidx verify`: are the logs and index files of a log dir right, and what happens if they are not."""

from __future__ import annotations

import os
from typing import Any

import click

from kidxlib.audit.plan import partition_audits
from kidxlib.audit.summary import AuditSummary
from kidxlib.build.directories import Target
from kidxlib.build.discover import find_segments
from kidxlib.build.source import source_at
from kidxlib.build.vanished import without_directory
from kidxlib.cli.local_audit import audit
from kidxlib.engine.processes import Workers
from kidxlib.recovery.options import RecoverOptions
from kidxlib.terminal.audit import BESIDE_LOGS, exit_code, show_json, show_summary
from kidxlib.terminal.console import warn, warn_of_first
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.options import shared as shared_options
from kidxlib.terminal.options.audit import AuditOptions, audit_options
from kidxlib.terminal.options.directories import existing_index_dir
from kidxlib.terminal.options.sources import parse_topics
from kidxlib.terminal.progress import begin_phase


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--index-dir", metavar="DIR", help="The directory of the index files. [default: beside the logs]")
@shared_options.topics
@shared_options.interval_bytes
@audit_options
@shared_options.processes
@shared_options.as_json
@shared_options.verbose
def verify(
    directory: str,
    index_dir: str | None,
    topics: str,
    interval_bytes: int,
    processes: int | None,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Check each log in DIR, a Kafka log dir or one partition's directory, and each index file against what recovery
    would write; say what a wrong one leads to, and what a broker would do at its next start. Nothing is written.

    Exit codes: 0 no problems; 2 wrong options or inputs; 3 some files are as bad as --fail-on says, a broker would lose
    more than a torn end at its next start, or a segment is not ready for tiering (--require-tiering); 1 failed.
    """
    source = source_at(directory)
    asked = AuditOptions.of(**options)
    like = RecoverOptions(interval_bytes=interval_bytes)
    target = Target(
        index_dir=None if index_dir is None else existing_index_dir("--index-dir", index_dir), by_source=False
    )
    begin_phase("listing")
    wanted = parse_topics(topics)
    plan = find_segments((source,), wanted, target, lambda topic: like)
    audits, notes = partition_audits(
        plan, lambda topic: like, clean_shutdown=asked.clean_shutdown, tiering=asked.tiering, topics=wanted
    )
    for warning in [*plan.warnings, *notes]:
        warn(warning)
    gone = without_directory(plan, (source,), wanted, target)
    warn_of_first(gone.values())
    with Workers(processes or os.cpu_count() or 1) as workers:
        rows = audit(plan, audits, workers, deep=asked.deep)
    summary = AuditSummary.of(rows, tiering=asked.tiering)
    if as_json:
        show_json(rows, summary, partitions_gone=len(gone))
    else:
        show_summary(str(source.path), summary, [str(target.index_dir or BESIDE_LOGS)])
    return ExitCode.PROBLEMS_FOUND if plan.unlistable else exit_code(summary, asked.fail_on)
