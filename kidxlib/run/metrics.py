"""The metrics file for Prometheus, which says how a run ended."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from kidxlib.errors import UsageError
from kidxlib.storage.small_files import small_file
from kidxlib.terminal.console import warn
from kidxlib.terminal.exit_codes import ExitCode
from kidxlib.terminal.outcome import Outcome

_LAST_DONE: Final = "kidx_run_last_done_timestamp_seconds"
_SEGMENTS, _FILES = "kidx_catalog_segments", "kidx_catalog_files"
_OF_CATALOG: Final = {
    _SEGMENTS: ("status", "Segments of the catalog."),
    _FILES: ("verdict", "Files that the last audit of their partition found wrong."),
}


def ensure_collected(metrics_file: Path) -> None:
    """Refuse a file that node exporter would never read."""
    if metrics_file.suffix != ".prom":
        raise UsageError(
            f"--metrics-file {metrics_file}: expected a name that ends in .prom; node exporter reads no other"
        )
    if not os.path.isdir(metrics_file.parent):
        raise UsageError(f"--metrics-file {metrics_file}: no directory {metrics_file.parent}; make it first")


def write_metrics(path: Path, job: str, seconds: float, result: Outcome) -> None:
    """Replace the file as a whole. If it cannot be written, the run's results stand."""
    now = time.time()
    done = result.code in (ExitCode.OK, ExitCode.PROBLEMS_FOUND)
    registry = CollectorRegistry()

    def gauge(name: str, meaning: str, value: float, **labels: str) -> None:
        Gauge(name, meaning, ["job", *labels], registry=registry).labels(job, *labels.values()).set(value)

    gauge("kidx_run_timestamp_seconds", "When the last run ended.", now)
    gauge(
        "kidx_run_exit_code",
        "0 no problems, 1 failed, 2 refused, 3 done with problems, 129, 130 or 143 interrupted.",
        result.code,
    )
    gauge("kidx_run_duration_seconds", "How long the last run took.", seconds)
    gauge("kidx_run_bytes", "Bytes that the last run dealt with.", result.bytes)
    counted = Gauge("kidx_run_count", "What the last run dealt with.", ["job", "what"], registry=registry)
    for what, count in result.counts.items():
        counted.labels(job, what).set(count)
    if result.requests:
        made = Gauge("kidx_run_requests", "Requests of object stores.", ["job", "kind"], registry=registry)
        for kind, count in result.requests.as_json().items():
            made.labels(job, kind).set(count)
    try:
        before = _samples(path, job)
        last_done = now if done else before.get((_LAST_DONE, "", ""))
        if last_done is not None:
            gauge(_LAST_DONE, "When a run last ended with 0 or 3.", last_done)
        _add_of_catalog(registry, job, before, _SEGMENTS, result.catalog_segments)
        _add_of_catalog(registry, job, before, _FILES, result.catalog_files)
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
    """Add the catalog's numbers by source and kind. If the run could not ask the catalog, the file's former values
    stay: a failed run mends no damage.
    """
    values: Mapping[tuple[str, str], float] | None = counts
    if values is None:
        values = {(source, kind): value for (metric, source, kind), value in before.items() if metric == name}
    if values:
        label, meaning = _OF_CATALOG[name]
        gauge = Gauge(name, meaning, ["job", "source", label], registry=registry)
        for (source, kind), value in values.items():
            gauge.labels(job, source, kind).set(value)


def _samples(path: Path, job: str) -> dict[tuple[str, str, str], float]:
    """The values of the job's last run in the file, by metric, source, and status or verdict."""
    if not path.exists():
        return {}
    try:
        families = list(text_string_to_metric_families(small_file(path).decode()))
    except ValueError as error:
        warn(f"--metrics-file {path}: replaced, as nothing can be kept of it: {error}")
        return {}
    samples: dict[tuple[str, str, str], float] = {}
    for family in families:
        for sample in family.samples:
            labels = dict(sample.labels)
            if labels.pop("job", None) == job:
                kind = labels.get("status") or labels.get("verdict") or ""
                samples[sample.name, labels.get("source", ""), kind] = float(sample.value)
    return samples
