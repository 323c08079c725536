"""One large segment with indexes at several intervals: bytes, what it takes to make them, and what lookups cost."""

from __future__ import annotations

import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import Table, record
from benchmarks.generate import SegmentContent, write_segment
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.index.offset import OffsetIndex
from kidxlib.records.header_search import new_walks, step_to_offsets, walk
from kidxlib.recovery.coarsen import Indexes, coarsen_indexes, indexes_from_headers, scan_cost
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_log import map_log, open_local_log
from kidxlib.terminal.console import note
from tests.support import page_cache

INTERVALS: Final = (4096, 64 * 1024, 1024 * 1024)
_KIB: Final = 1024
#: Offsets that are looked up in one pass.
_LOOKUPS: Final = 20_000


@click.command()
@click.option("--mib", type=click.IntRange(1), default=1024, show_default=True, help="Size of the segment.")
@click.option("--batch-bytes", type=click.IntRange(100), multiple=True, default=(900, 16 * _KIB), show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Passes of each, in turn.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def compaction(mib: int, batch_bytes: tuple[int, ...], rounds: int, directory: Path) -> None:
    """Coarsen the indexes of a segment of uncompressed batches, on one core.

    Each interval is reached through the index before it and by batch headers alone, from memory and from the disk,
    and is compared with what recovery writes. Prints medians, and writes all passes to compaction.json.
    """
    segments, stored, made = [], list[tuple[str, ...]](), list[tuple[str, ...]]()
    directory.mkdir(parents=True, exist_ok=True)
    for size in batch_bytes:
        path = directory / f"compaction-{size}-{mib}MiB" / segment_file(0, LOG_SUFFIX)
        if not path.exists():
            note(f"generating {mib:,} MiB of batches of {size:,} bytes …")
            path.parent.mkdir(exist_ok=True)
            write_segment(path, SegmentContent(magic=2, batch_bytes=size), mib * _KIB * _KIB)
        found = _measure(path, rounds)
        segments.append({"batch_bytes": size, "log_bytes": path.stat().st_size, "intervals": found})
        stored += [(f"{size:,} B", *_stored(figure)) for figure in found]
        made += [(f"{size:,} B", *row) for figure in found for row in _made(figure)]
    costs = ("index bytes", "entries", "scanned for a lookup, mean", "at most", "µs a lookup")
    ways = ("from memory, ms", "from disk, ms", "log read, MiB")
    tables = [
        Table(name="stored", columns=("batches", "interval", *costs), rows=stored),
        Table(name="made", columns=("batches", "interval", "how", *ways), rows=made, text_columns=3),
    ]
    record(directory, "compaction", [], tables, load=os.getloadavg(), segments=segments)


def _measure(path: Path, rounds: int) -> list[dict[str, Any]]:
    figures = []
    denser: Indexes | None = None
    with open_local_log(str(path)) as (descriptor, version):
        for interval in INTERVALS:
            note(f"interval {interval:,} …")
            options = RecoverOptions(interval_bytes=interval)
            recovered = recover(map_log(descriptor, version.size), 0, options)
            expected = Indexes(recovered.offset_index, recovered.time_index)
            figure: dict[str, Any] = {
                "interval_bytes": interval,
                "index_bytes": expected.size,
                "entries": recovered.facts.offset_entries,
                "scanned": asdict(scan_cost(expected.offset_index, recovered.facts.valid_bytes)),
                "lookup_seconds": _lookups(map_log(descriptor, version.size), expected, recovered.facts.next_offset),
            }
            ways: dict[str, Callable[[LogBytes], Indexes | None]] = {"headers": partial(_by_headers, options)}
            if denser is not None:
                ways["denser"] = partial(_through, denser, options)
            for way, make in ways.items():
                figure[way] = _timed(
                    path, descriptor, make, Access.RANDOM if way == "denser" else Access.NORMAL, expected, rounds
                )
            figures.append(figure)
            denser = expected
    return figures


def _through(denser: Indexes, options: RecoverOptions, log: LogBytes) -> Indexes | None:
    return coarsen_indexes(log, 0, options, denser)


def _by_headers(options: RecoverOptions, log: LogBytes) -> Indexes:
    recovered = indexes_from_headers(log, 0, options)
    return Indexes(recovered.offset_index, recovered.time_index)


def _timed(
    path: Path,
    descriptor: int,
    make: Callable[[LogBytes], Indexes | None],
    access: Access,
    expected: Indexes,
    rounds: int,
) -> dict[str, Any]:
    """Seconds of each pass from the disk and from memory, and what the first reads.

    Raises:
        KidxError: other bytes come out than recovery writes.
    """
    figures: dict[str, Any] = {"disk": [], "memory": [], "pages_read": None}
    size = path.stat().st_size
    for _ in range(rounds):
        for place in ("disk", "memory"):
            if place == "disk":
                page_cache.drop(path)
            start = time.perf_counter()
            made = make(map_log(descriptor, size, access=access))
            figures[place].append(time.perf_counter() - start)
            if made != expected:
                raise KidxError(f"{path}: expected the bytes that recovery writes")
            if place == "disk":
                figures["pages_read"] = len(page_cache.resident(path))
                page_cache.mapped(path).max()  # all of it is in memory for the next pass
    return figures


def _lookups(log: LogBytes, indexes: Indexes, next_offset: int) -> float:
    """Seconds for one offset after the other: the search in the index, and the walk through headers in memory."""
    index = OffsetIndex.from_bytes(indexes.offset_index, 0)
    targets = np.random.default_rng(1).integers(0, next_offset, _LOOKUPS)
    seconds = []
    for _ in range(3):  # the first reads the log into memory
        start = time.perf_counter()
        walk(log, new_walks(targets, index.lookup_many(targets)["position"]), step_to_offsets)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / _LOOKUPS


def _stored(figure: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{figure['interval_bytes']:,}",
        f"{figure['index_bytes']:,}",
        f"{figure['entries']:,}",
        f"{figure['scanned']['mean']:,}",
        f"{figure['scanned']['most']:,}",
        f"{figure['lookup_seconds'] * 1e6:,.2f}",
    )


def _made(figure: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for way, how in (("denser", "through the denser index"), ("headers", "by batch headers")):
        if way in figure:
            found = figure[way]
            memory, disk = (f"{statistics.median(found[place]) * 1000:,.1f}" for place in ("memory", "disk"))
            read = f"{found['pages_read'] * mmap.PAGESIZE / _KIB / _KIB:,.1f}"
            yield f"{figure['interval_bytes']:,}", how, memory, disk, read
