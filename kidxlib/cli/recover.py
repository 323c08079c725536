"""`kidx recover`: make a crashed broker's log dirs ready, so that it starts at once."""

from __future__ import annotations

import os
from functools import partial

import click

from kidxlib.operations.local_once import open_local_once
from kidxlib.operations.recover.options import Level, recover_options
from kidxlib.run.known_topics import MetadataOptions
from kidxlib.run.result import RunResult
from kidxlib.run.run_report import reports_run_of


@click.command(context_settings={"max_content_width": 110})
@recover_options
@reports_run_of("recover")
def recover(
    log_dirs: tuple[str, ...],
    apply: bool,
    level: str,
    accept_loss: bool,
    or_leave: bool,
    metadata: MetadataOptions,
    processes: int | None,
    as_json: bool,
) -> RunResult:
    """Spare a broker that was killed the reading of its logs. Say what its next start would do, and with --apply make
    it ready for that: indexes, producer snapshots and leader epochs of all segments that may not be flushed, flushed
    logs, and recovery points that say so.

    LOG_DIR… are all log dirs of one broker that has stopped. No log is changed: what a broker cuts off, it still cuts
    off itself.

    Exit codes: 0 the broker drops nothing, and with --apply is ready; 2 refused or wrong options, nothing changed; 3
    the same as 0, and the broker drops what the lines name; 1 failed.
    """
    from kidxlib.operations.recover.run import RecoverRequest, run_recover

    request = RecoverRequest(
        log_dirs=log_dirs,
        apply=apply,
        level=Level(level),
        accept_loss=accept_loss,
        or_leave=or_leave,
        metadata=metadata,
        threads=processes or os.cpu_count() or 1,
    )
    return run_recover(request, partial(open_local_once, processes), as_json=as_json)
