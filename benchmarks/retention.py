"""A plan of a million segments from a generated catalog, by the job and by `kidx`: seconds, and memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.catalog_rows import HOUR_MS, NOW_MS, OF_PARTITIONS, OF_SEGMENTS, append, joined
from benchmarks.figures import Target, beside, record
from benchmarks.submit import JobRun, run_job, run_kidx
from kidxlib.catalog.matching import Values
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.errors import KidxError
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.console import note, print_line

_SEGMENT_BYTES: Final = 1 << 30
_OFFSETS: Final = 1_000_000
_TOPICS: Final = 50


@click.command()
@click.option("--segments", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=2_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def retention(segments: int, partitions: int, rounds: int, directory: Path) -> None:
    """Plan the retention of a generated catalog by `kidx`, and through ./spark-submit.sh.

    Segments are of 1 GiB and an hour each, timestamps go back in some; no files exist for them. Memory is that of all
    processes of a run together.
    """
    catalog = directory.resolve() / f"retention-{segments}-{partitions}"
    runs: dict[str, Callable[..., JobRun]] = {
        "kidx": lambda *arguments: run_kidx("retention", *arguments),
        "Spark": lambda *arguments: run_job("retention", *arguments),
    }
    measured: dict[str, list[JobRun]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            note(f"round {number + 1} of {rounds}: {segments:,} segments in {partitions:,} partitions, by {name} …")
            shutil.rmtree(catalog, ignore_errors=True)
            _generate(DeltaTables(str(catalog)), segments, partitions)
            measured[name].append(run("--catalog", catalog, "--now", str(NOW_MS)))
    said = {_said(run) for of_engine in measured.values() for run in of_engine}
    if len(said) > 1:
        raise KidxError(f"plans of one catalog differ: {sorted(said)}")
    print_line(said.pop())
    targets = [target for name in runs for target in _targets(name, segments, measured[name])]
    record(directory, "retention", targets, [beside("plans", targets)])


def _targets(engine: str, segments: int, runs: list[JobRun]) -> list[Target]:
    of = f"{engine}, {segments:,} segments"
    seconds_most = {"kidx": 15, "Spark": 25}[engine] if segments == 1_000_000 else None
    return [
        Target(name=f"{of}: a plan", unit="s", values=[run.seconds for run in runs], at_most=seconds_most),
        Target(name=f"{of}: memory of all processes", unit="GiB", values=[run.all_bytes / 2**30 for run in runs]),
    ]


def _said(run: JobRun) -> str:
    return next(line.strip() for line in run.out.splitlines() if line.startswith("policy "))


def _generate(tables: DeltaTables, segments: int, partitions: int) -> None:
    each = -(-segments // partitions)
    numbers = np.arange(segments)
    place, number = numbers // each, numbers % each
    base_offset = number * _OFFSETS
    # The last segment is of now; one in eight is ten hours older than its place says.
    timestamps = NOW_MS - (each - 1 - number) * HOUR_MS - np.where(numbers % 8 == 0, 10 * HOUR_MS, 0)
    names: Values = pc.utf8_lpad(pa.array(base_offset).cast(pa.string()), 20, "0")
    directories = _key(place)["directory"]
    of_segments = {
        **{name: values for name, values in _key(place).items() if name != "directory"},
        "base_offset": base_offset,
        "next_offset": base_offset + _OFFSETS,
        "active": number == each - 1,
        "max_timestamp_ms": timestamps,
        "log_path": joined("/nowhere/logs/", directories, "/", names, ".log"),
        "index_directory": joined("/nowhere/index/", directories),
    }
    alike = {
        **OF_SEGMENTS,
        "source": "generated",
        "status": "ok",
        "log_bytes": _SEGMENT_BYTES,
        "valid_bytes": _SEGMENT_BYTES,
        "records": _OFFSETS,
    }
    append(tables, SEGMENTS, of_segments, alike, segments)
    of_partitions = _key(np.arange(partitions))
    of_partitions["directory"] = joined("/nowhere/logs/", of_partitions["directory"])
    append(tables, PARTITIONS, of_partitions, {**OF_PARTITIONS, "source": "generated"}, partitions)


def _key(place: Values) -> dict[str, Any]:
    """Topics, partitions and the names of their directories, by a partition's place among all."""
    topic = joined("topic-", pa.array(place % _TOPICS).cast(pa.string()))
    partition: Values = pa.array(place // _TOPICS).cast(pa.int32())
    return {"topic": topic, "partition": partition, "directory": joined(topic, "-", partition.cast(pa.string()))}
