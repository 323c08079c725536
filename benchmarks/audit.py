"""An audit beside a build of the same log dir: bytes a second of both, by turns, and of an audit that reads records."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from benchmarks import machine
from benchmarks.generate import SegmentContent, write_segment
from kidxlib.console import note, print_line, print_table
from kidxlib.names import LOG_SUFFIX, segment_file

#: Further apart than there are records in a segment.
_OFFSETS: Final = 10**9
_KIDX: Final = Path(sys.executable).with_name("kidx")


@click.command()
@click.option("--segments", type=click.IntRange(2), default=8, show_default=True)
@click.option("--segment-bytes", type=click.IntRange(1 << 20), default=256 << 20, show_default=True)
@click.option("--batch-bytes", type=click.IntRange(200), default=16 * 1024, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=3, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def audit(segments: int, segment_bytes: int, batch_bytes: int, turns: int, folder: Path) -> None:
    """Build a partition's indexes into an empty mirror and audit them, by turns, each as a command of its own.

    A command's time is all of it: starting Python and its worker processes, listing, and what it prints. What it takes
    before the first byte is measured too, on a log dir with a segment of one batch; the rate is that of the rest. Where
    other work goes on, the processors' time says more.
    """
    folder = folder.resolve() / f"audit-{segments}-{segment_bytes}-{batch_bytes}"
    log_dir, mirror = folder / "kafka-logs", folder / "index"
    shutil.rmtree(folder, ignore_errors=True)
    (log_dir / "bench-0").mkdir(parents=True)
    note(f"writing {segments} segments of {segment_bytes:,} bytes below {log_dir} …")
    for number in range(segments):
        base_offset = number * _OFFSETS
        content = SegmentContent(magic=2, batch_bytes=batch_bytes, seed=number)
        write_segment(log_dir / "bench-0" / segment_file(base_offset, LOG_SUFFIX), content, segment_bytes, base_offset)
    log_bytes = sum(log.stat().st_size for log in log_dir.rglob(f"*{LOG_SUFFIX}"))
    small = folder / "small" / "kafka-logs"
    (small / "bench-0").mkdir(parents=True)
    write_segment(
        small / "bench-0" / segment_file(0, LOG_SUFFIX),
        SegmentContent(magic=2, batch_bytes=batch_bytes, seed=0),
        batch_bytes,
        0,
    )
    ways = {
        "kidx build": ["build"],
        "kidx verify": ["verify"],
        "kidx verify --deep-iteration": ["verify", "--deep-iteration"],
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    start_seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu_seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(-1, turns):  # once without counting: compiled code and the page cache
        shutil.rmtree(mirror, ignore_errors=True)
        shutil.rmtree(small.with_name("index"), ignore_errors=True)
        for way, arguments in ways.items():
            start_up, _ = _run([*arguments, small, "--index-dir", small.with_name("index")])
            took, cpu_took = _run([*arguments, log_dir, "--index-dir", mirror])
            if turn >= 0:
                start_seconds[way].append(start_up)
                seconds[way].append(took)
                cpu_seconds[way].append(cpu_took)
    runs: dict[str, Any] = {
        way: {
            "seconds": seconds[way],
            "start_seconds": start_seconds[way],
            "cpu_seconds": cpu_seconds[way],
            "bytes_per_second": log_bytes / (statistics.median(seconds[way]) - statistics.median(start_seconds[way])),
        }
        for way in ways
    }
    build = runs["kidx build"]["bytes_per_second"]
    print_table(
        f"{segments} segments, {log_bytes:,} bytes, batches of about {batch_bytes:,}: medians of {turns}",
        ("", "seconds", "of these start-up", "MB/s without it", "to the build's", "processors' seconds"),
        [
            (
                way,
                f"{statistics.median(run['seconds']):.2f}",
                f"{statistics.median(run['start_seconds']):.2f}",
                f"{run['bytes_per_second'] / 1e6:,.0f}",
                f"{run['bytes_per_second'] / build:.2f}",
                f"{statistics.median(run['cpu_seconds']):.2f}",
            )
            for way, run in runs.items()
        ],
        text_columns=1,
    )
    load = os.getloadavg()[0]
    print_line(f"load of the machine over the last minute: {load:.1f} on {os.cpu_count()} cores")
    result = folder.parent / "audit.json"
    result.write_text(json.dumps({"machine": machine.describe(), "load": load, "runs": runs}, indent=2) + "\n")
    print_line(f"all figures: {result}")


def _run(arguments: Sequence[str | Path]) -> tuple[float, float]:
    """Seconds that a command takes, on the clock and of the processors."""
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    subprocess.run([_KIDX, *arguments, "--json"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start, _cpu_seconds() - cpu_start


def _cpu_seconds() -> float:
    """Of all commands that have ended, with their workers."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
