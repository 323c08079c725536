"""An audit beside a build of the same log dir: bytes a second of both, by turns, and of an audit that reads records."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from benchmarks.figures import Table, Target, record
from benchmarks.generate import SegmentContent, write_segment
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.terminal.console import note, print_line

_KIDX: Final = Path(sys.executable).with_name("kidx")
_BUILD: Final = "kidx build"
_DEEP: Final = "kidx verify --deep-iteration"
#: Four times what it was while Python took each batch: 0.17 of a build's rate.
_DEEP_TO_BUILD: Final = 0.68
_WAYS: Final = {
    _BUILD: ["build"],
    "kidx verify": ["verify"],
    _DEEP: ["verify", "--deep-iteration"],
}

#: By way, what was measured, by name.
_Runs: TypeAlias = dict[str, dict[str, Any]]


@click.command()
@click.option("--segments", type=click.IntRange(2), default=8, show_default=True)
@click.option("--segment-bytes", type=click.IntRange(1 << 20), default=256 << 20, show_default=True)
@click.option("--batch-bytes", type=click.IntRange(200), default=16 * 1024, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def audit(segments: int, segment_bytes: int, batch_bytes: int, turns: int, directory: Path) -> None:
    """Build a partition's indexes into an empty index directory and audit them, by turns, each as a command of its own.

    A command's time is all of it: starting Python and its worker processes, listing, and what it prints. What it takes
    before the first byte is measured too, on a log dir with a segment of one batch; the rate is that of the rest. Where
    other work goes on, the processors' time says more.
    """
    directory = directory.resolve() / f"audit-{segments}-{segment_bytes}-{batch_bytes}"
    shutil.rmtree(directory, ignore_errors=True)
    log_dir, small = directory / "kafka-logs", directory / "small" / "kafka-logs"
    note(f"writing {segments} segments of {segment_bytes:,} bytes below {log_dir} …")
    log_bytes = _write_logs(log_dir, segments, segment_bytes, batch_bytes)
    _write_logs(small, 1, batch_bytes, batch_bytes)
    runs = _measure(log_dir, small, turns, log_bytes)
    load = os.getloadavg()[0]
    print_line(f"load of the machine over the last minute: {load:.1f} on {os.cpu_count()} cores")
    record(directory.parent, "audit", [_target(runs)], [_table(runs)], log_bytes=log_bytes, load=load, runs=runs)


def _target(runs: _Runs) -> Target:
    """How fast an audit that reads records is beside a build, turn by turn."""
    seconds = {
        way: [took - start_up for took, start_up in zip(run["seconds"], run["start_seconds"], strict=True)]
        for way, run in runs.items()
    }
    return Target(
        name=f"{_DEEP}, to {_BUILD}",
        unit="×",
        values=[build / deep for build, deep in zip(seconds[_BUILD], seconds[_DEEP], strict=True)],
        at_least=_DEEP_TO_BUILD,
    )


def _write_logs(log_dir: Path, segments: int, segment_bytes: int, batch_bytes: int) -> int:
    """Write a partition's logs, and return how many bytes they have."""
    partition = log_dir / "bench-0"
    partition.mkdir(parents=True)
    base_offset = 0
    for number in range(segments):
        content = SegmentContent(magic=2, batch_bytes=batch_bytes, seed=number)
        log = partition / segment_file(base_offset, LOG_SUFFIX)
        base_offset = write_segment(log, content, segment_bytes, base_offset)
    return sum(log.stat().st_size for log in partition.iterdir())


def _measure(log_dir: Path, small: Path, turns: int, log_bytes: int) -> _Runs:
    """Time each way by turns, on both log dirs. On the small one it takes what a start takes."""
    index_dirs = {each: each.with_name("index") for each in (log_dir, small)}
    runs: _Runs = {way: {"seconds": [], "start_seconds": [], "cpu_seconds": []} for way in _WAYS}
    for turn in range(-1, turns):  # once without counting: compiled code and the page cache
        for index_dir in index_dirs.values():
            shutil.rmtree(index_dir, ignore_errors=True)
        for way, arguments in _WAYS.items():
            start_up, _ = _run([*arguments, small, "--index-dir", index_dirs[small]])
            took, cpu_took = _run([*arguments, log_dir, "--index-dir", index_dirs[log_dir]])
            if turn >= 0:
                runs[way]["start_seconds"].append(start_up)
                runs[way]["seconds"].append(took)
                runs[way]["cpu_seconds"].append(cpu_took)
    for run in runs.values():
        scan_seconds = statistics.median(run["seconds"]) - statistics.median(run["start_seconds"])
        run["bytes_per_second"] = log_bytes / scan_seconds
    return runs


def _table(runs: _Runs) -> Table:
    build = runs[_BUILD]["bytes_per_second"]
    rows = [
        (
            way,
            f"{statistics.median(run['seconds']):.2f}",
            f"{statistics.median(run['start_seconds']):.2f}",
            f"{run['bytes_per_second'] / 1e6:,.0f}",
            f"{run['bytes_per_second'] / build:.2f}",
            f"{statistics.median(run['cpu_seconds']):.2f}",
        )
        for way, run in runs.items()
    ]
    columns = ("", "seconds", "of these start-up", "MB/s without it", "to the build's", "processors' seconds")
    return Table(name="beside a build", columns=columns, rows=rows)


def _run(arguments: Sequence[str | Path]) -> tuple[float, float]:
    """Seconds that a command takes, on the clock and of the processors."""
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    subprocess.run([_KIDX, *arguments, "--json"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start, _cpu_seconds() - cpu_start


def _cpu_seconds() -> float:
    """Seconds of processor that all commands took which have ended, with their workers."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
