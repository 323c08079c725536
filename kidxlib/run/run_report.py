"""The optional reports of how a run ended, for monitoring: a JSON line, and metrics for Prometheus."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from kidxlib.errors import UsageError
from kidxlib.terminal import options as shared_options
from kidxlib.terminal.console import warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.interrupts import Interrupted
from kidxlib.terminal.options import ensure_parent_exists, needing_packages
from kidxlib.terminal.outcome import Outcome
from kidxlib.terminal.progress import end_phases

_STATUS: Final = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "refused",
    ExitCode.PROBLEMS_FOUND: "not_well",
    ExitCode.HUNG_UP: "interrupted",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "interrupted",
}
_TO_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
#: The value of `--json-line` without a file.
_STANDARD_ERROR: Final = "-"
#: The suffixes of a file without a directory after `--json-line`. Another word after it is the command's own argument.
_SUFFIXES: Final = (".json", ".jsonl", ".log")


def reports_run(name: str) -> Callable[[Callable[..., Outcome]], Callable[..., ExitCode]]:
    """A decorator that makes a command of a job, below its options: adds `--metrics-file`, `--json-line` and
    `--verbose`, and ends its phases. Reports give `name` as the job's, whichever engine did the work.
    """
    return functools.partial(_reporting, name=name)


def _json_line_file(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check the value of `--json-line` at once, before the command misses a word that the option took."""
    if value is None or value == _STANDARD_ERROR or "/" in value or value.endswith(_SUFFIXES):
        return value
    raise UsageError(
        f"--json-line {value}: taken for the file to write; expected a path with a /, or a name that ends in "
        f"{', '.join(_SUFFIXES)}. Is {value} meant for the command? Then put it first, or say --json-line -"
    )


def _write_json_line(where: str, job: str, began_at: datetime, seconds: float, result: Outcome, error: str) -> None:
    line = {
        "job": job,
        "run_id": result.run_id,
        "began_at": began_at.isoformat(timespec="milliseconds"),
        "seconds": round(seconds, 3),
        "status": _STATUS[result.code],
        "exit_code": int(result.code),
        "bytes": result.bytes,
        "counts": dict(result.counts),
        **({"requests": result.requests.as_json()} if result.requests else {}),
        **({"error": error} if error else {}),
    }
    if where == _STANDARD_ERROR:
        click.echo(json.dumps(line), err=True)
        return
    try:
        # Without O_NONBLOCK, opening a pipe that nobody reads would block forever.
        with open(os.open(where, _TO_APPEND, 0o666), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as failed:
        warn(f"--json-line {where}: not written: {failed.strerror}")


def _reporting(job: Callable[..., Outcome], name: str) -> Callable[..., ExitCode]:
    @shared_options.verbose
    @click.option(
        "--json-line",
        is_flag=False,
        flag_value=_STANDARD_ERROR,
        metavar="[FILE]",
        callback=_json_line_file,
        help="Say in a line of JSON how the run ended, on standard error, or at the end of FILE: a path with a /, or a "
        f"name that ends in {', '.join(_SUFFIXES)}; - is standard error.",
    )
    @click.option(
        "--metrics-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write how the run ended for Prometheus: a .prom file where node exporter's textfile collector looks.",
    )
    @functools.wraps(job)
    def command(metrics_file: Path | None, json_line: str | None, **options: Any) -> ExitCode:
        if metrics_file is not None:
            with needing_packages("--metrics-file"):
                from kidxlib.run.metrics import ensure_collected, write_metrics
            ensure_collected(metrics_file)
        if json_line not in (None, _STANDARD_ERROR):
            ensure_parent_exists("--json-line", Path(json_line))
        began_at, start = datetime.now(UTC), time.monotonic()
        result, error = Outcome(code=ExitCode.FAILED), ""
        try:
            result = job(**options)
        except UsageError:
            result = Outcome(code=ExitCode.USAGE)
            raise
        except Interrupted as interrupted:
            result, error = Outcome(code=ExitCode(interrupted.exit_code)), str(interrupted)
            raise
        except BaseException as raised:
            error = str(raised).partition("\n")[0] or type(raised).__name__
            raise
        finally:
            seconds = time.monotonic() - start
            end_phases()
            if json_line is not None and result.code is not ExitCode.USAGE:  # nothing was done, and one line says why
                _write_json_line(json_line, name, began_at, seconds, result, error)
            if metrics_file is not None:
                write_metrics(metrics_file, name, seconds, result)
        return result.code

    return command
