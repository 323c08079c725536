"""Lookups in one index: this project's beside those of Kafka's own index classes."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Table, Target, record
from benchmarks.scan import BROKER_JAVA_OPTIONS
from kidxlib.errors import KidxError
from kidxlib.format import layouts, segment_files
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.terminal.console import note
from tests.support.kafka import lookups
from tests.support.kafka.classes import Kafka
from tests.support.kafka.lookups import KafkaIndex

AnIndex: TypeAlias = OffsetIndex | TimeIndex
Targets: TypeAlias = NDArray[np.int64]

#: Bytes of an index: Kafka's default limit; that of a full segment of 1 GiB with an entry every 4 KiB; little more than
#: the part that is searched first.
SIZES: Final = (10 * 1024**2, 2 * 1024**2, 16 * 1024)
#: After these the JVM has compiled what it runs.
WARM_UP_PASSES: Final = 3
#: Of all targets, those that are looked up one by one from Python.
ONE_BY_ONE: Final = 100_000
#: Keys of entries lie this far apart, so that most targets lie between two.
STEP: Final = 7

_MANY, _ONE, _KAFKA = "lookup_many", "lookup", "Kafka"


@click.command()
@click.option("--targets", type=click.IntRange(1000), default=1_000_000, show_default=True, help="Lookups in a pass.")
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True, help="Passes of each, in turn.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("var/benchmarks"),
    show_default=True,
    help="Where the indexes are made, and lookup.json goes.",
)
def lookup(targets: int, rounds: int, directory: Path) -> None:
    """Look up the same targets again and again, in indexes that lie in memory and on one core.

    Checks that the answers are Kafka's, prints medians, and writes all passes to lookup.json.
    """
    measured, required, rows = list[dict[str, Any]](), list[Target](), list[tuple[str, ...]]()
    directory.mkdir(parents=True, exist_ok=True)
    for kind in (OffsetIndex, TimeIndex):
        for size in SIZES:
            note(f"{kind.__name__} of {size:,} bytes …")
            with Kafka(BROKER_JAVA_OPTIONS) as kafka:
                versions = kafka.versions
                ours, theirs = _index(kafka, kind, size, directory)
                seconds = _measure(ours, theirs, targets, rounds)
            measured.append({"kind": kind.__name__, "entries": len(ours), "seconds": seconds})
            if kind is OffsetIndex and size == SIZES[0]:
                required = _targets(seconds)
            rows += [(kind.__name__, *row) for row in _rows(len(ours), seconds, targets)]
    rates = ("Kafka, M/s", "`lookup_many`, M/s", "to Kafka", "to Kafka's random", "`lookup` one by one, µs")
    tables = [Table(name="in memory", columns=("", "entries", "targets", *rates), rows=rows, text_columns=3)]
    record(directory, "lookup", required, tables, kafka=versions, targets_of_a_pass=targets, indexes=measured)


def _targets(seconds: Mapping[str, Sequence[float]]) -> list[Target]:
    """How many times as fast as Kafka the largest offset index answers, round by round."""
    return [
        Target(
            name=f"offset index of 10 MiB, {order} targets: {_MANY}, to {_KAFKA}",
            unit="×",
            values=[
                theirs / ours
                for ours, theirs in zip(
                    seconds[f"{order}, {_MANY}"][WARM_UP_PASSES:],
                    seconds[f"{order}, {_KAFKA}"][WARM_UP_PASSES:],
                    strict=True,
                )
            ],
            at_least=at_least,
        )
        for order, at_least in (("random", 5), ("sorted", 12))
    ]


def _index(kafka: Kafka, kind: type[AnIndex], size: int, directory: Path) -> tuple[AnIndex, KafkaIndex]:
    """One index file, opened by us and by Kafka."""
    is_offset = kind is OffsetIndex
    layout = layouts.OFFSET_INDEX_ENTRY if is_offset else layouts.TIME_INDEX_ENTRY
    entries = np.zeros(size // layout.itemsize, layout)
    key, value = layout.names or ()
    entries[key] = STEP * np.arange(1, len(entries) + 1)
    entries[value] = np.arange(len(entries)) * (1600 if is_offset else 1)
    path = directory / segment_files.segment_file(
        0, segment_files.OFFSET_INDEX_SUFFIX if is_offset else segment_files.TIME_INDEX_SUFFIX
    )
    path.write_bytes(entries.tobytes())
    opened = lookups.offset_index if is_offset else lookups.time_index
    return kind.open(path, 0), opened(kafka, path, 0)


def _measure(ours: AnIndex, theirs: KafkaIndex, targets: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every pass, the warm-up first, by the order of the targets and by what was measured.

    Raises:
        KidxError: Kafka has other answers.
    """
    anywhere = np.random.default_rng(1).integers(0, STEP * len(ours), targets, endpoint=True)
    runs: dict[str, Callable[[], float]] = {}
    for order, asked in (("random", anywhere), ("sorted", np.sort(anywhere))):
        some = asked[:: max(1, targets // ONE_BY_ONE)]
        if ours.lookup_many(some[:1000]).tolist() != theirs.lookup_many(some[:1000]):
            raise KidxError(f"{ours.name}: expected Kafka's answers to {order} targets")
        runs[f"{order}, {_KAFKA}"] = theirs.timed_lookups(asked)
        runs[f"{order}, {_MANY}"] = functools.partial(_timed, ours.lookup_many, asked)
        runs[f"{order}, {_ONE}"] = functools.partial(_timed_one_by_one, ours, some.tolist())
    seconds: dict[str, list[float]] = {what: [] for what in runs}
    for _ in range(WARM_UP_PASSES + rounds):
        for what, run in runs.items():
            seconds[what].append(run())
    return seconds


def _timed(work: Callable[[Targets], object], targets: Targets) -> float:
    start = time.perf_counter()
    work(targets)
    return time.perf_counter() - start


def _timed_one_by_one(index: AnIndex, targets: Sequence[int]) -> float:
    """Seconds for each lookup, the loop around them included."""
    look_up = index.lookup
    start = time.perf_counter()
    for target in targets:
        look_up(target)
    return (time.perf_counter() - start) / len(targets)


def _rows(entries: int, seconds: Mapping[str, Sequence[float]], targets: int) -> list[tuple[str, ...]]:
    medians = {what: statistics.median(passes[WARM_UP_PASSES:]) for what, passes in seconds.items()}
    return [
        (
            f"{entries:,}",
            order,
            f"{targets / medians[f'{order}, {_KAFKA}'] / 1e6:.1f}",
            f"{targets / medians[f'{order}, {_MANY}'] / 1e6:.1f}",
            f"{medians[f'{order}, {_KAFKA}'] / medians[f'{order}, {_MANY}']:.1f} ×",
            f"{medians[f'random, {_KAFKA}'] / medians[f'{order}, {_MANY}']:.1f} ×",
            f"{medians[f'{order}, {_ONE}'] * 1e6:.1f}",
        )
        for order in ("random", "sorted")
    ]
