"""Every benchmark as a command: `.venv/bin/python -m benchmarks.run --help`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from benchmarks.audit import audit
from benchmarks.cluster import workers
from benchmarks.cold import cold
from benchmarks.compaction import compaction
from benchmarks.comparison import comparison
from benchmarks.figures import keep, print_targets, recorded
from benchmarks.fleet import fleet
from benchmarks.generate import generate
from benchmarks.growth import growth
from benchmarks.incremental import incremental
from benchmarks.job import job
from benchmarks.lookup import lookup
from benchmarks.packed import million, packed
from benchmarks.pages import pages
from benchmarks.pictures import pictures
from benchmarks.planning import planning
from benchmarks.reading import reading
from benchmarks.recover import recover
from benchmarks.report import report
from benchmarks.restore import restore
from benchmarks.retention import retention
from benchmarks.runs import runs
from benchmarks.scan import scan
from benchmarks.seek import seek
from benchmarks.set_up import set_up
from benchmarks.skipping import skipping
from benchmarks.small_segments import small_segments
from benchmarks.source import source
from benchmarks.start_up import start_up
from benchmarks.stores import stores
from benchmarks.tiered import tiered
from benchmarks.time_range import time_range
from benchmarks.worker_memory import worker_memory
from kidxlib.terminal.console import note
from kidxlib.terminal.run_command import run

#: Those that record targets, in an order in which each has what it takes of others.
WITH_TARGETS: Final = (
    *(scan, lookup, audit, cold, job, small_segments, worker_memory, start_up),
    *(runs, incremental, planning, fleet, workers, retention, report, growth, seek),
    *(reading, time_range, source, tiered, recover, restore, set_up, packed, million, stores),
)
#: Those that `all` leaves out.
NOT_OF_ALL: Final = (compaction, comparison, pages, skipping)
_NAMES: Final = [str(command.name) for command in (*WITH_TARGETS, *NOT_OF_ALL)]


@click.group()
def benchmarks() -> None:
    """Measure this project on this machine. What the figures mean stands in docs/performance.md."""
    # A user's Python keeps compiled modules; without them each process takes a third of a second more to start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@click.command(name="all")
@click.option("--recorded", "only_recorded", is_flag=True, help="Measure nothing, show what was measured last.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def all_targets(only_recorded: bool, directory: Path) -> None:
    """Run every benchmark that has targets, one after the other, and show all of them in one table."""
    names = [str(command.name) for command in WITH_TARGETS]
    if not only_recorded:
        for name in names:
            note(f"{name} …")  # in a process of its own, which leaves nothing to the next
            subprocess.run([sys.executable, "-m", "benchmarks.run", name, "--directory", directory], check=True)
    print_targets("all targets", [target for name in names for target in recorded(directory, name)])


@click.command(name="keep")
@click.argument("names", nargs=-1, required=True, type=click.Choice(_NAMES))
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def keep_for_pages(names: tuple[str, ...], directory: Path) -> None:
    """Take what these benchmarks wrote down last for docs/performance.md; `python -m tests.docs.render` shows it."""
    for name in names:
        keep(directory, name)


for command in (
    *WITH_TARGETS,
    *NOT_OF_ALL,
    all_targets,
    keep_for_pages,
    generate,
    pictures,
):
    benchmarks.add_command(command)

if __name__ == "__main__":
    run(benchmarks, "python -m benchmarks.run")
