"""Audit logs and index files: is each right, what would a broker do with it, and what happens if it is wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark, open_spark_once
from kidxlib.operations.audit.from_options import AuditOptions, audit_request
from kidxlib.operations.audit.options import audit_options
from kidxlib.operations.audit.run import run_audit
from kidxlib.run import options as shared_options
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run
from kidxlib.terminal.command import run


@click.command(context_settings={"max_content_width": 110})
@audit_options
@shared_options.database
@reports_run
def verify_index(as_json: bool, **options: Any) -> RunResult:
    """Check each log, and each index file against what Kafka's recovery would write; say what a wrong one leads to, and
    what a broker would do at its next start. Nothing is written beside the source.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 some files are as bad as --fail-on says, a
    broker would lose more than a torn end at its next start, or a segment is not ready for tiering
    (--require-tiering); 1 failed.
    """
    request = audit_request(AuditOptions(**options))
    open_backend = open_spark if request.context.has_catalog else open_spark_once
    return run_audit(request, partial(open_backend, "verify_index", request.context), as_json=as_json)


if __name__ == "__main__":
    run(verify_index, "./spark-submit.sh verify_index")
