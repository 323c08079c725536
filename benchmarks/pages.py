"""The pages of an index that a lookup brings into memory, and how long that takes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Table, record
from kidxlib.errors import KidxError
from kidxlib.format import layouts
from kidxlib.index.abstract_index import PAGE_BYTES, Trace
from kidxlib.index.offset import OffsetIndex
from kidxlib.terminal.console import note
from tests.model.plain_search import plain_search
from tests.support import page_cache

Targets: TypeAlias = NDArray[np.int64]

#: Pages of an index: where Kafka's example begins, up to 10 MiB, Kafka's default limit.
SIZES: Final = (13, 14, 20, 40, 80, 160, 320, 640, 1280, 2560)
ENTRIES_A_PAGE: Final = PAGE_BYTES // layouts.OFFSET_INDEX_ENTRY.itemsize
#: Targets that are looked up at once.
MANY: Final = 100_000

TAIL: Final = "the last entry"

#: What Kafka does, and what it did before.
WARM_COLD: Final = "warm/cold"
PLAIN: Final = "plain"


@dataclass(frozen=True, slots=True)
class Cold:
    """Lookups of one kind, each in an index of which nothing was in memory.

    Attributes:
        pages: of the index.
        touched: how many of them a lookup touches, by its trace; the median. None of many targets at once.
        resident: how many of them were in memory after it, by the kernel; the median.
        seconds: of each lookup.
    """

    what: str
    search: str
    read_ahead: bool
    pages: int
    touched: float | None
    resident: float
    seconds: list[float]


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=50, show_default=True, help="Lookups of each kind.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("var/benchmarks"),
    show_default=True,
    help="Where the index is made, and pages.json goes; on the disk that is to be measured.",
)
def pages(rounds: int, directory: Path) -> None:
    """Look up entries of indexes that are not in memory, with both searches, with and without the kernel's read-ahead.

    Fails unless the pages in memory after a lookup without read-ahead are those of its trace. Prints medians, and
    writes all times to pages.json.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "pages.index"
    anywhere = np.random.default_rng(1).integers(1, SIZES[-1] * ENTRIES_A_PAGE, MANY)
    kinds: dict[str, Sequence[Targets]] = {
        "any entry": [anywhere[number : number + 1] for number in range(rounds)],
        f"{MANY:,} sorted targets": [np.sort(anywhere)] * rounds,
    }
    measured: list[Cold] = []
    for size in SIZES:
        note(f"an index of {size} pages …")
        _write_index(path, size)
        last = [np.array([size * ENTRIES_A_PAGE])] * rounds
        measured += [_cold(TAIL, path, search, ahead, last) for search in (WARM_COLD, PLAIN) for ahead in (False, True)]
    for what, asked in kinds.items():
        measured += [_cold(what, path, WARM_COLD, read_ahead, asked) for read_ahead in (False, True)]
    path.unlink()
    lookups = [asdict(each) for each in measured]
    record(directory, "pages", [], [_table(measured)], read_ahead_kib=_read_ahead_kib(directory), measured=lookups)


def _write_index(path: Path, size: int) -> None:
    """An offset index of so many full pages, whose entries have the offsets 1, 2, 3, …"""
    entries = np.zeros(size * ENTRIES_A_PAGE, layouts.OFFSET_INDEX_ENTRY)
    entries["relative_offset"] = np.arange(1, len(entries) + 1)
    entries["position"] = np.arange(len(entries)) * 1600
    path.write_bytes(entries.tobytes())


def _cold(what: str, path: Path, search: str, read_ahead: bool, asked: Sequence[Targets]) -> Cold:
    """Look up each lot of targets in a map of its own.

    Raises:
        KidxError: the file's pages cannot be told apart, or are others than the trace says.
    """
    seconds: list[float] = []
    touched: list[int] = []
    resident: list[int] = []
    for targets in asked:
        if not page_cache.drop(path):
            raise KidxError(f"{path}: stays in memory, expected a file system on a disk; set --directory")
        memory = page_cache.mapped(path, without_read_ahead=not read_ahead)
        seconds.append(_timed(memory, search, targets))
        in_memory = page_cache.resident(path)
        resident.append(len(in_memory))
        if len(targets) == 1:
            trace = traced(memory, search, int(targets[0]))
            touched.append(len(trace.pages))
            if not read_ahead and in_memory != tuple(sorted(trace.pages)):
                raise KidxError(f"{path}: pages {in_memory} in memory, expected {trace.pages}, those of the trace")
        del memory  # what is mapped cannot be dropped
    return Cold(
        what=what,
        search=search,
        read_ahead=read_ahead,
        pages=path.stat().st_size // PAGE_BYTES,
        touched=statistics.median(touched) if touched else None,
        resident=statistics.median(resident),
        seconds=seconds,
    )


def traced(memory: NDArray[np.uint8], search: str, target: int) -> Trace:
    """What a search for one offset touches in an offset index of base offset 0."""
    return plain_search(memory, target) if search == PLAIN else OffsetIndex.from_bytes(memory, 0).trace(target)


def _timed(memory: NDArray[np.uint8], search: str, targets: Targets) -> float:
    """Seconds for one lookup, of one target or of many; that the file is mapped is not counted.

    The plain search is plain Python, which takes some microseconds more: little beside what its pages take.
    """
    index = OffsetIndex.from_bytes(memory, 0)
    one = int(targets[0]) if len(targets) == 1 else None
    start = time.perf_counter()
    if one is None:
        index.lookup_many(targets)
    elif search == PLAIN:
        plain_search(memory, one)
    else:
        index.lookup(one)
    return time.perf_counter() - start


def _read_ahead_kib(directory: Path) -> str:
    """How much the kernel reads around a page that is touched, of files in a directory."""
    device = directory.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return setting.read_text().strip() if setting.exists() else "unknown"


def _table(measured: Sequence[Cold]) -> Table:
    rows = [
        (
            each.what,
            each.search,
            "yes" if each.read_ahead else "no",
            f"{each.pages:,}",
            "" if each.touched is None else f"{each.touched:,g}",
            f"{each.resident:,g}",
            f"{statistics.median(each.seconds) * 1000:.2f}",
            f"{min(each.seconds) * 1000:.2f}–{max(each.seconds) * 1000:.2f}",
        )
        for each in measured
    ]
    columns = ("looked up", "search", "read-ahead", "pages", "touched", "read", "ms, median", "fastest–slowest")
    return Table(name="from disk", columns=columns, rows=rows, text_columns=3)
