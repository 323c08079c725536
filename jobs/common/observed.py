"""What a run of a job tells who watches from outside: a JSON line at its end, and figures for Prometheus."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from kidxlib.command import ExitCode
from kidxlib.console import warn
from kidxlib.errors import UsageError

_STATUS: Final = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "refused",
    ExitCode.NOT_WELL: "not_well",
}
_LAST_DONE: Final = "kidx_run_last_done_timestamp_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended that was not interrupted by an error.

    Attributes:
        run_id: what the catalog calls it; None where it does not.
        counts: what it dealt with, as `segments`; all that it can count, zeros too.
        bytes: what it read of logs, or decided about; see docs/operations.md.
    """

    code: ExitCode
    run_id: str | None = None
    counts: Mapping[str, int]
    bytes: int


def observed(job: Callable[..., Ended]) -> Callable[..., ExitCode]:
    """Make a command of a job, to stand below its options: it has `--metrics-file`, and logs how it ended."""

    @click.option(
        "--metrics-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write how the run ended for Prometheus: a .prom file where node exporter's textfile collector looks.",
    )
    @functools.wraps(job)
    def command(metrics_file: Path | None, **options: Any) -> ExitCode:
        if metrics_file is not None and not metrics_file.parent.is_dir():
            raise UsageError(f"--metrics-file {metrics_file}: no folder {metrics_file.parent}; make it first")
        name, began_at, start = job.__name__, datetime.now(UTC), time.monotonic()
        ended, error = Ended(code=ExitCode.FAILED, counts={}, bytes=0), ""
        try:
            ended = job(**options)
        except UsageError:
            ended = Ended(code=ExitCode.USAGE, counts={}, bytes=0)
            raise
        except BaseException as raised:
            error = str(raised).partition("\n")[0] or type(raised).__name__
            raise
        finally:
            seconds = time.monotonic() - start
            if ended.code is not ExitCode.USAGE:  # nothing was done, and one line says why
                _log(name, began_at, seconds, ended, error)
            if metrics_file is not None:
                _write(metrics_file, name, seconds, ended)
        return ended.code

    return command


def _log(job: str, began_at: datetime, seconds: float, ended: Ended, error: str) -> None:
    line = {
        "job": job,
        "run_id": ended.run_id,
        "began_at": began_at.isoformat(timespec="milliseconds"),
        "seconds": round(seconds, 3),
        "status": _STATUS[ended.code],
        "exit_code": int(ended.code),
        "bytes": ended.bytes,
        "counts": dict(ended.counts),
        **({"error": error} if error else {}),
    }
    click.echo(json.dumps(line), err=True)


def _write(path: Path, job: str, seconds: float, ended: Ended) -> None:
    """Replace the file, as a whole. That it cannot be written does not undo what the run has done."""
    now = time.time()
    done = ended.code in (ExitCode.OK, ExitCode.NOT_WELL)
    registry = CollectorRegistry()

    def gauge(name: str, meaning: str, value: float, **labels: str) -> None:
        Gauge(name, meaning, ["job", *labels], registry=registry).labels(job, *labels.values()).set(value)

    gauge("kidx_run_timestamp_seconds", "When the last run ended.", now)
    gauge("kidx_run_exit_code", "0 well, 1 failed, 2 refused, 3 done but something is not well.", ended.code)
    gauge("kidx_run_duration_seconds", "How long the last run took.", seconds)
    gauge("kidx_run_bytes", "Bytes that the last run dealt with.", ended.bytes)
    counted = Gauge("kidx_run_count", "What the last run dealt with.", ["job", "what"], registry=registry)
    for what, count in ended.counts.items():
        counted.labels(job, what).set(count)
    try:
        last_done = now if done else _last_done(path, job)
        if last_done is not None:
            gauge(_LAST_DONE, "When a run last ended with 0 or 3.", last_done)
        write_to_textfile(str(path), registry)
    except OSError as error:
        warn(f"--metrics-file {path}: not written: {error.strerror}")


def _last_done(path: Path, job: str) -> float | None:
    """What the file of an earlier run says of it."""
    if path.exists():
        for family in text_string_to_metric_families(path.read_text()):
            for sample in family.samples:
                if sample.name == _LAST_DONE and sample.labels == {"job": job}:
                    return float(sample.value)
    return None
