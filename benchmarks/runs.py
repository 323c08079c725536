"""Whole builds from command to end: a release before this one, this one on Spark, and `kidx`, side by side."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from benchmarks.figures import Target, beside, record
from benchmarks.incremental import NEWEST
from benchmarks.links import SEGMENT_BYTES, SEGMENTS_A_PARTITION, content_file, link_segments, write_log_dir
from benchmarks.submit import JobRun, places, run_command
from kidxlib.terminal.console import note
from tests.support.logs import golden
from tests.support.page_cache import held_in_memory

_PROJECT: Final = Path(__file__).resolve().parents[1]
#: Runs by the row of the table, and by who built.
Measured: TypeAlias = dict[str, dict[str, list[JobRun]]]
_LARGE_SEGMENTS, _LARGE_BYTES = 64, 1 << 30
#: The same command again, which finds nothing new.
_AGAIN: Final = ", nothing changed"


@dataclass(frozen=True, slots=True)
class _Build:
    """Who builds, by which command."""

    name: str
    command: Sequence[str]

    def run(self, place: Path) -> JobRun:
        """Build the log dir in a place; its results are of this builder alone."""
        source, *options = places(place)
        results = place / self.name
        where = ("--index-dir", results / "index", "--catalog", results / "catalog")
        return run_command([*self.command, *map(str, (source, options[0], *where))])


def builds(before: Path | None) -> list[_Build]:
    """Who builds, in the order of the columns.

    Args:
        before: a checkout of the release before, set up; None for none.
    """
    found = [
        _Build("spark", [str(_PROJECT / "spark-submit.sh"), "build_index"]),
        _Build("kidx", [str(_PROJECT / ".venv" / "bin" / "kidx"), "build"]),
    ]
    return found if before is None else [_Build("before", [str(before / "spark-submit.sh"), "build_index"]), *found]


@click.command()
@click.option("--segments", type=click.IntRange(SEGMENTS_A_PARTITION), multiple=True, default=(100_000,))
@click.option("--large/--no-large", default=True, show_default=True, help="Also 64 segments of 1 GiB in memory.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--before", type=click.Path(path_type=Path, exists=True), help="A checkout of a release, set up.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def runs(segments: Sequence[int], large: bool, rounds: int, before: Path | None, directory: Path) -> None:
    """Time whole builds: of the sample; of many small segments, again with nothing changed, and with 1 % new; and of
    large ones. Each round runs one builder after the other; all new is built once.
    """
    place, compared = directory.resolve() / "runs", builds(before)
    shutil.rmtree(place, ignore_errors=True)
    measured: Measured = {}
    _sample(place / "sample", compared, rounds, measured)
    for count in segments:
        _many(place / f"segments-{count}", count, compared, rounds, measured)
    if large:
        _large(place / "large", compared, rounds, measured)
    rows = {row: {name: [_figures(run) for run in of] for name, of in each.items()} for row, each in measured.items()}
    seconds, memory = list(_seconds(measured)), list(_memory(measured))
    tables = [beside("seconds", seconds), beside("memory", memory)]
    record(directory, "runs", seconds + memory, tables, runs=rows)


def _time(row: str, measured: Measured, compared: Sequence[_Build], run: Callable[[_Build], JobRun]) -> None:
    for build in compared:
        os.sync()
        found = run(build)
        note(f"{row}: {build.name} {found.seconds:.1f} s")
        measured.setdefault(row, {}).setdefault(build.name, []).append(found)


def _sample(place: Path, compared: Sequence[_Build], rounds: int, measured: Measured) -> None:
    shutil.copytree(golden.SAMPLES, place / "kafka-logs")
    for _ in range(rounds):
        _time("the sample, new catalog", measured, compared, partial(_anew, place))
        _time(f"the sample{_AGAIN}", measured, compared, lambda build: build.run(place))


def _many(place: Path, count: int, compared: Sequence[_Build], rounds: int, measured: Measured) -> None:
    note(f"linking {count:,} segments below {place} …")
    partitions = write_log_dir(place / "kafka-logs", SEGMENT_BYTES, count)
    name = f"{count:,} segments"
    with held_in_memory(*map(content_file, partitions)):
        _time(f"{name}, all new", measured, compared, partial(_anew, place))
        for _ in range(rounds):
            _time(f"{name}{_AGAIN}", measured, compared, lambda build: build.run(place))
        newest = NEWEST
        for _ in range(rounds):
            for partition in partitions:
                link_segments(partition, newest)
            _time(f"{name}, 1 % new", measured, compared, lambda build: build.run(place))
            newest = range(newest.stop, newest.stop + len(newest))


def _large(place: Path, compared: Sequence[_Build], rounds: int, measured: Measured) -> None:
    note(f"writing 1 GiB and linking {_LARGE_SEGMENTS} segments below {place} …")
    [partition] = write_log_dir(place / "kafka-logs", _LARGE_BYTES, _LARGE_SEGMENTS)
    with held_in_memory(content_file(partition)):
        for _ in range(rounds):
            row = f"{_LARGE_SEGMENTS} segments of 1 GiB in memory, new catalog"
            _time(row, measured, compared, partial(_anew, place))


def _anew(place: Path, build: _Build) -> JobRun:
    shutil.rmtree(place / build.name, ignore_errors=True)
    os.sync()
    return build.run(place)


def _figures(run: JobRun) -> dict[str, Any]:
    return {"seconds": run.seconds, "all_bytes": run.all_bytes, **run.memory}


def _seconds(measured: Measured) -> Iterator[Target]:
    for row, each in measured.items():
        for name, of in each.items():
            yield Target(name=f"{row}: {name}", unit="s", values=tuple(run.seconds for run in of))


def _memory(measured: Measured) -> Iterator[Target]:
    """The most that all processes of a run had together."""
    for row, each in measured.items():
        for name, of in each.items():
            yield Target(name=f"{row}: {name}", unit="GiB", values=(max(run.all_bytes for run in of) / 2**30,))
