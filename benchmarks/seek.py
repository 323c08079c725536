"""A million seeks over a thousand segments: by `kidx` and on Spark, and on one core beside Kafka's own classes."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.figures import Table, Target, beside, record
from benchmarks.generate import SegmentContent, write_segment
from benchmarks.scan import BROKER_JAVA_OPTIONS
from benchmarks.submit import run_job
from kidxlib.errors import KidxError
from kidxlib.format import segment_files
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.lookup.answers import OFFSET, TIMESTAMP
from kidxlib.lookup.seeker import Seeker, seek_all
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.storage.opened_log import LogFile, map_log, open_local_log
from kidxlib.terminal.console import note
from tests.support.kafka.classes import Kafka
from tests.support.kafka.lookups import KafkaLog

_Longs: TypeAlias = NDArray[np.int64]

#: zstd, as a search by time has to look into a batch.
_CONTENT: Final = SegmentContent(magic=2, batch_bytes=16 * 1024, codec="zstd")
#: So many at once.
_AT_ONCE: Final = 10_000
#: Enough to know what one costs; Kafka decompresses a batch for each search by time.
_KAFKAS: Final = 20_000
_PARTITION: Final = TopicPartition("bench", 0)
#: More than a command answers without a worker.
_FEW: Final = 6_000
_KIDX: Final = Path(sys.executable).with_name("kidx")
#: Of skewed questions, how many are about the hundredth part of the log that is its newest.
_SKEW: Final = 0.9


@click.command()
@click.option("--segments", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--segment-bytes", type=click.IntRange(1024), default=1024 * 1024, show_default=True)
@click.option("--queries", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of the commands.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Whether to measure the job too.")
@click.option("--kafka/--no-kafka", default=True, show_default=True, help="Whether to compare with Kafka, on one core.")
def seek(
    segments: int, segment_bytes: int, queries: int, directory: Path, rounds: int, spark: bool, kafka: bool
) -> None:
    """Seek by offset and by time, at random and skewed, and check that Kafka finds the same.

    Then let `kidx seek` and the job answer all of them from a file.
    """
    place = directory / f"seek-{segments}x{segment_bytes}"
    log_directory = place / "kafka-logs" / _PARTITION.directory
    if not log_directory.exists():
        note(f"writing {segments} segments below {log_directory} …")
        _write_log(log_directory, segments, segment_bytes)
    targets = _targets(Seeker.of_directory(log_directory), queries // 2)
    engine = _engines(log_directory, targets) if kafka else {}
    commands = _commands(place, targets, rounds, spark=spark)
    record(directory, "seek", commands, [_on_one_core(engine), beside("commands", commands)], engine=engine)


def _write_log(directory: Path, segments: int, segment_bytes: int) -> None:
    """Segments that follow on each other, with their indexes."""
    partial = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    offset = 0
    for number in range(segments):
        log = partial / segment_files.segment_file(offset, segment_files.LOG_SUFFIX)
        write_segment(log, replace(_CONTENT, seed=number), segment_bytes, offset)
        with open_local_log(str(log)) as (descriptor, version):
            recovered = recover(map_log(descriptor, version.size), offset, RecoverOptions())
        log.with_suffix(segment_files.OFFSET_INDEX_SUFFIX).write_bytes(recovered.offset_index)
        log.with_suffix(segment_files.TIME_INDEX_SUFFIX).write_bytes(recovered.time_index)
        offset = recovered.facts.next_offset
    partial.rename(directory)


def _targets(seeker: Seeker, count: int) -> dict[str, tuple[str, _Longs]]:
    """So many of each kind, by what they are called."""
    random = np.random.default_rng(1)
    ends = seeker.timestamps(np.array([-2, -1, -3])).to_pylist()
    first, end, latest = ends[0]["offset"], ends[1]["offset"], ends[2]["timestamp"]
    since = seeker.timestamps(np.array([0])).to_pylist()[0]["timestamp"]
    found = {}
    for query, start, stop in ((OFFSET, first, end), (TIMESTAMP, since, latest + 1)):
        anywhere = random.integers(start, stop, count)
        late = random.integers(stop - (stop - start) // 100, stop, count)
        found[f"{query}s, random"] = query, anywhere
        found[f"{query}s, skewed"] = query, np.where(random.random(count) < _SKEW, late, anywhere)
    return found


def _engines(directory: Path, targets: dict[str, tuple[str, _Longs]]) -> dict[str, dict[str, float]]:
    """What a seek costs on one core, in this project and in Kafka, in order and as they come."""
    report = {}
    theirs_directory = directory.parent.with_name("kafkas") / directory.name
    shutil.rmtree(theirs_directory, ignore_errors=True)
    shutil.copytree(directory, theirs_directory, copy_function=_copy_or_link)
    with Kafka(BROKER_JAVA_OPTIONS) as kafka, kafka.opened_log(theirs_directory) as java:
        java.updateHighWatermark(java.logEndOffset())
        theirs = KafkaLog(kafka, java)
        for name, (query, asked) in targets.items():
            in_order = np.sort(asked)
            _compare(Seeker.of_directory(directory), theirs, query, in_order[:: max(1, len(asked) // 1_000)])
            seeker = Seeker.of_directory(directory)
            _answer(seeker, query, in_order)
            before = _bytes_read(seeker)
            seconds, counted = _timed(lambda: _answer(seeker, query, in_order))  # noqa: B023
            fewer = asked[:_KAFKAS]
            report[name] = {
                "queries": len(asked),
                "us": seconds / len(asked) * 1e6,
                "kafka_us_in_order": theirs.seconds(np.sort(fewer), by_time=query == TIMESTAMP) / len(fewer) * 1e6,
                "kafka_us_as_they_come": theirs.seconds(fewer, by_time=query == TIMESTAMP) / len(fewer) * 1e6,
                "bytes_read_said": counted / len(asked),
                "bytes_read": (_bytes_read(seeker) - before) / len(asked),
            }
    return report


def _on_one_core(engine: dict[str, dict[str, float]]) -> Table:
    rows = [
        (
            name,
            *(f"{of[key]:.1f}" for key in ("us", "kafka_us_in_order", "kafka_us_as_they_come")),
            *(f"{of[key]:,.0f}" for key in ("bytes_read_said", "bytes_read")),
        )
        for name, of in engine.items()
    ]
    columns = ("", "kidx, µs", "Kafka in order, µs", "Kafka as they come, µs", "bytes looked at", "bytes read")
    return Table(name="on one core", columns=columns, rows=rows)


def _copy_or_link(origin: str, target: str) -> None:
    """Kafka makes indexes larger when it opens a log; logs it leaves alone."""
    if origin.endswith(segment_files.LOG_SUFFIX):
        os.link(origin, target)
    else:
        shutil.copy2(origin, target)


def _compare(seeker: Seeker, theirs: KafkaLog, query: str, targets: _Longs) -> None:
    answers = seek_all(seeker, query, targets).to_pylist()
    ours: list[tuple[int | None, int | None]]
    kafkas: list[tuple[int | None, int | None]]
    if query == OFFSET:
        ours = [(answer["batch_base_offset"], answer["position"]) for answer in answers]
        kafkas = [(place.offset, place.position) for place in theirs.places(targets)]
    else:
        ours = [(answer["timestamp"], answer["offset"]) for answer in answers]
        found = theirs.offsets_by_timestamp(targets)
        kafkas = [(None, None) if each is None else (each.timestamp, each.offset) for each in found]
    if ours != kafkas:
        raise KidxError(f"{query}s: Kafka finds something else than we do")


def _answer(seeker: Seeker, query: str, targets: _Longs) -> int:
    """Bytes that the answers say were read."""
    parts = [targets[start : start + _AT_ONCE] for start in range(0, len(targets), _AT_ONCE)]
    return sum(int(seek_all(seeker, query, part).column("bytes_read").to_numpy().sum()) for part in parts)


def _bytes_read(seeker: Seeker) -> int:
    logs = [segment.log for segment in seeker.log.segments]
    return sum(log.bytes_read for log in logs if isinstance(log, LogFile))


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _commands(place: Path, targets: dict[str, tuple[str, _Longs]], rounds: int, *, spark: bool) -> list[Target]:
    """Whole commands, from a Parquet file to a Parquet directory, and beside them their start-up: the same with the
    fewest questions that workers are started for. The rest is lookups and answers alone.
    """
    catalog = place / "catalog"
    if not catalog.exists():
        places = ("--source", f"bench={place / 'kafka-logs'}", "--index-dir", place / "index", "--catalog", catalog)
        subprocess.run([_KIDX, "build", *places], check=True)
    questions = {kind: place / f"{kind}.parquet" for kind in ("random", "skewed", "few")}
    for kind in ("random", "skewed"):
        _write_queries(questions[kind], [each for name, each in targets.items() if name.endswith(kind)])
    pq.write_table(pq.read_table(questions["random"]).slice(0, _FEW), questions["few"])
    engines: dict[str, Callable[..., float]] = {"kidx seek": _run_kidx}
    if spark:
        engines["the job"] = _run_job
    found = []
    for engine, run in engines.items():
        seconds: dict[str, list[float]] = {kind: [] for kind in questions}
        for _ in range(rounds):
            for kind, path in questions.items():
                answers = place / "answers.parquet"
                shutil.rmtree(answers, ignore_errors=True)
                seconds[kind].append(run("--catalog", catalog, "--queries", path, "--output", answers))
        start_up = statistics.median(seconds["few"])
        few = f"{engine}, {_FEW:,} questions (start-up): the whole command"
        found.append(Target(name=few, unit="s", values=seconds["few"]))
        for kind in ("random", "skewed"):
            count = pq.read_metadata(questions[kind]).num_rows
            of = f"{engine}, {count:,} questions, {kind}"
            found.append(Target(name=f"{of}: the whole command", unit="s", values=seconds[kind]))
            alone = [each - start_up for each in seconds[kind]]
            found.append(Target(name=f"{of}: lookups and answers alone", unit="s", values=alone, at_most=7))
    return found


def _run_kidx(*arguments: str | Path) -> float:
    start = time.perf_counter()
    subprocess.run([_KIDX, "seek", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _run_job(*arguments: str | Path) -> float:
    return run_job("seek", *arguments).seconds


def _write_queries(path: Path, asked: list[tuple[str, _Longs]]) -> None:
    """Write the questions of both kinds, shuffled, to a file."""
    kinds = np.concatenate([np.full(len(targets), query == OFFSET) for query, targets in asked])
    targets = np.concatenate([targets for _, targets in asked])
    order = np.random.default_rng(2).permutation(len(targets))
    kinds, targets = kinds[order], targets[order]
    columns = {
        "topic": pa.repeat(_PARTITION.topic, len(targets)),
        "partition": pa.repeat(pa.scalar(_PARTITION.partition, pa.int32()), len(targets)),
        "offset": pa.array(targets, mask=~kinds),
        "timestamp": pa.array(targets, mask=kinds),
    }
    pq.write_table(pa.table(columns), path)
