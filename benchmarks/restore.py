"""A cluster's disk planned and restored, beside one read of the same files, and beside `cp` onto the same disk."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Target, record
from benchmarks.generate import SegmentContent, write_segment
from benchmarks.submit import run_kidx
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.terminal.console import note, print_line
from tests.support import page_cache
from tests.support.kafka.broker import Broker

_TOPIC: Final = "bench"
_CONTENT: Final = SegmentContent(magic=2, batch_bytes=16 * 1024)
_NEW_CLUSTER: Final = "bmV3LWNsdXN0ZXItMDAwMQ"
_OLD_PROPERTIES: Final = "version=1\nnode.id=1\ncluster.id=b2xkLWNsdXN0ZXItMDAwMQ\n"
_PARTITION_METADATA: Final = "version: 0\ntopic_id: nK9UueanTPWXzDtprD1jVw\n"
_PIECE_BYTES: Final = 1024 * 1024
#: What a plan of 20 GB may take, and how many times one read.
_PLAN_SECONDS: Final = 30.0
_PLAN_TIMES: Final = 1.2
_APPLY_RATE: Final = 0.8
_REFLINK_SECONDS: Final = 60.0


@click.command()
@click.option("--partitions", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--segments", type=click.IntRange(1), default=4, show_default=True, help="In each partition.")
@click.option("--kib", type=click.IntRange(64), default=5_120, show_default=True, help="Size of a segment.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--reflinks",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Also restore here, on a file system with reflinks.",
)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def restore(partitions: int, segments: int, kib: int, rounds: int, reflinks: Path | None, directory: Path) -> None:
    """Plan a restore of a broker's disk, and carry it out. Nothing of the disk is in memory when a run begins.

    The plan is compared with one read of all logs by a thread for each core, the restore with `cp -r` and a flush. It
    takes 42 GB below the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    segment_bytes = kib << 10
    seconds, log_bytes = _measured(directory, partitions, segments, segment_bytes, rounds)
    targets = [*_targets(seconds, log_bytes)]
    if reflinks is not None:
        by_reflink, _ = _measured(reflinks, partitions, segments, segment_bytes, rounds)
        targets += [
            Target(name="by reflink: planned", unit="s", values=by_reflink["planned"]),
            Target(name="by reflink: applied", unit="s", values=by_reflink["applied"], at_most=_REFLINK_SECONDS),
        ]
    record(directory, "restore", targets, partitions=partitions, segments=segments, log_bytes=log_bytes)


def _measured(
    directory: Path, partitions: int, segments: int, segment_bytes: int, rounds: int
) -> tuple[dict[str, list[float]], int]:
    """Seconds of each run by its name, and the bytes of all logs."""
    place = Path(tempfile.mkdtemp(prefix="restore-", dir=directory.resolve()))
    try:
        old = _old_disk(place / "old", partitions, segments, segment_bytes)
        log_bytes = sum(path.stat().st_size for path in _logs(old))
        print_line(f"{place}: {partitions:,} partitions, {partitions * segments:,} segments, {log_bytes:,} bytes")
        measured = [dict(_round(place, old)) for _ in range(rounds)]
    finally:
        shutil.rmtree(place)
    return {name: [of_round[name] for of_round in measured] for name in measured[0]}, log_bytes


def _targets(seconds: dict[str, list[float]], log_bytes: int) -> Iterator[Target]:
    for name, values in seconds.items():
        most = _PLAN_SECONDS if name == "planned" else None
        yield Target(name=name, unit="s", values=values, at_most=most)
    plan = [ours / read for ours, read in zip(seconds["planned"], seconds["read once"], strict=True)]
    yield Target(name="planned, to one read", unit="×", values=plan, at_most=_PLAN_TIMES)
    for name, peer, least in (
        ("applied, to the rate of cp", "cp, flushed", _APPLY_RATE),
        ("applied, to the rate of cp with one read of the copy", "cp, flushed, read back", None),
    ):
        rate = [copied / ours for ours, copied in zip(seconds["applied"], seconds[peer], strict=True)]
        yield Target(name=name, unit="×", values=rate, at_least=least)
    yield Target(name="applied", unit="MB/s", values=[log_bytes / each / 1e6 for each in seconds["applied"]])


def _old_disk(log_dir: Path, partitions: int, segments: int, segment_bytes: int) -> Path:
    """A log dir of a broker that was killed, and whose cluster's metadata is lost."""
    log_dir.mkdir()
    (log_dir / META_PROPERTIES).write_text(_OLD_PROPERTIES)
    first, base_offset = log_dir / f"{_TOPIC}-0", 0
    first.mkdir()
    (first / PARTITION_METADATA).write_text(_PARTITION_METADATA)
    for _ in range(segments):
        log = first / segment_file(base_offset, LOG_SUFFIX)
        base_offset = write_segment(log, _CONTENT, segment_bytes, base_offset)
    for number in range(1, partitions):
        shutil.copytree(first, log_dir / f"{_TOPIC}-{number}")
    os.sync()
    return log_dir


def _round(place: Path, old: Path) -> Iterator[tuple[str, float]]:
    """Seconds of each run. What it is compared with is done before and after it: a virtual disk's rate changes."""
    new = Broker(place / "new", {}, cluster_id=_NEW_CLUSTER)
    new_dirs = ("--broker", f"1={new.log_dir}", "--controller", new.log_dir)
    command = ("restore", old, *new_dirs, "--scan-cache", place / "scans", "--json")
    reads = [_read_all(old)]
    note("the plan …")
    _drop(old)
    planned = run_kidx(*command, only_seconds=True)
    yield "planned", planned.seconds
    reads.append(_read_all(old))
    yield "read once", statistics.mean(reads)
    again = run_kidx(*command, only_seconds=True)
    yield "planned again", again.seconds
    copies = [_cp(old, place / "copied")]
    note("--apply …")
    _drop(old)
    applied = run_kidx(*command, "--apply", planned.json["plan"], only_seconds=True)
    yield "applied", applied.seconds
    if not applied.json["applied"]:
        raise KidxError(f"{old}: not restored: {applied.json['refused']}")
    shutil.rmtree(place / "new")
    copies.append(_cp(old, place / "copied"))
    yield "cp, flushed", statistics.mean(written for written, _ in copies)
    yield "cp, flushed, read back", statistics.mean(map(sum, copies))
    (place / "scans").unlink()


def _read_all(old: Path) -> float:
    note("one read …")
    _drop(old)
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(_read, _logs(old)))
    return time.perf_counter() - start


def _cp(old: Path, copy: Path) -> tuple[float, float]:
    """Seconds of a copy, and of a read of it."""
    note("cp …")
    _drop(old)
    start = time.perf_counter()
    subprocess.run(["cp", "-r", old, copy], check=True)
    subprocess.run(["sync", "-f", copy], check=True)
    seconds = time.perf_counter() - start
    read_back = _read_all(copy)
    shutil.rmtree(copy)
    return seconds, read_back


def _logs(log_dir: Path) -> Sequence[Path]:
    return sorted(log_dir.glob(f"*/*{LOG_SUFFIX}"))


def _read(log: Path) -> None:
    content = bytearray(_PIECE_BYTES)
    with log.open("rb", buffering=0) as file:
        while file.readinto(content):
            pass


def _drop(log_dir: Path) -> None:
    """Drop logs from the page cache, once nothing waits to be written.

    Raises:
        KidxError: a page of one is still in memory.
    """
    os.sync()
    for log in _logs(log_dir):
        if not page_cache.drop(log):
            raise KidxError(f"{log}: its pages stay in memory; give --directory on a disk")
