"""From an unclean stop to a broker that has started: by itself, and after `kidx recover`, at each level."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.figures import Table, Target, beside, record
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
from kidxlib.operations.recover.page_cache import note_page_cache
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.partition_fold import Producers
from kidxlib.recovery.recover import recover as recover_segment
from kidxlib.storage.log_dir import PARTITION_METADATA
from kidxlib.storage.opened_log import LogFile
from kidxlib.terminal.console import note, print_line
from tests.support import page_cache
from tests.support.kafka.broker import Broker

_TOPIC: Final = "bench"
_LARGE, _SMALL = (SegmentContent(magic=2, batch_bytes=size) for size in (16 * 1024, 900))
_JVM: Final = ("-Xms1g", "-Xmx4g")
_DEADLINE_SECONDS: Final = 1_800.0
_SECONDS: Final = 300.0
_MOMENT_SECONDS: Final = 0.1
_PIECE_BYTES: Final = 1024 * 1024
_TIMES: Final = 5.0
#: What kidx may take alone, of 16 KiB batches in memory.
_KIDX_SECONDS: Final = {"marker": 7.0, "marker, the page cache trusted": 2.5}
_TRUSTED_PERCENT: Final = 1.0
#: Of the broker's loading alone, with batches of 900 B.
_SHARE: Final = 0.35
_OF_DISK: Final = 0.9
#: Milliseconds since the JVM began stand before what a broker says. It asks its controller again until that has
#: forgotten it (`BrokerLifecycleManager`).
_REFUSED: Final = re.compile(r"^(\d+) .*Unable to register broker", re.MULTILINE)
_REGISTERED: Final = re.compile(r"^(\d+) .*Successfully registered broker", re.MULTILINE)
_LOADED: Final = re.compile(r"^(?P<at>\d+) .*Loaded \d+ logs in (?P<ms>\d+)ms", re.MULTILINE)
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
class _Load:
    """What the partitions have.

    Attributes:
        settings: of the broker.
        from_disk: each segment is a file of its own, and none of it is in memory when a run begins.
    """

    content: SegmentContent
    segment_bytes: int
    settings: Mapping[str, object]
    from_disk: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """Seconds of a start.

    Attributes:
        waiting_seconds: in which the broker had loaded its logs, and its controller had not yet forgotten the one that
            was killed. They count for nobody.
        loading_seconds: in which the broker loaded its logs, as it says itself; of the whole of its start.
        read_bytes: of logs, by kidx; 0 where it was not asked.
    """

    kidx_seconds: float
    broker_seconds: float
    waiting_seconds: float
    loading_seconds: float
    read_bytes: int

    @property
    def seconds(self) -> float:
        return self.kidx_seconds + self.broker_seconds

    @property
    def logs_seconds(self) -> float:
        """For logs alone, by both."""
        return self.kidx_seconds + self.loading_seconds


@click.command()
@click.option("--partitions", type=click.IntRange(1), default=2_000, show_default=True)
@click.option("--segments", type=click.IntRange(1), default=4, show_default=True, help="In each partition.")
@click.option("--mib", type=click.IntRange(1), default=12, show_default=True, help="Size of a segment in memory.")
@click.option(
    "--small-kib", type=click.IntRange(1), default=2_560, show_default=True, help="The same, of 900 B batches."
)
@click.option("--disk-kib", type=click.IntRange(1), default=2_560, show_default=True, help="The same, on the disk.")
@click.option("--load", "names", type=click.Choice(["16 KiB", "900 B", "disk"]), multiple=True, help="None: all three.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
def recover(
    partitions: int, segments: int, mib: int, small_kib: int, disk_kib: int, names: Sequence[str], directory: Path
) -> None:
    """Start a broker on the log dir of one that was killed: alone, and after `kidx recover`.

    There are three loads: batches of 16 KiB and of 900 B in memory, where all partitions have hard links to the same
    few logs, and batches of 16 KiB from the disk, where each segment is a file of its own. To the broker nothing of it
    is flushed. In memory it recovers with a thread for each core, from the disk with as many as it has by default.
    Every start waits until its controller forgets the broker that was killed, for broker.session.timeout.ms (9 s): logs
    are loaded meanwhile, and what is left of that time has a column of its own.
    """
    all_cores = {"num.recovery.threads.per.data.dir": os.cpu_count() or 1}
    loads = {
        "16 KiB": _Load(_LARGE, mib << 20, all_cores),
        "900 B": _Load(_SMALL, small_kib << 10, all_cores),
        "disk": _Load(_LARGE, disk_kib << 10, {}, from_disk=True),
    }
    directory.mkdir(parents=True, exist_ok=True)
    targets: list[Target] = []
    tables: list[Table] = []
    for name in names or loads:
        place = Path(tempfile.mkdtemp(prefix="recover-", dir=directory.resolve()))
        try:
            of_load = list(_measured(name, loads[name], place, partitions, segments))
        finally:
            shutil.rmtree(place)
        tables.append(beside(f"starts, {name}", of_load))
        targets += (replace(target, name=f"{name}, {target.name}") for target in of_load)
    record(directory, "recover", targets, tables, partitions=partitions, segments=segments)


def _measured(name: str, load: _Load, place: Path, partitions: int, segments: int) -> Iterator[Target]:
    made = _segments(place, segments, load)
    log_bytes = partitions * sum(segment.log.stat().st_size for segment in made)
    print_line(f"{name}: {partitions:,} partitions, {partitions * segments:,} segments, {log_bytes:,} bytes")
    if load.from_disk:
        _copy_for_each(place / "logs", made, partitions)
    killed = _killed_broker(place / "killed", partitions, load)
    runs: dict[str, _Run] = {}
    for way, arguments in _WAYS.items():
        note(f"{way} …")
        runs[way] = _run(killed, place, made, partitions, load, arguments)
        print_line(f"{way}: {runs[way]}")
    yield from _targets(runs, log_bytes, is_required=name == "16 KiB")
    if name == "900 B":
        share = runs["marker"].logs_seconds / runs["the broker alone"].logs_seconds
        yield Target(name="marker: kidx and loading, to the broker's loading", unit="×", values=[share], at_most=_SHARE)
    if load.from_disk:
        rate = _seconds_to_read(place / "logs") / runs["marker"].kidx_seconds
        yield Target(name="marker: kidx, to the disk's own rate", unit="×", values=[rate], at_least=_OF_DISK)


def _targets(runs: dict[str, _Run], log_bytes: int, *, is_required: bool) -> Iterator[Target]:
    alone, trusted = runs["the broker alone"], runs["marker, the page cache trusted"]
    for way, run in runs.items():
        yield Target(name=f"{way}: to started", unit="s", values=[run.seconds])
        most = _KIDX_SECONDS.get(way) if is_required else None
        yield Target(name=f"{way}: of that kidx", unit="s", values=[run.kidx_seconds], at_most=most)
        yield Target(name=f"{way}: of that the broker", unit="s", values=[run.broker_seconds])
        yield Target(name=f"{way}: as it waits for its controller", unit="s", values=[run.waiting_seconds])
        yield Target(name=f"{way}: as it loads logs", unit="s", values=[run.loading_seconds])
    for way in ("checkpoint", "marker"):
        least = _TIMES if is_required else None
        times = (alone.seconds - alone.waiting_seconds) / (runs[way].seconds - runs[way].waiting_seconds)
        yield Target(name=f"{way}: as fast as alone, without waiting", unit="×", values=[times], at_least=least)
    for way, run in runs.items():
        most = _TRUSTED_PERCENT if is_required and run is trusted else None
        percent = run.read_bytes / log_bytes * 100
        yield Target(name=f"{way}: of the bytes read by kidx", unit="%", values=[percent], at_most=most)


def _copy_for_each(place: Path, segments: Sequence[_Segment], partitions: int) -> None:
    """Give each partition logs of its own."""
    for number in range(partitions):
        directory = place / f"{_TOPIC}-{number}"
        directory.mkdir(parents=True)
        for segment in segments:
            shutil.copyfile(segment.log, directory / segment.log.name)


def _seconds_to_read(place: Path) -> float:
    """How long it takes to read logs that are not in memory, with a thread for each core."""
    logs = sorted(place.glob("*/*"))
    _drop(logs)
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in threads.map(_read, logs):
            pass
    return time.perf_counter() - start


def _read(log: Path) -> None:
    content = bytearray(_PIECE_BYTES)
    with log.open("rb", buffering=0) as file:
        while file.readinto(content):
            pass


def _drop(logs: Sequence[Path]) -> None:
    """Drop logs from the page cache.

    Raises:
        KidxError: a page of one is still in memory.
    """
    for log in logs:
        if not page_cache.drop(log):
            raise KidxError(f"{log}: its pages stay in memory; give --directory on a disk")


def _segments(place: Path, count: int, load: _Load) -> list[_Segment]:
    """Segments that follow each other, with the files that a broker leaves beside finished ones."""
    made: list[_Segment] = []
    base_offset = 0
    for _ in range(count):
        log = place / segment_file(base_offset, LOG_SUFFIX)
        write_segment(log, load.content, load.segment_bytes, base_offset)
        opened = LogFile(str(log))
        recovered = recover_segment(opened, base_offset, RecoverOptions())
        opened.close()
        side_files = {OFFSET_INDEX_SUFFIX: recovered.offset_index, TIME_INDEX_SUFFIX: recovered.time_index}
        if base_offset > 0:
            side_files[SNAPSHOT_SUFFIX] = Producers().snapshot()
        made.append(_Segment(base_offset, log, side_files))
        base_offset = recovered.facts.next_offset
    return made


def _killed_broker(directory: Path, partitions: int, load: _Load) -> Broker:
    """A broker that was killed with one topic, of whose partitions no segment is left."""
    broker = Broker(directory, load.settings, java_options=_JVM)
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
    killed: Broker,
    place: Path,
    segments: Sequence[_Segment],
    partitions: int,
    load: _Load,
    arguments: tuple[str, ...] | None,
) -> _Run:
    """Start a copy of a killed broker, which gets its segments first."""
    broker = killed.copy(place / "started")
    logging = broker.directory / "log4j2.properties"
    logging.write_text(logging.read_text().replace("= %p ", "= %r %p "))
    moved: list[Path] = []
    try:
        for number in range(partitions):
            partition = broker.log_dir / f"{_TOPIC}-{number}"
            for segment in segments:
                log = partition / segment.log.name
                if load.from_disk:
                    moved.append((place / "logs" / partition.name / log.name).rename(log))
                else:
                    os.link(segment.log, log)
                for suffix, content in segment.side_files.items():
                    (partition / segment_file(segment.base_offset, suffix)).write_bytes(content)
        os.sync()
        if arguments is not None and "--trust-page-cache" in arguments:
            note_page_cache([broker.log_dir])
        _drop(moved)
        if not load.from_disk:  # of a file that nobody has read for a while the kernel may have taken pages
            for segment in segments:
                _read(segment.log)
        kidx_seconds, read_bytes = 0.0, 0
        if arguments is not None:
            done = run_kidx("recover", broker.log_dir, "--apply", "--json", *arguments, only_seconds=True)
            kidx_seconds, read_bytes = done.seconds, _applied(done.json)
        start = time.perf_counter()
        run = broker.start(_DEADLINE_SECONDS)
        broker_seconds = time.perf_counter() - start
        run.kill()
        waiting, loading = _waiting_and_loading(run.log)
        return _Run(kidx_seconds, broker_seconds, waiting, loading, read_bytes)
    finally:
        for log in moved:
            log.rename(place / "logs" / log.parent.name / log.name)
        shutil.rmtree(broker.directory)


def _waiting_and_loading(broker_log: Path) -> tuple[float, float]:
    """How many seconds a broker waited for its controller alone, and how many loading its logs took, by what it says.

    Raises:
        KidxError: it says nothing of it.
    """
    said = broker_log.read_text()
    loaded, registered, refused = _LOADED.search(said), _REGISTERED.search(said), _REFUSED.search(said)
    if loaded is None or registered is None:
        raise KidxError(f"{broker_log}: no line 'Loaded N logs in Nms', or 'Successfully registered broker'")
    begin = 0 if refused is None else max(int(refused[1]), int(loaded["at"]))
    waiting = 0 if refused is None else max(int(registered[1]) - begin, 0)
    return waiting / 1000, int(loaded["ms"]) / 1000


def _applied(said: dict[str, Any]) -> int:
    """Bytes that kidx read.

    Raises:
        KidxError: it did nothing, or did not trust what it was told to trust.
    """
    if not said["applied"] or said["untrusted"]:
        raise KidxError(f"not recovered: {said['refused'][:3]}, {said['untrusted']}")
    read: int = said["kidx_bytes"]
    return read
