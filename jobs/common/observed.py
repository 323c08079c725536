"""What a run of a job tells who watches from outside, where they ask: a JSON line, and figures for Prometheus."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from kidxlib.cli import shared_options
from kidxlib.command import ExitCode
from kidxlib.console import warn
from kidxlib.errors import UsageError
from kidxlib.interrupts import Interrupted
from kidxlib.progress import end_phases

_STATUS: Final = {
    ExitCode.OK: "ok",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "refused",
    ExitCode.NOT_WELL: "not_well",
    ExitCode.HUNG_UP: "interrupted",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "interrupted",
}
#: Where the JSON line goes without a file.
_STANDARD_ERROR: Final = "-"
#: How the name of its file ends that stands in no other folder. By that a word behind the option is told from one that
#: is meant for the command itself.
_LINES: Final = (".json", ".jsonl", ".log")
_LAST_DONE: Final = "kidx_run_last_done_timestamp_seconds"
_SEGMENTS, _FILES = "kidx_catalog_segments", "kidx_catalog_files"
_OF_CATALOG: Final = {
    _SEGMENTS: ("status", "Segments of the catalog."),
    _FILES: ("verdict", "Files that the last audit of their partition found wrong."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended that was not interrupted by an error.

    Attributes:
        run_id: what the catalog calls it; None where it does not.
        counts: what it dealt with, as `segments`; all that it can count, zeros too.
        bytes: what it read of logs, or decided about; see docs/operations.md.
        catalog_segments: how many segments the catalog has, by source and status; None where that was not asked.
        catalog_files: how many files the last audits found wrong, by source and verdict; likewise.
    """

    code: ExitCode
    run_id: str | None = None
    counts: Mapping[str, int]
    bytes: int
    catalog_segments: Mapping[tuple[str, str], int] | None = None
    catalog_files: Mapping[tuple[str, str], int] | None = None


def _file_of_lines(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """What `--json-line` names; checked as it is read, before a command misses the word that the option took."""
    if value is None or value == _STANDARD_ERROR or "/" in value or value.endswith(_LINES):
        return value
    raise UsageError(
        f"--json-line {value}: taken for the file to write; expected a path with a /, or a name that ends in "
        f"{', '.join(_LINES)}. Is {value} meant for the command? Then put it first, or say --json-line -"
    )


def observed(job: Callable[..., Ended]) -> Callable[..., ExitCode]:
    """Make a command of a job, to stand below its options: it has `--metrics-file`, `--json-line` and `--verbose`, and
    its phases end with it.
    """

    @shared_options.verbose
    @click.option(
        "--json-line",
        is_flag=False,
        flag_value=_STANDARD_ERROR,
        metavar="[FILE]",
        callback=_file_of_lines,
        help="Say in a line of JSON how the run ended, on standard error, or at the end of FILE: a path with a /, or a "
        f"name that ends in {', '.join(_LINES)}; - is standard error.",
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
            _ensure_collected(metrics_file)
        if json_line not in (None, _STANDARD_ERROR):
            _ensure_writable(Path(json_line))
        name, began_at, start = job.__name__, datetime.now(UTC), time.monotonic()
        ended, error = Ended(code=ExitCode.FAILED, counts={}, bytes=0), ""
        try:
            ended = job(**options)
        except UsageError:
            ended = Ended(code=ExitCode.USAGE, counts={}, bytes=0)
            raise
        except Interrupted as interrupted:
            ended, error = Ended(code=ExitCode(interrupted.exit_code), counts={}, bytes=0), str(interrupted)
            raise
        except BaseException as raised:
            error = str(raised).partition("\n")[0] or type(raised).__name__
            raise
        finally:
            seconds = time.monotonic() - start
            end_phases()
            if json_line is not None and ended.code is not ExitCode.USAGE:  # nothing was done, and one line says why
                _log(json_line, name, began_at, seconds, ended, error)
            if metrics_file is not None:
                _write(metrics_file, name, seconds, ended)
        return ended.code

    return command


def _ensure_collected(metrics_file: Path) -> None:
    """Refuse a file that node exporter would never read.

    Raises:
        UsageError: its directory is not there, or its name does not end in `.prom`.
    """
    if metrics_file.suffix != ".prom":
        raise UsageError(
            f"--metrics-file {metrics_file}: expected a name that ends in .prom; node exporter reads no other"
        )
    if not os.path.isdir(metrics_file.parent):
        raise UsageError(f"--metrics-file {metrics_file}: no folder {metrics_file.parent}; make it first")


def _ensure_writable(json_line: Path) -> None:
    """Refuse before anything is done.

    Raises:
        UsageError: it is a directory, or there is none that it could be in.
    """
    if json_line.is_dir():
        raise UsageError(f"--json-line {json_line}: a directory; expected a file's name")
    if not json_line.parent.is_dir():
        raise UsageError(f"--json-line {json_line}: no directory {json_line.parent}; make it first")


def _log(where: str, job: str, began_at: datetime, seconds: float, ended: Ended, error: str) -> None:
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
    if where == _STANDARD_ERROR:
        click.echo(json.dumps(line), err=True)
        return
    try:
        with open(where, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as failed:
        warn(f"--json-line {where}: not written: {failed.strerror}")


def _write(path: Path, job: str, seconds: float, ended: Ended) -> None:
    """Replace the file, as a whole. That it cannot be written does not undo what the run has done."""
    now = time.time()
    done = ended.code in (ExitCode.OK, ExitCode.NOT_WELL)
    registry = CollectorRegistry()

    def gauge(name: str, meaning: str, value: float, **labels: str) -> None:
        Gauge(name, meaning, ["job", *labels], registry=registry).labels(job, *labels.values()).set(value)

    gauge("kidx_run_timestamp_seconds", "When the last run ended.", now)
    gauge(
        "kidx_run_exit_code",
        "0 well, 1 failed, 2 refused, 3 done but something is not well, 129, 130 or 143 interrupted.",
        ended.code,
    )
    gauge("kidx_run_duration_seconds", "How long the last run took.", seconds)
    gauge("kidx_run_bytes", "Bytes that the last run dealt with.", ended.bytes)
    counted = Gauge("kidx_run_count", "What the last run dealt with.", ["job", "what"], registry=registry)
    for what, count in ended.counts.items():
        counted.labels(job, what).set(count)
    try:
        before = _samples(path, job)
        last_done = now if done else before.get((_LAST_DONE, "", ""))
        if last_done is not None:
            gauge(_LAST_DONE, "When a run last ended with 0 or 3.", last_done)
        _add_of_catalog(registry, job, before, _SEGMENTS, ended.catalog_segments)
        _add_of_catalog(registry, job, before, _FILES, ended.catalog_files)
        write_to_textfile(str(path), registry)
    except OSError as error:
        warn(f"--metrics-file {path}: not written: {error.strerror}")


def _add_of_catalog(
    registry: CollectorRegistry,
    job: str,
    before: Mapping[tuple[str, str, str], float],
    name: str,
    counts: Mapping[tuple[str, str], int] | None,
) -> None:
    """How much the catalog has of each kind. A run that could not ask leaves what the file said: damage is not mended
    by a run that failed.
    """
    values: Mapping[tuple[str, str], float] | None = counts
    if values is None:
        values = {(source, kind): value for (each, source, kind), value in before.items() if each == name}
    if values:
        label, meaning = _OF_CATALOG[name]
        gauge = Gauge(name, meaning, ["job", "source", label], registry=registry)
        for (source, kind), value in values.items():
            gauge.labels(job, source, kind).set(value)


def _samples(path: Path, job: str) -> dict[tuple[str, str, str], float]:
    """What the file of an earlier run of the job says: values by name, source, and status or verdict."""
    if not path.exists():
        return {}
    try:
        families = list(text_string_to_metric_families(path.read_text()))
    except ValueError as error:
        warn(f"--metrics-file {path}: replaced, as nothing can be kept of it: {error}")
        return {}
    found: dict[tuple[str, str, str], float] = {}
    for family in families:
        for sample in family.samples:
            labels = dict(sample.labels)
            if labels.pop("job", None) == job:
                kind = labels.get("status") or labels.get("verdict") or ""
                found[sample.name, labels.get("source", ""), kind] = float(sample.value)
    return found
