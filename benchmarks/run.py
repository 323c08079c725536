"""Every benchmark as a command: `.venv/bin/python -m benchmarks.run --help`."""

from __future__ import annotations

import click

from benchmarks.audit import audit
from benchmarks.cold import cold
from benchmarks.compaction import compaction
from benchmarks.generate import generate
from benchmarks.incremental import incremental
from benchmarks.lookup import lookup
from benchmarks.pages import pages
from benchmarks.pictures import pictures
from benchmarks.retention import retention
from benchmarks.scan import scan
from benchmarks.seek import seek
from kidxlib.command import run


@click.group()
def benchmarks() -> None:
    """Measure this project on this machine. What the figures mean stands in docs/performance.md."""


benchmarks.add_command(generate)
benchmarks.add_command(audit)
benchmarks.add_command(scan)
benchmarks.add_command(cold)
benchmarks.add_command(compaction)
benchmarks.add_command(incremental)
benchmarks.add_command(lookup)
benchmarks.add_command(pages)
benchmarks.add_command(pictures)
benchmarks.add_command(retention)
benchmarks.add_command(seek)

if __name__ == "__main__":
    run(benchmarks, "python -m benchmarks.run")
