"""One of three brokers is killed under load and started after `kidx recover`: no acknowledged record is lost."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, ElectionType, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.cimpl import TopicPartition as ClientPartition

from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import kidx
from tests.kafka.reading import TIMEOUT_SECONDS, consumer_of
from tests.support.kafka.admin import make_topics
from tests.support.kafka.cluster import Cluster

_SETTINGS: Final = {
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "leader.imbalance.check.interval.seconds": 3_600,  # leaders change when the test says so
    "group.initial.rebalance.delay.ms": 0,
}
_TOPIC: Final = "replicated"
#: As its first replica, each broker is the preferred leader of a third of them.
_PARTITIONS: Final = 6
_REPLICAS: Final = [[(first + turn) % 3 + 1 for turn in range(3)] for first in range(_PARTITIONS)]
_CONFIG: Final = {"internal.segment.bytes": "65536"}
_ALL: Final = [(_TOPIC, partition) for partition in range(_PARTITIONS)]
_VALUE_BYTES: Final = (10, 600)
#: How many records are acknowledged before a broker is killed, while it is down, and after it is back.
_RECORDS: Final = (1_200, 600, 200)
#: Between batches of the writers, which would else take the processor from what is tested.
_PAUSE_SECONDS: Final = 0.02


class _Load:
    """Producers with `acks=all` that write all the time, and what was acknowledged to them.

    Attributes:
        acknowledged: digests of values by partition and offset.
    """

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._rng, self._bootstrap = rng, bootstrap
        self._is_over, self._more = threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._failures: list[KafkaError] = []

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive() and not self._failures, self._failures[:3]

    def wait_for(self, count: int) -> None:
        """Wait until so many more records were acknowledged."""
        with self._more:
            there = len(self.acknowledged) + count
            assert self._more.wait_for(lambda: len(self.acknowledged) >= there, TIMEOUT_SECONDS), self._failures[:3]

    def _write(self) -> None:
        producers = [
            Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2, **more})
            for more in ({"enable.idempotence": True}, {"compression.type": "zstd"})
        ]
        while not self._is_over.wait(_PAUSE_SECONDS):
            for producer in producers:
                for _ in range(self._rng.randint(1, 40)):
                    value = self._rng.randbytes(self._rng.randint(*_VALUE_BYTES))
                    partition, digest = self._rng.randrange(_PARTITIONS), hashlib.sha256(value).digest()
                    producer.produce(_TOPIC, value, partition=partition, on_delivery=self._noting(digest))
                producer.flush(TIMEOUT_SECONDS)
        for producer in producers:
            producer.flush(TIMEOUT_SECONDS)

    def _noting(self, digest: bytes) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failures.append(error)
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            with self._more:
                self.acknowledged[partition, offset] = digest
                self._more.notify_all()

        return note


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("quorum"), _SETTINGS, broker_version)
    with cluster.running():
        topic = NewTopic(_TOPIC, _PARTITIONS, replica_assignment=_REPLICAS, config=_CONFIG)
        make_topics(cluster.bootstrap, [topic])
        yield cluster


@pytest.mark.exhaustive("takes a minute a round; tests/kafka/test_recover.py starts one broker after the same commands")
def test_no_acknowledged_record_is_lost(cluster: Cluster, tmp_path: Path, rng: random.Random, say: Say) -> None:
    """At both levels, with all that the broker had written, and where the disk has lost the ends of logs that it had
    not flushed, all replicas come to hold every acknowledged record, the recovered one as the leader, too. Writers go
    on while a random broker is killed, recovered and started. A tail is lost in that logs are cut at a random byte of
    their last segments.
    """
    rounds, acknowledged, cuts = 20, dict[tuple[int, int], bytes](), 0
    for number in range(rounds):
        for level in ("checkpoint", "marker"):
            node = rng.choice(list(cluster.brokers))
            loses = (number + (level == "marker")) % 2 == 1
            with _Load(cluster.bootstrap, rng) as load:
                load.wait_for(_RECORDS[0])
                cluster.kill(node)
                load.wait_for(_RECORDS[1])
                cuts += _lose_ends(cluster.brokers[node].log_dir, rng) if loses else 0
                _recover(cluster, node, level, tmp_path / f"{number}-{level}")
                cluster.start(node)
                load.wait_for(_RECORDS[2])
            acknowledged |= load.acknowledged
            _wait_until_in_sync(cluster)
            _ensure_same_logs(cluster)
            _ensure_all_there(cluster, acknowledged)
    say(f"{rounds} rounds at each level, {len(acknowledged):,} acknowledged records, ends of {cuts} logs lost")


def _lose_ends(log_dir: Path, rng: random.Random) -> int:
    """Cut the last segments of some logs, as where a disk has lost what was not flushed; how many."""
    logs = [max((log_dir / f"{_TOPIC}-{number}").glob(f"*{LOG_SUFFIX}")) for number in range(_PARTITIONS)]
    chosen = rng.sample(logs, 3)
    for log in chosen:
        os.truncate(log, rng.randrange(log.stat().st_size + 1))
    return len(chosen)


def _recover(cluster: Cluster, node: int, level: str, keep: Path) -> None:
    log_dir = cluster.brokers[node].log_dir
    arguments = ("--apply", "--level", level, "--truncate", "--keep", keep, "--accept-loss")
    ended = kidx("recover", log_dir, *arguments, "--json")
    assert ended.code in (ExitCode.OK, ExitCode.PROBLEMS_FOUND) and ended.json["applied"], ended
    assert sum(each["rebuilt_from"] is not None for each in ended.json["partitions"]) >= _PARTITIONS


def _wait_until_in_sync(cluster: Cluster) -> None:
    """Wait until all replicas of all partitions are in sync, and a record that all of them have is acknowledged."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for _ in range(600):
        partitions = admin.list_topics(_TOPIC, TIMEOUT_SECONDS).topics[_TOPIC].partitions.values()
        if all(len(partition.isrs) == len(cluster.brokers) for partition in partitions):
            break
        admin.poll(0.1)
    else:
        raise AssertionError({partition.id: partition.isrs for partition in partitions})
    elected = admin.elect_leaders(ElectionType.PREFERRED, [ClientPartition(*place) for place in _ALL])
    for partition, error in elected.result(TIMEOUT_SECONDS).items():
        assert error is None or error.code() == KafkaError.ELECTION_NOT_NEEDED, (partition, error)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 2})
    for topic, number in _ALL:
        producer.produce(topic, b"the last one", partition=number)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def _ensure_same_logs(cluster: Cluster) -> None:
    """The replicas of each partition hold the same bytes."""
    for topic, number in _ALL:
        logs = {
            node: b"".join(map(Path.read_bytes, sorted((broker.log_dir / f"{topic}-{number}").glob(f"*{LOG_SUFFIX}"))))
            for node, broker in cluster.brokers.items()
        }
        assert len(set(logs.values())) == 1, (number, {node: len(content) for node, content in logs.items()})


def _ensure_all_there(cluster: Cluster, acknowledged: dict[tuple[int, int], bytes]) -> None:
    """Consumers get every acknowledged record at its offset, from the leaders."""
    consumer = consumer_of(cluster.bootstrap, "read_committed")
    consumer.assign([ClientPartition(*place, OFFSET_BEGINNING) for place in _ALL])
    digests: dict[tuple[int | None, int | None], bytes] = {}
    ends: set[int | None] = set()
    while len(ends) < len(_ALL):
        messages = consumer.consume(10_000, 1.0)
        assert messages, f"nothing more came after the ends of {ends}"
        for message in messages:
            if (error := message.error()) is None:
                digests[message.partition(), message.offset()] = hashlib.sha256(message.value() or b"").digest()
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends.add(message.partition())
    consumer.close()
    assert [place for place, digest in acknowledged.items() if digests.get(place) != digest] == []
