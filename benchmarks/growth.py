"""How time and memory of a build grow with segments, and with bytes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Table, Target, record
from benchmarks.links import SEGMENT_BYTES, content_file, write_log_dir
from benchmarks.submit import JobRun, places, run_job
from kidxlib.errors import UsageError
from kidxlib.terminal.console import note
from tests.support.page_cache import held_in_memory

GB: Final = 10**9
NEW, UNCHANGED = "all new", "nothing changed"


@dataclass(frozen=True, slots=True)
class Point:
    """One build.

    Attributes:
        size: segments, or bytes of large segments.
    """

    run: str
    size: int
    seconds: float
    jvm_bytes: int
    python_bytes: int

    @classmethod
    def of(cls, run: str, size: int, job: JobRun) -> Point:
        return cls(run, size, job.seconds, job.jvm_bytes, job.python_bytes)


@click.command()
@click.option(
    "--segments",
    type=click.IntRange(1),
    multiple=True,
    default=(1_000, 10_000, 100_000, 1_000_000),
    show_default=True,
)
@click.option("--gigabytes", type=click.IntRange(1), multiple=True, default=(1, 10, 100), show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def growth(segments: Sequence[int], gigabytes: Sequence[int], directory: Path) -> None:
    """Build log dirs of more and more segments of 64 KiB, twice, and of more and more segments of 1 GB.

    All of them are hard links to few files, which are held in memory.
    """
    if min(len(segments), len(gigabytes)) < 2:
        raise UsageError("--segments and --gigabytes: give each twice at least, from small to large")
    place = directory.resolve() / "growth"
    shutil.rmtree(place, ignore_errors=True)
    by_segments: list[Point] = []
    for count in segments:
        note(f"{count:,} segments …")
        runs = _builds(place / f"{count}-segments", SEGMENT_BYTES, count, (NEW, UNCHANGED))
        by_segments += [Point.of(name, count, run) for name, run in runs.items()]
    by_bytes: list[Point] = []
    for count in gigabytes:
        note(f"{count} GB …")
        runs = _builds(place / f"{count}-gb", GB, count, (NEW,))
        by_bytes += [Point.of(name, count * GB, run) for name, run in runs.items()]
    shutil.rmtree(place)
    record(
        directory,
        "growth",
        _targets(by_segments, by_bytes),
        [_table(by_segments, by_bytes)],
        segments=[asdict(each) for each in by_segments],
        bytes=[asdict(each) for each in by_bytes],
    )


def _builds(place: Path, segment_bytes: int, segments: int, names: Sequence[str]) -> dict[str, JobRun]:
    """Builds of a new log dir, one after the other, under these names. Nothing of it is removed, or the next ones would
    pay for that, as in `small_segments`.
    """
    partitions = write_log_dir(place / "kafka-logs", segment_bytes, segments)
    with held_in_memory(*map(content_file, partitions)):
        return {name: run_job("build_index", *places(place)) for name in names}


def _table(by_segments: Sequence[Point], by_bytes: Sequence[Point]) -> Table:
    sizes = [f"{each.size:,} segments" for each in by_segments] + [f"{each.size // GB:,} GB" for each in by_bytes]
    rows = [
        (each.run, size, f"{each.seconds:.1f}", f"{each.jvm_bytes / 1e6:,.0f}", f"{each.python_bytes / 1e6:,.0f}")
        for each, size in zip([*by_segments, *by_bytes], sizes, strict=True)
    ]
    columns = ("", "size", "seconds", "driver's JVM, MB", "driver's Python, MB")
    return Table(name="builds", columns=columns, rows=rows, text_columns=2)


def _targets(by_segments: Sequence[Point], by_bytes: Sequence[Point]) -> list[Target]:
    """What each further segment and byte takes, from the smallest size to the largest."""
    targets = []
    for name in (NEW, UNCHANGED):
        small, *_, large = (each for each in by_segments if each.run == name)
        more = large.size - small.size
        seconds, memory = large.seconds - small.seconds, large.python_bytes - small.python_bytes
        label = f"growth, {name}, {small.size:,} to {large.size:,} segments"
        targets.append(Target(name=f"{label}: time", unit="µs a segment", values=[seconds / more * 1e6]))
        targets.append(Target(name=f"{label}: driver's Python", unit="bytes a segment", values=[memory / more]))
    small, *_, large = by_bytes
    label = f"growth, {small.size // GB} to {large.size // GB} GB"
    rate = (large.size - small.size) / (large.seconds - small.seconds)
    targets.append(Target(name=f"{label}: each further GB at", unit="GB/s", values=[rate / GB]))
    more_memory = (large.python_bytes - small.python_bytes) / 2**20
    targets.append(Target(name=f"{label}: driver's Python grows by", unit="MiB", values=[more_memory]))
    return targets
