"""A build of large segments by the job, beside what the library scans on the same cores."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.event_log import EventLog, seconds_of_build
from benchmarks.figures import Target, record
from benchmarks.library import at_once, plan_build, recover_rate, timed_build
from benchmarks.links import content_file, write_partition
from benchmarks.submit import places, remove_results, run_job
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.terminal.console import note
from tests.support.page_cache import held_in_memory

_MIB = 1024 * 1024


@click.command()
@click.option("--segments", type=click.IntRange(2, 60_000), default=64, show_default=True)
@click.option("--mib", type=click.IntRange(1, 2047), default=1024, show_default=True, help="Size of a segment.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def job(segments: int, mib: int, rounds: int, directory: Path) -> None:
    """Build segments in batches of 16 KiB, hard links to one file in memory, and compare with the library alone.

    The library's rate is that of `recover` in one process for each core at once, on the same file; beside it that of
    its `build`, which publishes too. Each round measures all three. Of the job, Spark's event log has the times.
    """
    place = directory.resolve() / f"job-{segments}x{mib}MiB"
    partition = place / "kafka-logs" / "bench-0"
    if not partition.exists():
        shutil.rmtree(place, ignore_errors=True)
        note(f"writing {mib} MiB and linking {segments} segments below {place} …")
        write_partition(partition, mib * _MIB, segments)
    measured = []
    for number in range(rounds):
        note(f"round {number + 1} of {rounds} …")
        with held_in_memory(content_file(partition)):
            measured.append(_round(place, partition, segments))
    record(directory, "job", _targets(measured), rounds=measured)


def _round(place: Path, partition: Path, segments: int) -> dict[str, Any]:
    """Seconds of each part, and bytes a second of the library."""
    cores = len(os.sched_getaffinity(0))
    log = partition / segment_file(0, LOG_SUFFIX)
    rates = at_once(recover_rate, [(log, 0, max(1, segments // cores))] * cores)

    remove_results(place)
    start = time.perf_counter()
    plan = plan_build(place)
    listing = time.perf_counter() - start
    warm_up, *tasks = plan.build_tasks(publish_truncated=True)
    shares = [tasks[core::cores] for core in range(cores)]
    builds = at_once(timed_build, [(warm_up, share) for share in shares])

    remove_results(place)
    run = run_job("build_index", *places(place), events=place / "events")
    return {
        "log_bytes": plan.log_bytes,
        "recover_bytes_per_second": sum(rates),
        "builds": [asdict(build) for build in builds],
        "built_bytes": sum(task.log_bytes for share in shares for task in share),
        "listing": listing,
        **seconds_of_build(run, EventLog.read(place / "events")),
        "worker_bytes": run.worker_bytes,
    }


def _targets(rounds: Sequence[Mapping[str, Any]]) -> list[Target]:
    def each(of_round: Callable[[Mapping[str, Any]], float]) -> tuple[float, ...]:
        return tuple(of_round(one) for one in rounds)

    def seconds(name: str, part: str) -> Target:
        return Target(name=name, unit="s", values=each(lambda one: one[part]))

    def gigabytes(name: str, bytes_per_second: Callable[[Mapping[str, Any]], float]) -> Target:
        return Target(name=name, unit="GB/s", values=each(lambda one: bytes_per_second(one) / 1e9))

    def slowest(one: Mapping[str, Any]) -> Mapping[str, float]:
        found: Mapping[str, float] = max(one["builds"], key=lambda build: build["seconds"])
        return found

    return [
        Target(
            name="job: scan stage, to the library on all cores",
            unit="×",
            values=each(lambda one: one["log_bytes"] / one["recover_bytes_per_second"] / one["scan_stage"]),
            at_least=0.8,
        ),
        gigabytes("library: recover on all cores", lambda one: one["recover_bytes_per_second"]),
        gigabytes("library: build on all cores", lambda one: one["built_bytes"] / slowest(one)["seconds"]),
        Target(
            name="library: publishing, of a build on all cores",
            unit="s",
            values=each(lambda one: slowest(one)["staging_seconds"] + slowest(one)["commit_seconds"]),
        ),
        gigabytes("job: scan stage", lambda one: one["log_bytes"] / one["scan_stage"]),
        seconds("job: scan stage", "scan_stage"),
        seconds("job: that with its driver's part", "scan"),
        seconds("job: before the first query", "start_up"),
        seconds("job: of this listing, by the library", "listing"),
        seconds("job: fold", "fold"),
        seconds("job: commits and other queries", "commits"),
        seconds("job: driver between queries, and the end", "driver"),
        seconds("job: all", "all"),
        Target(
            name="job: a Python worker's memory, mapped files aside",
            unit="MiB",
            values=each(lambda one: one["worker_bytes"] / 2**20),
        ),
    ]
