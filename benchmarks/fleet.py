"""A fleet that grows to millions of segments: what a driver needs whose executors plan, and what a commit costs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Target, beside, record
from benchmarks.links import SEGMENTS_A_PARTITION, link_segments
from benchmarks.planning import add_copies, make_first
from benchmarks.submit import JobRun, places, run_job
from kidxlib.errors import KidxError
from kidxlib.operations.build.waves import RECORDING
from kidxlib.terminal.console import note

_GIB: Final = 2**30
_SIZES: Final = (100_000, 1_000_000, 3_000_000, 10_000_000)
#: So many partitions get new segments at each size, so many each.
_GROWING, _NEW_EACH = 10, 100


@dataclass(frozen=True, slots=True)
class _Size:
    """The runs at one size: nothing changed; 1,000 segments new."""

    segments: int
    unchanged: JobRun
    some_new: JobRun


@click.command()
@click.option("--most", type=click.IntRange(_SIZES[0]), default=_SIZES[-1], show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def fleet(most: int, directory: Path) -> None:
    """Build a partition of 1,000 segments, multiply it with its indexes and its rows, and build again, at each size.

    Logs and indexes are hard links, and executors list them. At each size a first run finds nothing changed, and a
    second one 1,000 new segments in 10 partitions.
    """
    place = directory.resolve() / "fleet"
    shutil.rmtree(place, ignore_errors=True)
    make_first(place)
    partitions = 1
    sizes = []
    for segments in (size for size in _SIZES if size <= most):
        wanted = segments // SEGMENTS_A_PARTITION
        add_copies(place, range(partitions, wanted))
        sizes.append(_measure(place, partitions, segments))
        partitions = wanted
    targets = _targets(sizes)
    record(
        directory,
        "fleet",
        targets,
        [beside("sizes", targets)],
        runs={size.segments: size.some_new.phases for size in sizes},
    )


def _measure(place: Path, first: int, segments: int) -> _Size:
    """
    Args:
        first: of the partitions that were added, which get new segments.
    """
    note(f"a build that finds {segments:,} segments unchanged …")
    unchanged = _run(place)
    if unchanged.json["segments"] != 0:
        raise KidxError(f"{unchanged.json['segments']} segments read, expected none")
    for number in range(first, first + _GROWING):
        directory = place / "kafka-logs" / f"bench-{number}"
        link_segments(directory, range(SEGMENTS_A_PARTITION, SEGMENTS_A_PARTITION + _NEW_EACH))
    note(f"a build that finds {_GROWING * _NEW_EACH:,} segments new …")
    some_new = _run(place)
    if some_new.json["segments"] != _GROWING * _NEW_EACH:
        raise KidxError(f"{some_new.json['segments']} segments read, expected {_GROWING * _NEW_EACH}")
    return _Size(segments, unchanged, some_new)


def _run(place: Path) -> JobRun:
    return run_job("build_index", *places(place), "--plan-on-executors", "-v")


def _targets(sizes: list[_Size]) -> list[Target]:
    smallest, targets = sizes[0], []
    for size in sizes:
        of, run = f"{size.segments:,} segments", size.unchanged
        driver = (run.jvm_bytes + run.python_bytes) / _GIB
        targets += [
            Target(name=f"{of}: nothing changed", unit="s", values=[run.seconds]),
            Target(name=f"{of}: driver's memory, JVM", unit="GiB", values=[run.jvm_bytes / _GIB]),
            Target(name=f"{of}: driver's memory, Python", unit="GiB", values=[run.python_bytes / _GIB]),
            Target(name=f"{of}: driver's memory, both", unit="GiB", values=[driver], at_most=1.0),
            Target(name=f"{of}: a worker's memory", unit="GiB", values=[run.worker_bytes / _GIB]),
            Target(
                name=f"{of}: 1,000 new, of this the commit",
                unit="s",
                values=[size.some_new.phases[RECORDING]],
                at_most=1.5 * smallest.some_new.phases[RECORDING],
            ),
            Target(name=f"{of}: 1,000 new", unit="s", values=[size.some_new.seconds]),
        ]
    return targets
