"""Index files that the catalog keeps (`build --pack`) beside single files: time for each segment, and objects made."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Target, record
from benchmarks.links import SEGMENT_BYTES, SEGMENTS_A_PARTITION, write_log_dir
from benchmarks.submit import JobRun, run_command
from kidxlib.terminal.console import note

_KIDX: Final = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "kidx"


@dataclass(frozen=True, slots=True)
class _Runs:
    """Builds by turns with index files and packed, and how many files each has made."""

    of_files: list[JobRun] = field(default_factory=list)
    of_packed: list[JobRun] = field(default_factory=list)
    made_files: list[int] = field(default_factory=list)
    made_packed: list[int] = field(default_factory=list)


@click.command()
@click.option("--segments", type=click.IntRange(SEGMENTS_A_PARTITION), default=100_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--place", type=click.Path(path_type=Path), default=Path("/dev/shm/kidx-packed"), show_default=True)
@click.option("--unpack/--no-unpack", default=True, show_default=True, help="Unpack, and compare the files.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def packed(segments: int, rounds: int, place: Path, unpack: bool, directory: Path) -> None:
    """Build new segments of 64 KiB, hard links to few files in a tmpfs, by turns with index files and packed.

    Whole commands are timed, from their start to their end. What they made is counted below the index directory and the
    catalog. Then the packed files are written as single ones, which have to be those of the other build.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        runs = _by_turns(place, segments, rounds)
        unpacking = [_unpack(place)] if unpack else []
    finally:
        shutil.rmtree(place)
    per_segment = 1000 / segments  # ms
    thousands = segments / 1000
    targets = [
        Target(
            name="packed: a new segment of 64 KiB",
            unit="ms",
            values=[run.seconds * per_segment for run in runs.of_packed],
            at_most=0.1,
        ),
        Target(
            name="packed: files or objects made for 1,000 segments",
            unit="files",
            values=[count / thousands for count in runs.made_packed],
            at_most=1,
        ),
        Target(
            name="with index files: a new segment of 64 KiB",
            unit="ms",
            values=[run.seconds * per_segment for run in runs.of_files],
            at_most=0.15,
        ),
        Target(
            name="with index files: files or objects made for 1,000 segments",
            unit="files",
            values=[count / thousands for count in runs.made_files],
        ),
        Target(name="packed, to index files", unit="×", values=_ratios(runs.of_packed, runs.of_files)),
    ]
    targets += [Target(name="unpacking: a segment", unit="ms", values=[run.seconds * per_segment]) for run in unpacking]
    record(directory, "packed", targets, segments=segments)


@click.command()
@click.option("--segments", type=click.IntRange(SEGMENTS_A_PARTITION), default=1_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def million(segments: int, rounds: int, directory: Path) -> None:
    """Build a million new segments of 64 KiB, hard links to few files, packed and with index files on the disk.

    It takes some minutes, and 16 GB below the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    place = directory.resolve() / "million"
    try:
        runs = _by_turns(place, segments, rounds)
    finally:
        shutil.rmtree(place)
    targets = [
        Target(name="packed: the build", unit="s", values=[run.seconds for run in runs.of_packed], at_most=120),
        Target(
            name="with index files: the build", unit="s", values=[run.seconds for run in runs.of_files], at_most=200
        ),
        Target(name="packed: files made", unit="files", values=list(runs.made_packed)),
    ]
    record(directory, "million", targets, segments=segments)


def _by_turns(place: Path, segments: int, rounds: int) -> _Runs:
    shutil.rmtree(place, ignore_errors=True)
    note(f"linking {segments:,} segments below {place} …")
    write_log_dir(place / "kafka-logs", SEGMENT_BYTES, segments)
    runs = _Runs()
    for number in range(rounds):
        note(f"round {number + 1} of {rounds} …")
        runs.of_packed.append(_build(place, "packed", "--pack"))
        runs.made_packed.append(_count(place / "packed"))
        runs.of_files.append(_build(place, "files", "--index-dir", place / "files" / "index"))
        runs.made_files.append(_count(place / "files"))
    return runs


def _kidx(*arguments: str | Path) -> JobRun:
    return run_command([str(_KIDX), *map(str, arguments)], only_seconds=True)


def _build(place: Path, name: str, *where: str | Path) -> JobRun:
    results = place / name
    shutil.rmtree(results, ignore_errors=True)
    source = f"bench={place / 'kafka-logs'}"
    return _kidx("build", "--source", source, "--catalog", results / "catalog", *where)


def _unpack(place: Path) -> JobRun:
    """Write packed files as single ones, and compare them with those of the other build."""
    note("unpacking …")
    run = _kidx("unpack", "--catalog", place / "packed" / "catalog", "--index-dir", place / "unpacked")
    _ensure_same(place / "files" / "index", place / "unpacked")
    return run


def _count(directory: Path) -> int:
    return sum(path.is_file() for path in directory.rglob("*"))


def _ratios(ours: Sequence[JobRun], others: Sequence[JobRun]) -> list[float]:
    return [our.seconds / other.seconds for our, other in zip(ours, others, strict=True)]


def _ensure_same(one: Path, other: Path) -> None:
    names = [sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file()) for root in (one, other)]
    if names[0] != names[1] or any((one / name).read_bytes() != (other / name).read_bytes() for name in names[0]):
        raise AssertionError(f"{other}: not the files of {one}")
