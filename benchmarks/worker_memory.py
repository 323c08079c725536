"""The memory of a process that builds one segment, small or large, mapped files aside."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Target, record
from benchmarks.generate import SegmentContent, write_segment
from benchmarks.library import plan_build
from benchmarks.submit import read_status, remove_results, status_bytes
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.indexing.segments import build_segments
from kidxlib.terminal.console import note
from tests.support import page_cache
from tests.support.page_cache import held_in_memory

SIZES: Final = {"100 MB": 100_000_000, "2 GB": 2_000_000_000}
MAPPED, FROM_DISK, IN_CHUNKS = "mapped", "from disk", "in chunks"
#: Small batches: then an index has an entry for nearly each interval, and more of them than at any other size.
_CONTENT: Final = SegmentContent(magic=2, batch_bytes=900)
_POLL_SECONDS: Final = 0.002


@click.command(name="worker_memory")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def worker_memory(rounds: int, directory: Path) -> None:
    """Build one segment in a process of its own, and look every 2 ms at the memory that it has.

    It is mapped, as it is in memory; or read from disk by ranges; or in chunks, as by a task that is tried again.

    That is memory of its own and shared memory (`RssAnon` and `RssShmem`), Python and all modules included, without
    pages of files, which the kernel takes back when it wants.
    """
    targets = []
    medians = {}
    for way in (MAPPED, FROM_DISK, IN_CHUNKS):
        for size, log_bytes in SIZES.items():
            place = directory.resolve() / f"memory-{log_bytes}"
            log = place / "kafka-logs" / "bench-0" / segment_file(0, LOG_SUFFIX)
            if not log.exists():
                note(f"writing {log} …")
                log.parent.mkdir(parents=True, exist_ok=True)
                write_segment(log, _CONTENT, log_bytes)
            with held_in_memory(*([] if way == FROM_DISK else [log])):
                peaks = [_peak(place, log, way) / 2**20 for _ in range(rounds)]
            target = Target(name=f"a worker's memory: {size}, {way}", unit="MiB", values=peaks, at_most=512)
            targets.append(target)
            medians[size] = target.measured
        small, large = (medians[size] for size in SIZES)
        name = f"a worker's memory: what 2 GB take more than 100 MB, {way}"
        targets.append(Target(name=name, unit="MiB", values=[large - small]))
    record(directory, "worker_memory", targets)


def _peak(place: Path, log: Path, way: str) -> int:
    """Bytes that a process had at most, among those moments at which it was looked at."""
    remove_results(place)
    if way == FROM_DISK:
        page_cache.drop(log)
    process = subprocess.Popen([sys.executable, "-m", __name__, place, way])
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        with contextlib.suppress(KeyError):  # it has ended, and has no memory
            peak = max(peak, status_bytes(read_status(status), "RssAnon", "RssShmem"))
        time.sleep(_POLL_SECONDS)
    if process.returncode != 0:
        raise KidxError(f"{place}: the build ended with exit code {process.returncode}, expected 0")
    return peak


def _build(place: Path, way: str) -> None:
    (task,) = plan_build(place).build_tasks(publish_truncated=True)
    task = replace(task, segment=replace(task.segment, active=False))  # of which nothing is ever mapped
    (built,) = build_segments([task], use_mmap=way != IN_CHUNKS)
    if built.offset_index is None:
        raise KidxError(f"{built.task.segment.path}: {built.end}, expected a valid segment; remove the file")


if __name__ == "__main__":
    _build(Path(sys.argv[1]), sys.argv[2])
