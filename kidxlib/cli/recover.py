"""`kidx recover`: make a crashed broker's log dirs ready, so that it starts at once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from kidxlib.errors import UsageError
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
    everything: bool,
    truncate: bool,
    keep: Path | None,
    accept_loss: bool,
    trusts: bool,
    broker_logs: tuple[Path, ...],
    or_leave: bool,
    metadata: MetadataOptions,
    processes: int | None,
    as_json: bool,
) -> RunResult:
    """Spare a broker that was killed the reading of its logs. Say what its next start would do, and with --apply make
    it ready for that: indexes, producer snapshots and leader epochs of all segments that may not be flushed, flushed
    logs, and recovery points that say so.

    LOG_DIR… are all log dirs of one broker that has stopped. No log is changed: what a broker cuts off, it still cuts
    off itself. With --truncate that is cut off here, and kept.

    Exit codes: 0 nothing is dropped, and with --apply the broker is ready; 2 refused or wrong options, nothing changed;
    3 the same as 0, and what the lines name is dropped; 1 failed.
    """
    if truncate != (keep is not None):
        raise UsageError("--truncate and --keep DIR: one is of no use without the other; give both")
    if trusts and everything:
        raise UsageError("--all and --trust-page-cache: --all reads what nobody is to be trusted for; give one of them")
    if broker_logs and not trusts:
        raise UsageError("--broker-log: only --trust-page-cache looks there; give it too")
    from kidxlib.operations.recover.run import RecoverRequest, run_recover

    request = RecoverRequest(
        log_dirs=log_dirs,
        apply=apply,
        level=Level(level),
        everything=everything,
        keep=keep,
        accept_loss=accept_loss,
        trusts=trusts,
        broker_logs=broker_logs,
        or_leave=or_leave,
        metadata=metadata,
    )
    return run_recover(request, partial(open_local_once, processes), as_json=as_json)
