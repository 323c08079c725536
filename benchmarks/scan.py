"""One segment, one core: this project's scan beside Kafka's, and beside what the memory allows."""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

import click
import numpy as np

from benchmarks.figures import Table, Target, record
from benchmarks.generate import SegmentContent, write_segment
from kidxlib.errors import KidxError
from kidxlib.format import segment_files
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment, recover, recover_in_sections
from kidxlib.storage.log_bytes import ChunkedLog, LogBytes
from kidxlib.storage.opened_log import map_log, open_local_log
from kidxlib.terminal.console import note
from tests.support.kafka.classes import Kafka

CASES: Final = {
    "v2-16KiB": SegmentContent(magic=2, batch_bytes=16 * 1024),
    "v2-900B": SegmentContent(magic=2, batch_bytes=900),
    "v2-100B": SegmentContent(magic=2, batch_bytes=100),
    "v2-64KiB-lz4": SegmentContent(magic=2, batch_bytes=64 * 1024, codec="lz4"),
    "v1-200B": SegmentContent(magic=1, batch_bytes=200),
}
#: After these the JVM has compiled what it runs and the file lies in the page cache.
WARM_UP_PASSES: Final = 2

#: What Kafka's start script gives a broker.
BROKER_JAVA_OPTIONS: Final = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)

KAFKA: Final = "Kafka's LogSegment.recover"
SCAN: Final = "kidx, mapped"
HEADERS: Final = "kidx, headers only, mapped"
SUM: Final = "sum of the bytes, mapped"
CHUNKS: Final = "kidx, in chunks"
SUM_OF_CHUNKS: Final = "sum of the bytes, in chunks"
ON_ALL_CORES: Final = "kidx, mapped, on all cores at once"
SUM_ON_ALL_CORES: Final = "sum of the bytes, mapped, on all cores at once"
#: What is required of a case: how many times as fast as another pass ours is to be; None: it is shown.
REQUIRED: Final[Mapping[str, Mapping[tuple[str, str], float | None]]] = {
    "v2-16KiB": {
        (SCAN, SUM): 0.85,
        (HEADERS, SCAN): 6,
        (ON_ALL_CORES, SUM_ON_ALL_CORES): 0.85,
        (CHUNKS, SUM_OF_CHUNKS): 0.9,
        (SCAN, KAFKA): None,
    },
    "v2-900B": {(SCAN, SUM): 0.7, (SCAN, KAFKA): None},
    "v2-100B": {(SCAN, SUM): 0.4, (SCAN, KAFKA): 20},
    "v2-64KiB-lz4": {(SCAN, SUM): 0.9, (SCAN, KAFKA): None},
    "v1-200B": {(SCAN, SUM): 0.45, (SCAN, KAFKA): None},
}
#: Of every pass, the warm-up first, by what was measured.
_Seconds: TypeAlias = dict[str, list[float]]
_WAYS_TO_READ: Final[Mapping[str, Callable[[int, int], LogBytes]]] = {"mapped": map_log, "in chunks": ChunkedLog}


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="Repeatable. [default: all]")
@click.option("--mib", type=click.IntRange(1, 2047), default=1024, show_default=True, help="Size of the segment.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Passes of each, in turn.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("var/benchmarks"),
    show_default=True,
    help="Where the segments are kept for the next run, and scan.json goes. Holds --mib for each case.",
)
def scan(cases: Sequence[str], mib: int, rounds: int, directory: Path) -> None:
    """Rebuild the indexes of one segment again and again, with a hot page cache and on one core.

    Checks that the bytes are Kafka's, prints medians and targets, and writes all passes to scan.json.
    """
    measured, log_bytes, targets = dict[str, _Seconds](), dict[str, int](), list[Target]()
    for case in cases or CASES:
        log = segment(directory / f"{case}-{mib}MiB", CASES[case], mib * 1024**2)
        with Kafka(BROKER_JAVA_OPTIONS) as kafka:
            versions = kafka.versions
            seconds = _measure(log, kafka, rounds)
        measured[case], log_bytes[case] = seconds, log.stat().st_size
        targets += _targets(case, seconds)
    passes = {"kafka": versions, "warm_up_passes": WARM_UP_PASSES, "log_bytes": log_bytes, "seconds": measured}
    record(directory, "scan", targets, _tables(measured, log_bytes), **passes)


def _targets(case: str, seconds: Mapping[str, Sequence[float]]) -> list[Target]:
    """How many times as fast as another a pass is, round by round."""
    return [
        Target(
            name=f"{case}: {ours}, to {other}",
            unit="×",
            values=[
                theirs / own
                for own, theirs in zip(seconds[ours][WARM_UP_PASSES:], seconds[other][WARM_UP_PASSES:], strict=True)
            ],
            at_least=at_least,
        )
        for (ours, other), at_least in REQUIRED[case].items()
    ]


def segment(directory: Path, content: SegmentContent, file_bytes: int) -> Path:
    """The log of this content and size: that of an earlier run, or a new one."""
    log = directory / "bench-0" / segment_files.segment_file(0, segment_files.LOG_SUFFIX)
    if not log.exists():
        note(f"writing {log} …")
        log.parent.mkdir(parents=True, exist_ok=True)
        write_segment(log, content, file_bytes)
    return log


def _measure(log: Path, kafka: Kafka, rounds: int) -> _Seconds:
    """Seconds of every pass, the warm-up first, by what was measured.

    All are run in turn in every round, so that whatever else the machine does then hits them alike.

    Raises:
        KidxError: Kafka's indexes are not the same bytes as ours.
    """
    runs: dict[str, Callable[[], float]] = {}
    for what, work in (("kidx", _recover), ("kidx, headers only", _recover_headers), ("sum of the bytes", _sum)):
        for way, read in _WAYS_TO_READ.items():
            runs[f"{what}, {way}"] = functools.partial(_timed, str(log), read, work)
    cores = len(os.sched_getaffinity(0))
    runs[f"{SCAN}, {cores} threads"] = functools.partial(
        _timed, str(log), map_log, functools.partial(_recover_in_sections, threads=cores)
    )
    for what, work in ((ON_ALL_CORES, _recover), (SUM_ON_ALL_CORES, _sum)):
        runs[what] = functools.partial(_timed_on_all_cores, functools.partial(_timed, str(log), map_log, work), cores)
    runs[KAFKA] = lambda: kafka.recover(log.parent).segments[0].seconds

    _leave_page_cache(log)
    expected = _expected_indexes(log)
    seconds: _Seconds = {what: [] for what in runs}
    for _ in range(WARM_UP_PASSES + rounds):
        for what, run in runs.items():
            seconds[what].append(run())
    for index, data in expected.items():
        if index.read_bytes() != data:
            raise KidxError(f"{index}: Kafka wrote {index.stat().st_size} bytes, expected our {len(data)}")
    return seconds


def _leave_page_cache(log: Path) -> None:
    """Let the first pass read the file from disk. What the kernel kept of it from an earlier run may lie in small
    pieces, which can double the cost of every pass over it.
    """
    with open_local_log(str(log)) as (descriptor, _):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _timed(path: str, read: Callable[[int, int], LogBytes], work: Callable[[LogBytes], object]) -> float:
    """Seconds to open a log, do the work and close it again; a map is made and taken down in each pass."""
    start = time.perf_counter()
    with open_local_log(path) as (descriptor, version):
        work(read(descriptor, version.size))
    return time.perf_counter() - start


def _timed_on_all_cores(work: Callable[[], float], cores: int) -> float:
    """Seconds in which each core does the work once, divided by their number. Little of it holds Python's lock."""
    with ThreadPoolExecutor(cores) as threads:
        start = time.perf_counter()
        for done in [threads.submit(work) for _ in range(cores)]:
            done.result()
        return (time.perf_counter() - start) / cores


def _recover(log: LogBytes) -> RecoveredSegment:
    return recover(log, 0, RecoverOptions())


def _recover_headers(log: LogBytes) -> RecoveredSegment:
    return recover(log, 0, RecoverOptions(verify_crc=False))


def _recover_in_sections(log: LogBytes, threads: int) -> RecoveredSegment:
    return recover_in_sections(log, 0, RecoverOptions(), threads)


def _sum(log: LogBytes) -> int:
    """Read every byte and do next to nothing with it: no scan that reads them all can be much faster."""
    total = position = 0
    while position < log.size:
        start, window = log.window(position)
        total += int(window[: len(window) // 8 * 8].view(np.int64).sum())
        position = start + len(window)
    return total


def _expected_indexes(log: Path) -> dict[Path, bytes]:
    """What Kafka is to write; taken before Kafka runs, because it truncates a log that it finds corrupt."""
    with open_local_log(str(log)) as (descriptor, version):
        ours = _recover(map_log(descriptor, version.size))
    if ours.end.status is not Status.OK:
        raise KidxError(f"{log}: expected a valid segment, the scan ended with {ours.end}; remove the file")
    return {
        log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX): ours.offset_index,
        log.with_suffix(segment_files.TIME_INDEX_SUFFIX): ours.time_index,
    }


def _tables(measured: Mapping[str, _Seconds], log_bytes: Mapping[str, int]) -> list[Table]:
    """The passes as rates and as times, a column for each case; and what several threads gain on one segment."""
    passes = {
        case: {what: each[WARM_UP_PASSES:] for what, each in seconds.items()} for case, seconds in measured.items()
    }
    medians = {case: {what: statistics.median(each) for what, each in of.items()} for case, of in passes.items()}
    whats = list(next(iter(passes.values())))
    in_threads = [what for what in whats if what.startswith(SCAN) and what.endswith("threads")]
    rates = [
        (what, *(f"{log_bytes[case] / of[what] / 1e9:.3g}" for case, of in medians.items()))
        for what in whats
        if what not in in_threads
    ]
    rates.append((f"{SCAN}, to Kafka", *(f"{of[KAFKA] / of[SCAN]:.2g} ×" for of in medians.values())))
    times = [
        (what, *(f"{medians[case][what] * 1e3:,.0f} ({_range_ms(of[what])})" for case, of in passes.items()))
        for what in whats
        if what not in in_threads
    ]
    threads = [
        (what, *(f"{of[what] * 1e3:,.0f}" for of in medians.values())) for what in whats if what in (SCAN, *in_threads)
    ]
    return [
        Table(name=name, columns=(unit, *measured), rows=rows)
        for name, unit, rows in (("rates", "GB/s", rates), ("passes", "ms", times), ("threads", "ms", threads))
    ]


def _range_ms(seconds: Sequence[float]) -> str:
    return f"{min(seconds) * 1e3:,.0f}–{max(seconds) * 1e3:,.0f}"
