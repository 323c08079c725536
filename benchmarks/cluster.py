"""Logs in a store that is slow to answer, read by one worker of a standalone cluster and by two."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from benchmarks.figures import Target, record
from benchmarks.generate import SegmentContent, write_segment
from benchmarks.links import FIRST_OFFSET
from benchmarks.submit import JobRun, run_job
from kidxlib.errors import KidxError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.terminal.console import note
from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore, object_store
from tests.support.spark.cluster import HOSTS, cluster

_MIB: Final = 2**20
_SEGMENT_BYTES: Final = 64 * _MIB
_CONTENT: Final = SegmentContent(magic=2, batch_bytes=16 * 1024)


@click.command(name="cluster")
@click.option("--segments", type=click.IntRange(8), default=96, show_default=True, help="Of 64 MiB.")
@click.option("--answer-ms", type=click.IntRange(1), default=400, show_default=True, help="How long a GET waits.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def workers(segments: int, answer_ms: int, rounds: int, directory: Path) -> None:
    """Build segments in an S3 store on a standalone cluster of one worker, then of two, with one core each.

    Each GET waits before it is answered, so that the store is the bound and not this machine's memory or cores. The
    master, the workers and the store are processes of this machine.
    """
    directory.mkdir(parents=True, exist_ok=True)
    os.environ.update(CREDENTIALS)
    with tempfile.TemporaryDirectory(dir=directory.resolve()) as place, object_store(Path(place)) as store:
        _upload(Path(place) / "segment", store, segments)
        store.before = lambda method, key: time.sleep(answer_ms / 1000 if method == "GET" else 0)
        os.environ["AWS_ENDPOINT_URL"] = store.endpoint
        runs: dict[int, list[JobRun]] = {1: [], 2: []}
        for number in range(rounds):
            for count, of_count in runs.items():
                note(f"round {number + 1}: workers: {count} …")
                of_count.append(_build(Path(place) / f"{number}-{count}", count, segments))
    scans = {count: [run.json["scan_seconds"] for run in of_count] for count, of_count in runs.items()}
    gained = [one / two for one, two in zip(scans[1], scans[2], strict=True)]
    targets = [Target(name=f"scan stage, {count} of 2 workers", unit="s", values=scans[count]) for count in (1, 2)]
    targets.append(Target(name="scan stage, two workers to one", unit="×", values=gained, at_least=1.8))
    record(directory, "cluster", targets, segments=segments, answer_ms=answer_ms)


def _upload(segment: Path, store: ObjectStore, segments: int) -> None:
    """Segments of one content; their offsets are above every base offset."""
    write_segment(segment, _CONTENT, _SEGMENT_BYTES, FIRST_OFFSET)
    keys = [f"kafka-logs/bench-0/{segment_file(base_offset, LOG_SUFFIX)}" for base_offset in range(segments)]
    store.put(keys[0], segment.read_bytes())
    for key in keys[1:]:
        store.files.copy_file(f"{BUCKET}/{keys[0]}", f"{BUCKET}/{key}")


def _build(place: Path, workers: int, segments: int) -> JobRun:
    place.mkdir()
    with contextlib.ExitStack() as stack:
        started = stack.enter_context(cluster(place, HOSTS[:workers]))
        executors = [
            word for name, value in CREDENTIALS.items() for word in ("--conf", f"spark.executorEnv.{name}={value}")
        ]
        run = run_job(
            "build_index",
            *("--source", f"bench=s3://{BUCKET}/kafka-logs", "--index-dir", place / "index"),
            *("--catalog", place / "catalog", "--json"),
            of_spark=(*started.options, *executors),
        )
    if run.json["segments"] != segments:
        raise KidxError(f"{run.json['segments']} segments read, expected {segments}")
    shutil.rmtree(place)
    return run
