"""One segment that is not in memory: what the disk gives, and what of it a scan gets."""

from __future__ import annotations

import functools
import mmap
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Table, Target, record
from benchmarks.scan import CASES, segment
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.log_bytes import RANGES_AHEAD, Access
from kidxlib.storage.opened_log import opened_log
from tests.support import page_cache

#: What the disk gives at most is asked for in pieces of this size, by so many threads as a scan has.
_DIRECT_BYTES: Final = 4 * 1024 * 1024

DISK: Final = "the disk, around the page cache"
SCAN: Final = "kidx"
HEADERS: Final = "kidx, headers only"
MAPPED: Final = "kidx, as of a file in memory"


@dataclass(frozen=True, slots=True)
class _Pass:
    """Seconds, seconds of the processor, MiB that came from the disk, and the share of pages in memory afterwards."""

    seconds: float
    cpu_seconds: float
    disk_mib: float
    cached: float


@click.command()
@click.option("--case", type=click.Choice(list(CASES)), default="v2-16KiB", show_default=True)
@click.option("--mib", type=click.IntRange(1, 2047), default=1024, show_default=True, help="Size of the segment.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Passes of each, in turn.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def cold(case: str, mib: int, rounds: int, directory: Path) -> None:
    """Rebuild the indexes of one segment that is read from disk each time, and see what is left in memory."""
    log = segment(directory / f"{case}-{mib}MiB", CASES[case], mib * 1024**2)
    runs: dict[str, Callable[[], object]] = {
        DISK: functools.partial(_read_directly, log),
        SCAN: functools.partial(_scan, log, RecoverOptions(), access=Access.SEQUENTIAL),
        HEADERS: functools.partial(_scan, log, RecoverOptions(verify_crc=False), access=Access.SEQUENTIAL),
        MAPPED: functools.partial(_scan, log, RecoverOptions(), access=Access.NORMAL),
    }
    passes: dict[str, list[_Pass]] = {what: [] for what in runs}
    for _ in range(rounds):
        for what, run in runs.items():
            passes[what].append(_timed(log, run))
    targets = [
        Target(
            name=f"{case} from disk: {what}, to the disk's own rate",
            unit="×",
            values=[disk.seconds / ours.seconds for disk, ours in zip(passes[DISK], passes[what], strict=True)],
        )
        for what in (SCAN, HEADERS, MAPPED)
    ]
    of_headers = [each.disk_mib for each in passes[HEADERS]]
    targets.append(Target(name=f"{case} from disk: headers only, read of {mib:,} MiB", unit="MiB", values=of_headers))
    tables = [_table(log.stat().st_size, passes)]
    record(
        directory,
        "cold",
        targets,
        tables,
        passes={what: [asdict(each) for each in made] for what, made in passes.items()},
    )


def _timed(log: Path, run: Callable[[], object]) -> _Pass:
    page_cache.drop(log)
    before = _disk_bytes()
    start, cpu = time.perf_counter(), time.process_time()
    run()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    cached = len(page_cache.resident(log)) * mmap.PAGESIZE / log.stat().st_size
    return _Pass(seconds, cpu_seconds, (_disk_bytes() - before) / 1024**2, cached)


def _disk_bytes() -> int:
    """What this process has made the kernel read from disks so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def _scan(log: Path, options: RecoverOptions, *, access: Access) -> None:
    with opened_log(str(log)) as opened:
        recover(opened.log(use_mmap=True, access=access), 0, options)


def _read_directly(log: Path) -> None:
    descriptor = os.open(log, os.O_RDONLY | os.O_DIRECT)
    try:
        positions = range(0, os.fstat(descriptor).st_size, _DIRECT_BYTES)
        with ThreadPoolExecutor(RANGES_AHEAD) as threads:
            rooms = [mmap.mmap(-1, _DIRECT_BYTES) for _ in range(RANGES_AHEAD)]  # aligned, as the kernel wants it

            def read(number: int) -> None:
                for position in positions[number::RANGES_AHEAD]:
                    os.preadv(descriptor, [rooms[number]], position)

            list(threads.map(read, range(RANGES_AHEAD)))
    finally:
        os.close(descriptor)


def _table(log_bytes: int, passes: dict[str, list[_Pass]]) -> Table:
    def median(what: str, field: str) -> float:
        return float(statistics.median(getattr(each, field) for each in passes[what]))

    rows = [
        (
            what,
            f"{median(what, 'seconds') * 1000:,.0f}",
            f"{min(each.seconds for each in made) * 1000:,.0f}–{max(each.seconds for each in made) * 1000:,.0f}",
            f"{log_bytes / median(what, 'seconds') / 1e9:.2f}",
            f"{median(what, 'cpu_seconds') * 1000:,.0f}",
            f"{median(what, 'disk_mib'):,.0f}",
            f"{median(what, 'cached'):.0%}",
        )
        for what, made in passes.items()
    ]
    columns = ("", "ms, median", "fastest–slowest", "GB/s", "processor, ms", "MiB from disk", "in memory afterwards")
    return Table(name="passes", columns=columns, rows=rows)
