"""The line of JSON that says how a run ended."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Final

import click

from kidxlib.errors import UsageError
from kidxlib.run.result import RunResult
from kidxlib.terminal.console import warn
from kidxlib.terminal.exit_codes import ExitCode

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
#: Where the JSON line goes without a file.
STANDARD_ERROR: Final = "-"
#: How the name of its file ends that stands in no other directory. That distinguishes a word after the option from one
#: that is meant for the command itself.
SUFFIXES: Final = (".json", ".jsonl", ".log")


def json_line_file(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """What `--json-line` names; checked as it is read, before a command misses the word that the option took."""
    if value is None or value == STANDARD_ERROR or "/" in value or value.endswith(SUFFIXES):
        return value
    raise UsageError(
        f"--json-line {value}: taken for the file to write; expected a path with a /, or a name that ends in "
        f"{', '.join(SUFFIXES)}. Is {value} meant for the command? Then put it first, or say --json-line -"
    )


def write_json_line(where: str, job: str, began_at: datetime, seconds: float, result: RunResult, error: str) -> None:
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
    if where == STANDARD_ERROR:
        click.echo(json.dumps(line), err=True)
        return
    try:
        # A pipe that nobody reads is no place: to open it otherwise would wait for a reader for good.
        with open(os.open(where, _TO_APPEND, 0o666), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as failed:
        warn(f"--json-line {where}: not written: {failed.strerror}")
