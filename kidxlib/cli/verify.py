"""`kidx verify`: are the side files of a log dir right, and what happens if they are not."""

from __future__ import annotations

import os
from typing import Any

import click

from kidxlib.cli import shared_options
from kidxlib.cli.audit_options import AuditOptions, audit_options
from kidxlib.cli.auditing import audit
from kidxlib.cli.workers import Workers
from kidxlib.command import ExitCode
from kidxlib.console import warn
from kidxlib.discover import source_at
from kidxlib.plan import Target, find_segments, mirror_tree, parse_topics
from kidxlib.progress import begin_phase
from kidxlib.recover import RecoverOptions
from kidxlib.show_audit import BESIDE_LOGS, AuditSummary, show_json, show_summary
from kidxlib.verify import partition_audits


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--index-dir", metavar="DIR", help="The mirror tree with the side files. [default: beside the logs]")
@shared_options.topics
@shared_options.interval_bytes
@audit_options
@shared_options.processes
@shared_options.as_json
@shared_options.verbose
def verify(
    folder: str,
    index_dir: str | None,
    topics: str,
    interval_bytes: int,
    processes: int | None,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Check each log in DIR, a Kafka log dir or one partition's folder, and each index file against what recovery would
    write; say what a wrong one leads to, and what a broker would do at its next start. Nothing is written.

    Exit codes: 0 all well; 2 wrong options or inputs; 3 some files are as --fail-on says, a broker would lose more at
    its next start than a torn end, or segments do not pass --gate; 1 failed.
    """
    source = source_at(folder)
    asked = AuditOptions.of(**options)
    like = RecoverOptions(interval_bytes=interval_bytes)
    target = Target(index_dir=mirror_tree(index_dir), by_source=False, publish_truncated=False)
    begin_phase("listing")
    wanted = parse_topics(topics)
    plan = find_segments((source,), wanted, target, lambda topic: like)
    audits, notes = partition_audits(
        plan, lambda topic: like, clean_shutdown=asked.clean_shutdown, tiering=asked.tiering, topics=wanted
    )
    for warning in [*plan.warnings, *notes]:
        warn(warning)
    with Workers(processes or os.cpu_count() or 1) as workers:
        rows = audit(plan, audits, workers, deep=asked.deep)
    summary = AuditSummary.of(rows, tiering=asked.tiering)
    if as_json:
        show_json(rows, summary, asked.start_rate)
    else:
        show_summary(str(source.path), summary, asked.start_rate, [str(target.index_dir or BESIDE_LOGS)])
    return ExitCode.NOT_WELL if plan.unlistable else summary.exit_code(asked.fail_on)
