"""The first command of somebody who has just cloned the repository: from nothing to the first result."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import click

from benchmarks.figures import Target, record
from benchmarks.submit import PROJECT
from kidxlib.terminal.console import note
from tests.support.spark.jobs import clean_environment

_FIRST_COMMAND = "build_index"


@click.command(name="set_up")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def set_up(rounds: int, directory: Path) -> None:
    """Clone the repository and run the README's first command: where pip has downloaded nothing yet, and where it has.

    It sets up what it needs, and builds the sample. The command after it makes the archive of Spark's classes.
    """
    place = directory.resolve() / "set-up"
    seconds: dict[str, list[float]] = {name: [] for name in ("cold", "warm", "second")}
    for number in range(rounds):
        shutil.rmtree(place, ignore_errors=True)
        for name in ("cold", "warm"):
            note(f"round {number + 1} of {rounds}: pip's cache is {name} …")
            checkout = place / name
            subprocess.run(("git", "clone", "--quiet", PROJECT, checkout), check=True)
            seconds[name].append(_run(checkout, place / "pip"))
        seconds["second"].append(_run(place / "warm", place / "pip"))
    shutil.rmtree(place)
    targets = [
        Target(name="first command, nothing downloaded", unit="s", values=seconds["cold"], at_most=90),
        Target(name="first command, packages downloaded before", unit="s", values=seconds["warm"], at_most=30),
        Target(name="second command, which makes the archive of classes", unit="s", values=seconds["second"]),
    ]
    record(directory, "set_up", targets)


def _run(checkout: Path, pip_cache: Path) -> float:
    """Seconds of the command."""
    environment = {**clean_environment(), "PIP_CACHE_DIR": str(pip_cache)}
    shutil.rmtree(checkout / "var", ignore_errors=True)
    start = time.perf_counter()
    subprocess.run((checkout / "spark-submit.sh", _FIRST_COMMAND), check=True, env=environment, capture_output=True)
    return time.perf_counter() - start
