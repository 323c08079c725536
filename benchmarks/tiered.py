"""A bucket of many remote segments audited by its listing, and the sample by all of its bytes."""

from __future__ import annotations

import base64
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.figures import Target, record
from kidxlib.errors import KidxError
from kidxlib.log.remote.layout import LOCAL, STORAGE_DIRECTORY, local_storage_directory, object_name
from kidxlib.log.remote.metadata_topic import metadata_partition
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.messages.typed_records import FramedMessage
from kidxlib.terminal.console import note
from tests.support.tiered import copied, write_metadata

_PROJECT: Final = Path(__file__).resolve().parents[1]
_KIDX: Final = Path(sys.executable).with_name("kidx")
#: Kafka's default of `remote.log.metadata.topic.num.partitions`.
_METADATA_PARTITIONS: Final = 50
_SEGMENTS_A_PARTITION: Final = 1000
_FIRST_MS: Final = 1_760_000_000_000
_LOG_BYTES: Final = 1024
_SECONDS_MAX, _SAMPLE_SECONDS_MAX = 60.0, 2.0


@click.command()
@click.option("--segments", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def tiered(segments: int, rounds: int, directory: Path) -> None:
    """Audit a bucket whose segments and metadata are made up; objects are hard links of a few small files."""
    place = directory.resolve() / "tiered"
    shutil.rmtree(place, ignore_errors=True)
    note(f"linking the objects of {segments:,} segments …")
    _write(place, segments)
    listing = [_audit(place / STORAGE_DIRECTORY, place / "log-dir", "listing", segments) for _ in range(rounds)]
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    sample = _PROJECT / "samples" / "tiered"
    full = [_audit(sample, sample / "log-dir", "full", None) for _ in range(rounds)]
    targets = [
        Target(name=f"{segments:,} segments, level listing", unit="s", values=listing, at_most=_SECONDS_MAX),
        Target(name="its largest process", unit="MB", values=[largest / 1e6]),
        Target(name="the sample, level full", unit="s", values=full, at_most=_SAMPLE_SECONDS_MAX),
    ]
    record(directory, "tiered", targets, segments=segments)
    shutil.rmtree(place)


def _write(place: Path, segments: int) -> None:
    rng = random.Random(segments)
    metadata: defaultdict[int, list[FramedMessage]] = defaultdict(list)
    for number in range(0, segments, _SEGMENTS_A_PARTITION):
        partition = TopicIdPartition(_id(rng), "bench", number // _SEGMENTS_A_PARTITION)
        directory = place / STORAGE_DIRECTORY / local_storage_directory(partition)
        count = min(_SEGMENTS_A_PARTITION, segments - number)
        messages = _write_partition(directory, partition, count, rng)
        metadata[metadata_partition(partition, _METADATA_PARTITIONS)] += messages
    for number in range(_METADATA_PARTITIONS):
        write_metadata(place / "log-dir", number, metadata[number])


def _write_partition(
    directory: Path, partition: TopicIdPartition, segments: int, rng: random.Random
) -> Iterator[FramedMessage]:
    directory.mkdir(parents=True)
    for suffix in LOCAL.required:
        (directory / f"content{suffix}").write_bytes(bytes(_LOG_BYTES if suffix == ".log" else 0))
    for number in range(segments):
        start_offset, segment_id = number * 100, _id(rng)
        for suffix in LOCAL.required:
            os.link(directory / f"content{suffix}", directory / object_name(start_offset, segment_id, suffix))
        offsets = (start_offset, start_offset + 99)
        yield from copied(partition, segment_id, offsets, at_ms=_FIRST_MS + number, log_bytes=_LOG_BYTES)
    for suffix in LOCAL.required:
        (directory / f"content{suffix}").unlink()


def _audit(bucket: Path, log_dir: Path, level: str, segments: int | None) -> float:
    """The seconds that an audit takes.

    Raises:
        KidxError: it finds something, or other segments than there are.
    """
    command: list[str | Path] = [
        _KIDX,
        "verify-tiered",
        bucket,
        "--tiered-metadata",
        log_dir,
        "--level",
        level,
        "--json",
    ]
    start = time.perf_counter()
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    found: dict[str, Any] = json.loads(ended.stdout)
    copied_segments = found["segments"]["COPY_SEGMENT_FINISHED"]["segments"]
    if found["findings"] or segments not in (None, copied_segments):
        raise KidxError(
            f"{copied_segments} segments and {len(found['findings'])} findings, expected {segments} and none"
        )
    return seconds


def _id(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:-2]
