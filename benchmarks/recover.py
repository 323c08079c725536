"""From an unclean stop to a broker that has started: by itself, and after `kidx recover`, at each level."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.figures import Target, beside, record
from benchmarks.generate import SegmentContent, write_segment
from benchmarks.submit import run_kidx
from kidxlib.errors import KidxError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from kidxlib.operations.recover.page_cache import note_down
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.producers import Producers
from kidxlib.recovery.segment import recover as recover_segment
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.storage.opened_log import LogFile
from kidxlib.terminal.console import note, print_line
from tests.support.kafka.broker import Broker

_TOPIC: Final = "bench"
_CONTENT: Final = SegmentContent(magic=2, batch_bytes=16 * 1024)
_JVM: Final = ("-Xms1g", "-Xmx4g")
_DEADLINE_SECONDS: Final = 1_800.0
_SECONDS: Final = 300.0
_MOMENT_SECONDS: Final = 0.1
_TIMES: Final = 5.0
_TRUSTED_SECONDS: Final = 10.0
_TRUSTED_PERCENT: Final = 1.0
#: What precedes the broker's start, by the name that is shown.
_WAYS: Final[dict[str, tuple[str, ...] | None]] = {
    "the broker alone": None,
    "checkpoint": ("--level", "checkpoint"),
    "marker": ("--level", "marker"),
    "marker, the page cache trusted": ("--level", "marker", "--trust-page-cache"),
}


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment that many partitions have: its log, which they link to, and the files beside it."""

    base_offset: int
    log: Path
    side_files: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class _Run:
    """Seconds of a start.

    Attributes:
        loading_seconds: in which the broker loaded its logs, as it says itself; of the whole of its start.
        read_bytes: of logs, by kidx; 0 where it was not asked.
    """

    kidx_seconds: float
    broker_seconds: float
    loading_seconds: float
    read_bytes: int

    @property
    def seconds(self) -> float:
        return self.kidx_seconds + self.broker_seconds


@click.command()
@click.option("--partitions", type=click.IntRange(1), default=2_000, show_default=True)
@click.option("--segments", type=click.IntRange(1), default=4, show_default=True, help="In each partition.")
@click.option("--mib", type=click.IntRange(1), default=12, show_default=True, help="Size of each segment.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def recover(partitions: int, segments: int, mib: int, directory: Path) -> None:
    """Start a broker on the log dir of one that was killed: alone, and after `kidx recover`.

    Each segment's log is one file, to which all partitions link; so all of it is in memory. To the broker nothing of it
    is flushed. It recovers with a thread for each core. Every start waits until its controller forgets the broker that
    was killed, for broker.session.timeout.ms (9 s): logs are loaded meanwhile, so that time is shown apart.
    """
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="recover-", dir=directory.resolve()))
    try:
        made = _segments(place, segments, mib << 20)
        log_bytes = partitions * sum(segment.log.stat().st_size for segment in made)
        print_line(f"{partitions:,} partitions, {partitions * segments:,} segments, {log_bytes:,} bytes")
        killed = _killed_broker(place / "killed", partitions)
        runs: dict[str, _Run] = {}
        for way, arguments in _WAYS.items():
            note(f"{way} …")
            runs[way] = _run(killed, place / "started", made, partitions, arguments)
            print_line(f"{way}: {runs[way]}")
        of = {"partitions": partitions, "segments": segments, "bytes": log_bytes}
        targets = list(_targets(runs, log_bytes))
        record(directory, "recover", targets, [beside("starts", targets)], **of)
    finally:
        shutil.rmtree(place)


def _targets(runs: dict[str, _Run], log_bytes: int) -> Iterator[Target]:
    alone, trusted = runs["the broker alone"], runs["marker, the page cache trusted"]
    for way, run in runs.items():
        yield Target(name=f"{way}: to started", unit="s", values=[run.seconds])
        most = _TRUSTED_SECONDS if run is trusted else None
        yield Target(name=f"{way}: of that kidx", unit="s", values=[run.kidx_seconds], at_most=most)
        yield Target(name=f"{way}: of that the broker", unit="s", values=[run.broker_seconds])
        yield Target(name=f"{way}: as it loads logs", unit="s", values=[run.loading_seconds])
    for way in ("checkpoint", "marker"):
        times = alone.seconds / runs[way].seconds
        yield Target(name=f"{way}: as fast as alone", unit="×", values=[times], at_least=_TIMES)
    for way, run in runs.items():
        most = _TRUSTED_PERCENT if run is trusted else None
        percent = run.read_bytes / log_bytes * 100
        yield Target(name=f"{way}: of the bytes read by kidx", unit="%", values=[percent], at_most=most)


def _segments(place: Path, count: int, log_bytes: int) -> list[_Segment]:
    """Segments that follow each other, with the files that a broker leaves beside finished ones."""
    made: list[_Segment] = []
    base_offset = 0
    for _ in range(count):
        log = place / segment_file(base_offset, LOG_SUFFIX)
        write_segment(log, _CONTENT, log_bytes, base_offset)
        opened = LogFile(str(log))
        recovered = recover_segment(opened, base_offset, RecoverOptions())
        opened.close()
        side_files = {OFFSET_INDEX_SUFFIX: recovered.offset_index, TIME_INDEX_SUFFIX: recovered.time_index}
        if base_offset > 0:
            side_files[SNAPSHOT_SUFFIX] = Producers().snapshot()
        made.append(_Segment(base_offset, log, side_files))
        base_offset = recovered.facts.next_offset
    return made


def _killed_broker(directory: Path, partitions: int) -> Broker:
    """A broker that was killed with one topic, of whose partitions no segment is left."""
    settings = {"num.recovery.threads.per.data.dir": os.cpu_count() or 1}
    broker = Broker(directory, settings, java_options=_JVM)
    with broker.running_until_killed():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(_TOPIC, partitions, 1)
        admin.create_topics([topic], operation_timeout=_SECONDS, request_timeout=_SECONDS)[_TOPIC].result(_SECONDS)
        directories = [broker.log_dir / f"{_TOPIC}-{number}" for number in range(partitions)]
        files = [
            directory / name for directory in directories for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
        ]
        while not all(path.exists() for path in files):
            admin.poll(_MOMENT_SECONDS)  # the broker makes them after it has answered
    for partition in directories:
        for path in partition.glob(f"{0:020}.*"):
            path.unlink()
    return broker


def _run(
    killed: Broker, place: Path, segments: Sequence[_Segment], partitions: int, arguments: tuple[str, ...] | None
) -> _Run:
    """Start a copy of a killed broker, which gets its segments first."""
    broker = killed.copy(place)
    try:
        for number in range(partitions):
            partition = broker.log_dir / f"{_TOPIC}-{number}"
            for segment in segments:
                os.link(segment.log, partition / segment.log.name)
                for suffix, content in segment.side_files.items():
                    (partition / segment_file(segment.base_offset, suffix)).write_bytes(content)
        os.sync()
        kidx_seconds, read_bytes = 0.0, 0
        if arguments is not None:
            if "--trust-page-cache" in arguments:
                note_down([broker.log_dir])
            done = run_kidx("recover", broker.log_dir, "--apply", "--json", *arguments)
            kidx_seconds, read_bytes = done.seconds, _applied(done.json)
        start = time.perf_counter()
        run = broker.start(_DEADLINE_SECONDS)
        broker_seconds = time.perf_counter() - start
        run.kill()
        return _Run(kidx_seconds, broker_seconds, _loading_seconds(run.log), read_bytes)
    finally:
        shutil.rmtree(place)


def _loading_seconds(broker_log: Path) -> float:
    """How long loading logs took, by what LogManager says.

    Raises:
        KidxError: it says nothing of it.
    """
    said = re.search(r"Loaded \d+ logs in (?P<ms>\d+)ms", broker_log.read_text())
    if said is None:
        raise KidxError(f"{broker_log}: no line 'Loaded N logs in Nms'")
    return int(said["ms"]) / 1000


def _applied(said: dict[str, Any]) -> int:
    """Bytes that kidx read.

    Raises:
        KidxError: it did nothing, or did not trust what it was told to trust.
    """
    if not said["applied"] or said["untrusted"]:
        raise KidxError(f"not recovered: {said['refused'][:3]}, {said['untrusted']}")
    read: int = said["kidx_bytes"]
    return read
