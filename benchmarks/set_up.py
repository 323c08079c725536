"""The first command of somebody who has just cloned the repository: from nothing to the first result."""

from __future__ import annotations

import os
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
    """Clone the repository and run the README's first command: where nothing is downloaded yet, and where packages are.

    It sets up what it needs, with pip, and with uv if that is on PATH, and builds the sample. The command after it
    makes the archive of Spark's classes.
    """
    place = directory.resolve() / "set-up"
    uv = shutil.which("uv")
    names = ["pip", "uv"] if uv else ["pip"]
    seconds: dict[tuple[str, str], list[float]] = {
        (name, part): [] for name in names for part in ("cold", "warm", "second")
    }
    for number in range(rounds):
        shutil.rmtree(place, ignore_errors=True)
        for name in names:
            environment = _environment(place / name / "cache", uv if name == "uv" else None)
            for part in ("cold", "warm"):
                note(f"round {number + 1} of {rounds}: {name}, whose cache is {part} …")
                checkout = place / name / part
                subprocess.run(("git", "clone", "--quiet", PROJECT, checkout), check=True)
                seconds[name, part].append(_run(checkout, environment))
            seconds[name, "second"].append(_run(place / name / "warm", environment))
    shutil.rmtree(place)
    targets = []
    for name in names:
        targets += [
            Target(name=f"{name}: nothing downloaded", unit="s", values=seconds[name, "cold"], at_most=90),
            Target(name=f"{name}: packages downloaded before", unit="s", values=seconds[name, "warm"], at_most=30),
            Target(name=f"{name}: the second command", unit="s", values=seconds[name, "second"]),
        ]
    record(directory, "set_up", targets)


def _environment(cache: Path, uv: str | None) -> dict[str, str]:
    """An environment with a cache of its own, and uv on its PATH only where it is wanted."""
    environment = clean_environment()
    path = [entry for entry in environment["PATH"].split(os.pathsep) if not Path(entry, "uv").exists()]
    if uv is not None:
        (cache / "bin").mkdir(parents=True)
        (cache / "bin/uv").symlink_to(uv)
        path.append(str(cache / "bin"))
    caches = {"PIP_CACHE_DIR": str(cache), "UV_CACHE_DIR": str(cache / "uv")}
    return {**environment, **caches, "PATH": os.pathsep.join(path)}


def _run(checkout: Path, environment: dict[str, str]) -> float:
    """Seconds of the README's first command, the first time or again."""
    shutil.rmtree(checkout / "var", ignore_errors=True)
    start = time.perf_counter()
    subprocess.run((checkout / "spark-submit.sh", _FIRST_COMMAND), check=True, env=environment, capture_output=True)
    return time.perf_counter() - start
