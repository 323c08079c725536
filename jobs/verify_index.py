"""Audit logs and index files: is each right, what would a broker do with it, and what happens if it is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from jobs.common.backend import open_spark, open_spark_once
from kidxlib.operations.audit.audit import run_audit
from kidxlib.operations.audit.copies.options import asks_for_copy, reported_as
from kidxlib.operations.audit.from_options import AuditOptions, audit_request
from kidxlib.operations.audit.options import audit_options
from kidxlib.operations.tiered.options import asks_for_tiered
from kidxlib.run import options as shared_options
from kidxlib.run.context import RunContext
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.command import run
from kidxlib.terminal.extras import needing_packages


@click.command(context_settings={"max_content_width": 110})
@audit_options
@shared_options.database
@reports_run_of(reported_as)
@click.pass_context
def verify_index(context: click.Context, /, as_json: bool, **options: Any) -> RunResult:
    """Check each log, and each index file against what Kafka's recovery would write; say what a wrong one leads to, and
    what a broker would do at its next start. Nothing is written beside the source.

    With --copy URL, no log is read: each segment's object in the store is asked for its checksum, and that is compared
    with the catalog's. Nothing is written.

    With --tiered PLACE and --tiered-metadata PLACE, remote segments are audited: their metadata, their objects and,
    by --level, the bytes of these. With --catalog each is recorded there. Nothing else is written, and nothing deleted.

    Exit codes: 0 no problems; 2 wrong options or inputs, nothing done; 3 some files are as bad as --fail-on says, a
    broker would lose more than a torn end at its next start, or a segment is not ready for tiering
    (--require-tiering); with --copy, an object differs, has another size, is missing or refused; with --tiered, a
    finding is as bad as --fail-on says; 1 failed.
    """
    if asks_for_tiered(context, options):
        from kidxlib.operations.tiered.audit_tiered import run_tiered
        from kidxlib.operations.tiered.tiered_request import TieredOptions, tiered_request

        tiered = tiered_request(TieredOptions(**options))
        if tiered.recording is not None:
            open_catalog = partial(open_spark, "verify_index", tiered.recording.context)
            return run_tiered(tiered, open_catalog, as_json=as_json)
        once = RunContext(catalog=None, database=None, now=datetime.now(UTC), event_log_dir=None)
        return run_tiered(tiered, partial(open_spark_once, "verify_index", once), as_json=as_json)
    if asks_for_copy(context, options):
        with needing_packages("--copy", "copies"):
            from kidxlib.operations.audit.copies.compare_copy import run_copies
            from kidxlib.operations.audit.copies.copy_request import CopyOptions, copy_request

        of_copy = copy_request(CopyOptions(**options))
        open_copied = partial(open_spark, "verify_index", of_copy.context, upgrade=False, changes=False)
        return run_copies(of_copy, open_copied, as_json=as_json)
    request = audit_request(AuditOptions(**options))
    open_backend = open_spark if request.context.has_catalog else open_spark_once
    return run_audit(request, partial(open_backend, "verify_index", request.context), as_json=as_json)


if __name__ == "__main__":
    run(verify_index, "./spark-submit.sh verify_index")
