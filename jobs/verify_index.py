"""Audit logs and index files: is each right, what would a broker do with it, and what happens if it is wrong."""

from __future__ import annotations

from typing import Any

import click

from jobs.common.audit.driver import run_audit
from jobs.common.audit.request import audit_request
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run
from kidxlib.terminal.options.audit import AuditOptions, audit_options
from kidxlib.terminal.options.integer_range import IntegerRange


@click.command(context_settings={"max_content_width": 110})
@shared_options.sources
@shared_options.sample
@click.option(
    "--index-dir",
    metavar="DIR",
    help="The directory of the index files. [default: where the catalog says, without one beside the logs]",
)
@click.option("--catalog", metavar="DIR", help="Record what is found in this catalog, and take intervals from it.")
@shared_options.database
@shared_options.topics_to_read
@click.option(
    "--interval-bytes",
    metavar="BYTES",
    type=IntegerRange(0, 2**31 - 1),
    help="Kafka's index.interval.bytes. [default: the catalog's of each segment, else settings: build.interval_bytes]",
)
@audit_options
@shared_options.settings_file
@shared_options.time_to_record
@shared_options.as_json
@reports_run
def verify_index(
    as_json: bool,
    deep_iteration: bool,
    fail_on: str,
    require_tiering: bool,
    shutdown: str | None,
    **options: Any,
) -> RunResult:
    """Check each log, and each index file against what Kafka's recovery would write; say what a wrong one leads to, and
    what a broker would do at its next start. Nothing is written beside the source.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 some files are as bad as --fail-on says, a
    broker would lose more than a torn end at its next start, or a segment is not ready for tiering
    (--require-tiering); 1 failed.
    """
    request = audit_request(**options)
    asked = AuditOptions.of(
        deep_iteration=deep_iteration, fail_on=fail_on, require_tiering=require_tiering, shutdown=shutdown
    )
    return run_audit(request, asked, as_json=as_json)


if __name__ == "__main__":
    run(verify_index, "./spark-submit.sh verify_index")
