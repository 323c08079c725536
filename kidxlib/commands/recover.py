"""`kidx recover`: make a crashed broker's log dirs ready, so that it starts at once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kidxlib.errors import UsageError
from kidxlib.operations.local_once import open_local_once
from kidxlib.operations.recover.fleet_options import DRY_RUN, RATES, Rates, ensure_dry_run, rate_options
from kidxlib.operations.recover.options import Level, recover_options
from kidxlib.run import options as shared_options
from kidxlib.run.options import MetadataOptions
from kidxlib.run.run_report import reports_run_of
from kidxlib.terminal.extras import needing_packages
from kidxlib.terminal.options.given import first_given
from kidxlib.terminal.outcome import RunResult

#: What recovers a broker beside its disks, by parameter: none of it goes with a catalog.
_OF_LOG_DIRS: Final = {
    "log_dirs": "LOG_DIR…",
    "apply": "--apply",
    "level": "--level",
    "everything": "--all",
    "truncate": "--truncate",
    "keep": "--keep",
    "mends": "--mend",
    "accepted_topics": "--accept-topic-id",
    "replicas": "--replica",
    "sets_snapshot_aside": "--set-aside-snapshot",
    "accept_loss": "--accept-loss",
    "alone": "--this-dir-alone",
    "trusts": "--trust-page-cache",
    "broker_logs": "--broker-log",
    "or_leave": "--or-leave",
    "cluster_metadata": "--cluster-metadata",
    "server_properties": "--server-properties",
    "metadata_high_watermark": "--metadata-high-watermark",
    "processes": "--processes",
}
_OF_CATALOG: Final = {"dry_run": "--dry-run", **RATES, "settings_file": "--settings"}


@click.command(context_settings={"max_content_width": 110})
@recover_options
@shared_options.catalog
@DRY_RUN
@rate_options
@shared_options.settings_file
@reports_run_of("recover")
@click.pass_context
def recover(
    context: click.Context,
    /,
    catalog: str | None,
    dry_run: bool,
    settings_file: Path,
    broker_rate: int,
    kidx_rate: int,
    recovery_threads: int,
    log_dirs: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> RunResult:
    """Make a killed broker's log dirs ready for its start, so that it need not read its logs again.

    Without --apply nothing is written. The plan says what the broker's next start would do, and what it would lose.
    With --apply indexes, producer snapshots and leader epochs are written of all segments that may not be flushed. Then
    logs are flushed, and recovery points are set to their ends.

    LOG_DIR… are all log dirs of one broker that has stopped. No log is changed: what a broker cuts off, it still cuts
    off itself. With --truncate that is cut off here, and kept. With --mend small files are put in place that are
    missing or cannot be read.

    With --catalog and --dry-run, without LOG_DIR, it says how long a broker would take with each source of a catalog.

    Exit codes: 0 the broker drops nothing, and with --apply it is ready; 2 refused or wrong options, nothing changed;
    3 the same, and the broker drops what the lines name, or starts without it; 1 failed.
    """
    if catalog is None:
        if (option := first_given(context, _OF_CATALOG)) is not None:
            raise UsageError(f"{option}: only with --catalog, which says how long each of its sources would take")
        if not log_dirs:
            raise UsageError("LOG_DIR…: missing; name all log dirs of one broker, as log.dirs names them")
        return _beside_disks(log_dirs=log_dirs, as_json=as_json, **options)
    if (option := first_given(context, _OF_LOG_DIRS)) is not None:
        raise UsageError(
            f"{option} and --catalog: a catalog tells how long starts take, without the log dirs; give one of them"
        )
    ensure_dry_run(dry_run)
    rates = Rates.of(broker_rate=broker_rate, kidx_rate=kidx_rate, recovery_threads=recovery_threads)
    with needing_packages("kidx recover --catalog"):
        from kidxlib.commands.in_catalog.recover import forecast_of_fleet

    return forecast_of_fleet(catalog, settings_file, rates, as_json=as_json)


def _beside_disks(
    *,
    log_dirs: tuple[str, ...],
    apply: bool,
    level: str,
    everything: bool,
    truncate: bool,
    keep: Path | None,
    mends: bool,
    accepted_topics: tuple[str, ...],
    replicas: tuple[str, ...],
    sets_snapshot_aside: bool,
    accept_loss: bool,
    alone: bool,
    trusts: bool,
    broker_logs: tuple[Path, ...],
    or_leave: bool,
    metadata: MetadataOptions,
    processes: int | None,
    as_json: bool,
) -> RunResult:
    """Recover the log dirs of one broker."""
    if (truncate or mends) != (keep is not None):
        raise UsageError("--keep DIR: needed by --truncate and by --mend, and of no use without one of them")
    if (accepted_topics or replicas or sets_snapshot_aside) and not mends:
        raise UsageError(
            "--accept-topic-id, --replica, --set-aside-snapshot: only --mend puts files in place; give it too"
        )
    if trusts and everything:
        raise UsageError(
            "--all and --trust-page-cache: --all reads every log, whatever is in the page cache; give one of them"
        )
    if broker_logs and not trusts:
        raise UsageError("--broker-log: only --trust-page-cache looks there; give it too")
    from kidxlib.operations.recover.recover import RecoverRequest, run_recover

    request = RecoverRequest(
        log_dirs=log_dirs,
        apply=apply,
        level=Level(level),
        everything=everything,
        truncate=truncate,
        keep=keep,
        mends=mends,
        accepted_topics=accepted_topics,
        replicas=replicas,
        sets_snapshot_aside=sets_snapshot_aside,
        accept_loss=accept_loss,
        alone=alone,
        trusts=trusts,
        broker_logs=broker_logs,
        or_leave=or_leave,
        metadata=metadata,
    )
    return run_recover(request, partial(open_local_once, processes), as_json=as_json)
