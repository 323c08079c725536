"""From ./spark-submit.sh to the first task, and what that time goes into."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from benchmarks.event_log import EventLog
from benchmarks.figures import Target, record
from benchmarks.submit import PROJECT, event_log_options, places, remove_results
from kidxlib.errors import KidxError
from kidxlib.terminal.console import note
from tests.support.spark.jobs import clean_environment

_POLL_SECONDS: Final = 0.002


@click.command(name="start_up")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def start_up(rounds: int, directory: Path) -> None:
    """Build the sample again and again, each time from nothing: a build in which nothing has changed starts no task.

    The processes tell when bash has given way to Python and when Python starts Java; Spark's event log has the rest.
    """
    place = directory.resolve() / "start-up"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(PROJECT / "samples" / "kafka-logs", place / "kafka-logs")
    _run(place)
    measured = []
    for number in range(rounds):
        note(f"round {number + 1} of {rounds} …")
        measured.append(_run(place))
    names = {
        "first_task": "start-up: from ./spark-submit.sh to the first task",
        "bash": "start-up: bash, up to Python",
        "python": "start-up: Python's imports and listing, up to starting Java",
        "java": "start-up: Java, up to the SparkContext",
        "context": "start-up: from there to the first task",
        "all": "start-up: the whole run",
    }
    targets = [Target(name=names[part], unit="s", values=[run[part] for run in measured]) for part in names]
    record(directory, "start_up", targets)


def _run(place: Path) -> dict[str, float]:
    """Seconds of each part of a build."""
    remove_results(place)
    events = place / "events"
    options = event_log_options(events)
    began_at = time.time()
    process = subprocess.Popen(
        [PROJECT / "spark-submit.sh", "build_index", *places(place), "--", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
    )
    status = Path(f"/proc/{process.pid}")
    python_at = _wait(process, lambda: (status / "exe").readlink().name.startswith("python"))
    java_at = _wait(process, lambda: bool(next(_children(status), None)))
    if process.wait() != 0:
        raise KidxError(f"{place}: the build ended with exit code {process.returncode}, expected 0")
    ended_at, log = time.time(), EventLog.read(events)
    assert log is not None  # each build has something to read
    return {
        "first_task": log.first_task_at - began_at,
        "bash": python_at - began_at,
        "python": java_at - python_at,
        "java": log.began_at - java_at,
        "context": log.first_task_at - log.began_at,
        "all": ended_at - began_at,
    }


def _children(status: Path) -> Iterator[str]:
    for task in (status / "task").iterdir():
        yield from (task / "children").read_text().split()


def _wait(process: subprocess.Popen[bytes], seen: Callable[[], bool]) -> float:
    """When something was first seen, in seconds since the epoch."""
    while process.poll() is None:
        if seen():
            return time.time()
        time.sleep(_POLL_SECONDS)
    raise KidxError(f"the build ended with exit code {process.returncode} before it started Spark")
