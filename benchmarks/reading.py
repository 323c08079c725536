"""Records read from the files of a broker on one core, beside its consumers: those of Kafka and of librdkafka."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kidxlib
from benchmarks.figures import Target, beside, record
from kidxlib.errors import KidxError
from kidxlib.terminal.console import note
from tests.support.kafka.broker import Broker
from tests.support.kafka.jars import JARS

#: Bytes of a record's value, and the codec.
_CASES: Final = ((100, "none"), (100, "zstd"), (1000, "none"), (1000, "zstd"))
#: How many times faster than Kafka's consumer records of 100 bytes are read.
_TIMES_JAVA: Final = {"none": 5.0, "zstd": 3.0}
_COUNT_TIMES: Final = 20.0
_SECONDS: Final = 120.0
_WORDS: Final = [b"word%04d" % number for number in range(3000)]


@click.command()
@click.option("--megabytes", type=click.IntRange(1), default=256, show_default=True, help="Of values, in each topic.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
def reading(megabytes: int, directory: Path, rounds: int) -> None:
    """Produce to a broker, consume all of it, and read the same from the broker's files, with one thread."""
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="reading-", dir=directory.resolve()))
    try:
        targets = list(_targets(place / "broker", megabytes, rounds))
        record(directory, "reading", targets, [beside("rates", targets)])
    finally:
        shutil.rmtree(place)


def _targets(place: Path, megabytes: int, rounds: int) -> Iterator[Target]:
    broker = Broker(place, {})
    counts: dict[str, int] = {}
    java: dict[str, list[float]] = {}
    librdkafka: dict[str, list[float]] = {}
    with broker.running():
        for value_bytes, codec in _CASES:
            topic = f"{codec}-{value_bytes}"
            counts[topic] = produce(broker.bootstrap, topic, value_bytes, codec, megabytes * 1_000_000 // value_bytes)
            note(f"{counts[topic]:,} records in {topic}; consumers …")
            java[topic] = [_java_rate(broker, topic, counts[topic]) for _ in range(rounds)]
            librdkafka[topic] = [_rate(_consume, rounds, counts[topic], broker.bootstrap, topic) for _ in range(1)]
    note("reading files …")
    for value_bytes, codec in _CASES:
        topic = f"{codec}-{value_bytes}"
        path = broker.log_dir / f"{topic}-0"
        rates = [_rate(_read, 1, counts[topic], path) for _ in range(rounds)]
        narrow = [_rate(_read, 1, counts[topic], path, ["offset", "timestamp"]) for _ in range(rounds)]
        counted = [_rate(_count, 1, counts[topic], path) for _ in range(rounds)]
        case = f"{value_bytes:,} B" if codec == "none" else f"{value_bytes:,} B, {codec}"
        required = _TIMES_JAVA[codec] if value_bytes == 100 else None
        for name, found in (("read", rates), ("offset and timestamp", narrow), ("count", counted)):
            yield Target(name=f"{case}: {name}", unit="M records/s", values=[rate / 1e6 for rate in found])
        for name, theirs in (("Kafka's consumer", java[topic]), ("confluent-kafka", librdkafka[topic])):
            yield Target(name=f"{case}: {name}", unit="M records/s", values=[rate / 1e6 for rate in theirs])
        yield Target(
            name=f"{case}: read, as often as Kafka's consumer",
            unit="×",
            values=[max(rates) / max(java[topic])],
            at_least=required,
        )
        yield Target(
            name=f"{case}: count, as often as read",
            unit="×",
            values=[max(counted) / max(rates)],
            at_least=_COUNT_TIMES,
        )


def produce(bootstrap: str, topic: str, value_bytes: int, codec: str, count: int) -> int:
    """Produce records of words, with keys, to a new topic; how many there are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its answers do not come any more when it is gone
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_SECONDS)
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
    producer = Producer({**settings, "batch.size": 16_384, "queue.buffering.max.messages": 1_000_000})
    text = b" ".join(_WORDS * 20)
    for number in range(count):
        at = number * 7919 % (len(text) - value_bytes)
        while True:
            try:
                producer.produce(topic, text[at : at + value_bytes], b"k%07d" % (number % 10_000_000))
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_SECONDS):
        raise KidxError(f"{topic}: not all records were taken by the broker")
    return count


def _java_rate(broker: Broker, topic: str, count: int) -> float:
    """Records a second that Kafka's own performance tool polls, without the time until the first fetch."""
    home = os.environ.get("JAVA_HOME")
    done = subprocess.run(
        [
            *(f"{home}/bin/java" if home else "java", "-Xmx1g", "-cp", f"{JARS}/*"),
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", str(count)),
            "--hide-header",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    fields = done.stdout.strip().splitlines()[-1].split(", ")
    return float(fields[-1])  # fetch.nMsg.sec


def _rate(work: Callable[..., int], rounds: int, count: int, *arguments: Any) -> float:
    """Records a second of the fastest of some passes, each of which must have all records."""
    best = float("inf")
    for _ in range(rounds + 1):  # the first one loads what was compiled
        start = time.perf_counter()
        found = work(*arguments)
        best = min(best, time.perf_counter() - start)
        if found != count:
            raise KidxError(f"{found} records of {arguments}, expected {count}")
    return count / best


def _consume(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    count = 0
    while True:
        for message in consumer.consume(10_000, 0.1):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return count
            else:
                raise KidxError(str(error))


def _read(path: Path, columns: list[str] | None = None) -> int:
    return sum(rows.num_rows for rows in kidxlib.read(path, columns=columns, threads=1))


def _count(path: Path) -> int:
    return kidxlib.count(path, threads=1)
