"""Random disasters of three brokers with three controllers: restored, started, checked; and clients go on."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.checksums import extend_crc32c
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.records.batch_headers import BatchHeader
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import Ended
from tests.kafka.crashed import batches_of
from tests.kafka.reading import TIMEOUT_SECONDS, PartitionRead, read, wait_until_read
from tests.kafka.restored import NEW_CLUSTER, assert_described, checked, give_away, restore, state_of
from tests.support.kafka.admin import wait_until
from tests.support.kafka.cluster import Cluster
from tests.support.kafka.tiered import SMALL_SEGMENTS, tiered_broker

_SETTINGS: Final = {
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "metadata.log.max.record.bytes.between.snapshots": 2_000,
    "rlmm.config.remote.log.metadata.topic.replication.factor": 3,
    # As the steps of a plan say.
    "offsets.retention.minutes": 2**31 - 1,
    "transactional.id.expiration.ms": 2**31 - 1,
}
_PLAIN, _TABLE, _TRANSACTIONS, _TIERED = "plain", "table", "transactions", "tiered"
_PARTITIONS: Final = {_PLAIN: 4, _TABLE: 1, _TRANSACTIONS: 2, _TIERED: 1}
_CONFIGS: Final = {_TABLE: {"cleanup.policy": "compact", "segment.bytes": "1048576"}, _TIERED: SMALL_SEGMENTS}
_ALL: Final = [(topic, partition) for topic, count in _PARTITIONS.items() for partition in range(count)]
_WRITTEN: Final = [*((_PLAIN, partition) for partition in range(_PARTITIONS[_PLAIN])), (_TABLE, 0), (_TIERED, 0)]
_GROUP: Final = "went-on"
_FRESH: Final = 40
_BROKERS: Final = 3
#: What waits while no broker runs is to fit into the segments of the tiered topic.
_BATCH_BYTES: Final = 8_192
#: So many records are acknowledged at least before the brokers are killed.
_RECORDS: Final = (500, 1_500)
_CRC_AT, _CRC_COVERS_FROM = 17, 21

_Place: TypeAlias = tuple[str, int, int]


class _Clients:
    """Clients of the old cluster, which go on with the restored one.

    Attributes:
        acknowledged: digests of values by topic, partition and offset.
        known_to_be_there: digests of values that the cluster had already as they were sent again, at an offset that it
            does not tell.
    """

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.acknowledged: dict[_Place, bytes] = {}
        self.known_to_be_there: set[bytes] = set()
        self.committed: dict[tuple[str, int], int] = {}
        self._bootstrap, self._rng = cluster.bootstrap, rng
        self._is_over, self._more = threading.Event(), threading.Condition()
        self._failures: list[KafkaError] = []
        # One request at a time. Else a batch that is refused while replicas register is overtaken by the next one,
        # which is out of order then: librdkafka sends all that is not acknowledged again, in a new epoch. And of
        # several batches that were not acknowledged a broker knows the last one alone, whoever has recovered it
        # (`LogLoader.recoverSegment` takes a snapshot, which has no others, and a start loads it).
        one_at_a_time = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        self._idempotent = self._producer(one_at_a_time)
        self._transactional = self._producer({"transactional.id": "old", "transaction.timeout.ms": 900_000})
        self._thread = threading.Thread(target=self._write, daemon=True)

    def begin(self) -> None:
        """Make topics, end transactions in both ways, leave one open, commit offsets; and then write all the time."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        # Else no topic can have three replicas.
        wait_until(lambda: len(admin.list_topics(timeout=TIMEOUT_SECONDS).brokers) == _BROKERS, "a broker is missing")
        topics = [
            NewTopic(topic, count, _BROKERS, config=_CONFIGS.get(topic, {"segment.bytes": "1048576"}))
            for topic, count in _PARTITIONS.items()
        ]
        _create(admin, topics)
        self._transactional.init_transactions(TIMEOUT_SECONDS)
        for number in range(6):
            self._transactional.begin_transaction()
            written = self._write_into(self._transactional, [(_TRANSACTIONS, 0), (_TRANSACTIONS, 1)])
            if number == 5:
                self._left_open = written
            elif number % 2:
                self._transactional.abort_transaction(TIMEOUT_SECONDS)
            else:
                self._transactional.commit_transaction(TIMEOUT_SECONDS)
                self.acknowledged |= written
        self.acknowledged |= self._write_into(self._idempotent, _WRITTEN)
        self.committed = {place: self._rng.randint(1, 5) for place in _WRITTEN}
        with _consumer(self._bootstrap) as consumer:
            offsets = [TopicPartition(*place, offset) for place, offset in self.committed.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        with self._more:
            is_there = self._more.wait_for(lambda: len(self.acknowledged) >= count, TIMEOUT_SECONDS)
        assert is_there, self._failures[:3]

    def stop(self) -> None:
        """Write nothing more. What is not acknowledged stays on its way."""
        self._is_over.set()
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()

    def go_on(self) -> None:
        """What was on its way arrives, and the transaction that was left open ends."""
        assert self._idempotent.flush(3 * TIMEOUT_SECONDS) == 0 and not self._failures, self._failures[:3]
        self._transactional.commit_transaction(TIMEOUT_SECONDS)
        self.acknowledged |= self._left_open
        self.acknowledged |= self._write_into(self._idempotent, _WRITTEN)

    def _producer(self, more: Mapping[str, object]) -> Producer:
        small = {"batch.size": _BATCH_BYTES}
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 2, "log_level": 2, **small, **more})

    def _write(self) -> None:
        while not self._is_over.wait(0.01):
            for _ in range(20):
                self._produce(self._idempotent, self._rng.choice(_WRITTEN), self.acknowledged)
            self._idempotent.poll(0)

    def _write_into(self, producer: Producer, places: list[tuple[str, int]]) -> dict[_Place, bytes]:
        """Write some records into each partition, and wait until they are there."""
        written: dict[_Place, bytes] = {}
        for place in places:
            for _ in range(10):
                self._produce(producer, place, written)
        assert producer.flush(TIMEOUT_SECONDS) == 0 and not self._failures, self._failures[:3]
        return written

    def _produce(self, producer: Producer, place: tuple[str, int], into: dict[_Place, bytes]) -> None:
        value = self._rng.randbytes(self._rng.randint(16, 300))
        key = self._rng.randbytes(1)
        producer.produce(place[0], value, key, partition=place[1], on_delivery=self._noting(value, into))

    def _noting(self, value: bytes, into: dict[_Place, bytes]) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if error is not None:
                self._failures.append(error)
                return
            assert topic is not None and partition is not None
            digest = hashlib.sha256(value).digest()
            with self._more:
                if offset is None:
                    self.known_to_be_there.add(digest)
                else:
                    into[topic, partition, offset] = digest
                self._more.notify_all()

        return note


def _cluster(directory: Path, bucket: Path, version: str, old: Cluster | None = None) -> Cluster:
    """Three brokers with a bucket. In place of `old`, their log dirs are those of a user who may not write in it."""
    settings = {**_SETTINGS, "rsm.config.dir": bucket}
    if old is None:
        return Cluster(directory, settings, version, make=tiered_broker)
    new = Cluster(directory, settings, version, in_place_of=old, cluster_id=NEW_CLUSTER, make=tiered_broker)
    for broker in new.brokers.values():
        give_away(broker.log_dir)
    return new


def _wait_until_tiered(cluster: Cluster) -> None:
    """Wait until a broker has deleted a segment of the tiered topic, as it is in the bucket."""
    logs = [broker.log_dir / f"{_TIERED}-0" / segment_file(0, LOG_SUFFIX) for broker in cluster.brokers.values()]
    wait_until(lambda: not all(log.exists() for log in logs), "segments stay in the log dirs")


def _consumer(bootstrap: str) -> contextlib.closing[Consumer]:
    return contextlib.closing(
        Consumer({"bootstrap.servers": bootstrap, "group.id": _GROUP, "enable.auto.commit": False, "log_level": 2})
    )


@dataclass(frozen=True, slots=True)
class _Disaster:
    """What is left of a killed cluster.

    Attributes:
        sources: the log dirs of nodes whose disks are left.
        diverged: whether two replicas disagree.
        leads: a broker that leads a partition of which another replica is shorter; it is started last.
        text: in words.
    """

    sources: Mapping[int, Path]
    diverged: bool
    leads: int | None
    text: str


def _spoil(old: Cluster, new: Cluster, bucket: Path, rng: random.Random) -> _Disaster:
    """Lose controllers' directories, perhaps a disk and the end of a replica; and change a batch of another replica."""
    sources = {node: broker.log_dir for node, broker in old.brokers.items()}
    said = []
    if rng.random() < 0.5:
        lost = rng.choice([*sources])
        shutil.rmtree(sources.pop(lost))
        said.append(f"disk of {lost} lost")
    kept = rng.choice([None, "one", "an old snapshot"])
    keeper = rng.choice([*sources]) if kept else None
    for node, log_dir in sources.items():
        directory = log_dir / METADATA_DIRECTORY
        if node != keeper:
            shutil.rmtree(directory)
        elif kept == "an old snapshot":
            [oldest, *_] = sorted(directory.glob("*.checkpoint"))
            for path in directory.iterdir():
                if path != oldest:
                    path.unlink()
    said.append(f"metadata kept: {kept}, of {keeper}")
    replicas = _restore(sources, new, bucket).json["replicas"]
    leads = None
    followers = [each for each in replicas if not each["leader"] and each["from"] and each["in_sync"]]
    of_plain = [each for each in followers if each["partition"].startswith(_PLAIN)]
    if of_plain and rng.random() < 0.7:
        shorter = rng.choice(of_plain)
        leads = next(
            each["node_id"] for each in replicas if each["leader"] and each["partition"] == shorter["partition"]
        )
        _cut(Path(shorter["from"]))
        said.append(f"{shorter['partition']} of {shorter['node_id']} shorter, {leads} leads")
        of_plain.remove(shorter)
    diverged = bool(of_plain) and rng.random() < 0.5
    if diverged:
        changed = rng.choice(of_plain)
        _change(Path(changed["from"]), rng)
        said.append(f"{changed['partition']} of {changed['node_id']} diverged")
    return _Disaster(sources, diverged, leads, "; ".join(said))


def _last_log(directory: Path) -> tuple[Path, list[BatchHeader]]:
    path = max(path for path in directory.glob(f"*{LOG_SUFFIX}") if path.stat().st_size)
    return path, batches_of(path)


def _cut(directory: Path) -> None:
    """Take the last batch away."""
    path, found = _last_log(directory)
    os.truncate(path, found[-1].position)


def _change(directory: Path, rng: random.Random) -> None:
    """Change a byte of a value, with the checksum of a whole batch."""
    path, found = _last_log(directory)
    batch = rng.choice(found[:-1] or found)
    content = bytearray(path.read_bytes()[batch.position : batch.position + batch.size])
    content[-3] ^= 1
    content[_CRC_AT:_CRC_COVERS_FROM] = extend_crc32c(0, bytes(content[_CRC_COVERS_FROM:])).to_bytes(4, "big")
    with path.open("r+b") as log:
        log.seek(batch.position)
        log.write(content)


def _restore(sources: Mapping[int, Path], new: Cluster, bucket: Path, *options: str) -> Ended:
    return restore(sources.values(), new.brokers, *options, bucket=bucket)


def _create(admin: AdminClient, topics: list[NewTopic]) -> None:
    """Create topics. A client that has just learnt the brokers' ids gives up what it has asked at their addresses, and
    is to ask again.
    """
    for _ in range(10):
        try:
            for created in admin.create_topics(topics).values():
                created.result(TIMEOUT_SECONDS)
        except KafkaException as error:
            code = error.args[0].code()
            assert code in (KafkaError._DESTROY_BROKER, KafkaError.TOPIC_ALREADY_EXISTS), error
        there = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        if not (topics := [topic for topic in topics if topic.topic not in there]):
            return
    raise AssertionError(f"not made: {topics}")


def _wait_until_in_sync(cluster: Cluster, plan: Mapping[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for _ in range(1_200):
        topics = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        behind = [
            (topic["topic"], sorted(found.partitions) if found else "not there yet")
            for topic in plan["topics"]
            if (found := topics.get(topic["topic"])) is None
            or any(set(each.isrs) != set(each.replicas) for each in found.partitions.values())
        ]
        if not behind:
            return
        admin.poll(0.1)
    raise AssertionError(behind)


def _assert_all_there(
    acknowledged: Mapping[_Place, bytes], known_to_be_there: set[bytes], seen: Mapping[tuple[str, int], PartitionRead]
) -> None:
    """Each acknowledged record is at its offset, and no value is there twice."""
    found = {
        (*place, record.offset): hashlib.sha256(record.value or b"").digest()
        for place, of_place in seen.items()
        for record in of_place.records
    }
    lost = {place for place, digest in acknowledged.items() if found.get(place) != digest}
    assert not lost, f"{len(lost)} of {len(acknowledged)} lost, as {sorted(lost)[:3]}"
    places: dict[bytes, list[_Place]] = defaultdict(list)
    for place, digest in found.items():
        places[digest].append(place)
    assert not (twice := [of_value for of_value in places.values() if len(of_value) > 1]), f"twice: {twice}"
    assert not (missing := known_to_be_there - places.keys()), f"{len(missing)} of {len(known_to_be_there)} are nowhere"


def _write_afresh(bootstrap: str) -> int:
    """New producers, whose ids the logs must not know: their records would count as duplicates."""
    for number, (topic, partition) in itertools.product(range(2), _WRITTEN):
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
        for _ in range(_FRESH):
            producer.produce(topic, os.urandom(16), f"fresh{number}".encode(), partition=partition)
        assert producer.flush(TIMEOUT_SECONDS) == 0
    return 2 * _FRESH


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.exhaustive("takes minutes; tests/kafka/test_restore.py restores one broker")
@pytest.mark.parametrize("seed", range(20))
def test_a_cluster_comes_back_from_a_random_disaster(seed: int, tmp_path: Path, broker_version: str, say: Say) -> None:
    """The check passes, all acknowledged records are there, groups and old producers go on, new ones lose nothing."""
    rng = random.Random(seed)  # of the disaster; the clients have their own, as how much they write depends on time
    bucket = tmp_path / "bucket"
    old = _cluster(tmp_path / "old", bucket, broker_version)
    with old.running():
        clients = _Clients(old, random.Random(seed))
        clients.begin()
        clients.wait_for(rng.randint(*_RECORDS))
        _wait_until_tiered(old)
    clients.stop()
    new = _cluster(tmp_path / "new", bucket, broker_version, old)
    disaster = _spoil(old, new, bucket, rng)
    say(f"seed {seed}: {disaster.text}")
    left, in_bucket = state_of(disaster.sources.values()), state_of([bucket])
    options = ["--accept-divergence"] if disaster.diverged else []
    options += ["--scan-cache", str(tmp_path / "scans")] if seed % 2 else []
    planned = _restore(disaster.sources, new, bucket, *options)
    if may_be_lost := planned.json["lost"]:
        # As an old snapshot has it, nobody was in sync yet but the broker whose disk is lost.
        assert all("only brokers" in line and "were in sync" in line for line in may_be_lost), may_be_lost
        options.append("--accept-loss")
        planned = _restore(disaster.sources, new, bucket, *options)
    applied = _restore(disaster.sources, new, bucket, *options, "--apply", planned.json["plan"])
    assert applied.code in (ExitCode.OK, ExitCode.PROBLEMS_FOUND) and applied.json["applied"], applied
    assert bool(applied.json["disagreements"]) == disaster.diverged
    with new.running(disaster.leads):
        _wait_until_in_sync(new, applied.json)
        assert_described(new.brokers[1], applied.json, "replicas")
        wait_until_read(new.bootstrap, [(_TIERED, 0)])
        found = checked(new.bootstrap, applied.json, tmp_path)
        assert found.code == ExitCode.OK, found.json["differs"] + found.json["not_compared"]
        clients.go_on()
        with _consumer(new.bootstrap) as consumer:
            offsets = consumer.committed([TopicPartition(*place) for place in clients.committed], TIMEOUT_SECONDS)
        assert {(each.topic, each.partition): each.offset for each in offsets} == clients.committed
        before = read(new.bootstrap, _ALL, "read_committed")
        _assert_all_there(clients.acknowledged, clients.known_to_be_there, before)
        fresh = _write_afresh(new.bootstrap)
        after = read(new.bootstrap, _WRITTEN, "read_uncommitted")
        assert {
            place: len(seen.records) - len(before[place].records) for place, seen in after.items()
        } == dict.fromkeys(_WRITTEN, fresh)
        said = [line for node in new.brokers for line in new.lines(node) if "stray" in line]
    assert state_of(disaster.sources.values()) == left
    assert state_of([bucket]) == in_bucket
    assert not said and not [*tmp_path.glob("new/*/data/*-stray")]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.exhaustive("takes minutes")
def test_a_controller_that_is_lost_before_the_first_start(tmp_path: Path, broker_version: str) -> None:
    """The two others begin with the restored metadata. Formatted anew once one of them leads, it fetches all of it."""
    bucket = tmp_path / "bucket"
    old = _cluster(tmp_path / "old", bucket, broker_version)
    with old.running():
        clients = _Clients(old, random.Random(0))
        clients.begin()
        clients.wait_for(_RECORDS[0])
        _wait_until_tiered(old)
    clients.stop()
    sources = {node: broker.log_dir for node, broker in old.brokers.items()}
    for log_dir in sources.values():
        shutil.rmtree(log_dir / METADATA_DIRECTORY)
    new = _cluster(tmp_path / "new", bucket, broker_version, old)
    applied = _restore(sources, new, bucket, "--apply", _restore(sources, new, bucket).json["plan"])
    assert applied.json["applied"], applied
    lost = new.brokers[3]
    shutil.rmtree(lost.log_dir)
    with new.running(without=3):
        lost.format()
        new.start(3)
        _wait_until_in_sync(new, applied.json)
        assert_described(lost, applied.json, "replicas")
        wait_until_read(new.bootstrap, [(_TIERED, 0)])
        found = checked(new.bootstrap, applied.json, tmp_path)
        assert found.code == ExitCode.OK, found.json["differs"] + found.json["not_compared"]
        clients.go_on()
    assert not [*tmp_path.glob("new/*/data/*-stray")]
