"""A cluster restored to given offsets: at the ends Kafka's own logs have nothing open, consumers get what was below,
and Kafka's tool sets groups back with our file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from kidxlib.engine.local import LocalEngine, Workers
from kidxlib.format.topic_partition import TopicPartition as Partition
from kidxlib.indexing.source import ANY_TOPIC
from kidxlib.operations.restore.inventory import source_brokers, take_inventory
from kidxlib.operations.restore.until_offsets import plan_ends
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.terminal.exit_codes import ExitCode
from tests.kafka.crashed import killed_broker
from tests.kafka.reading import TIMEOUT_SECONDS, PartitionRead, read
from tests.kafka.restored import NEW_CLUSTER, restore_one
from tests.kafka.traffic import PARTITIONS
from tests.support.kafka.admin import make_topics
from tests.support.kafka.broker import Broker
from tests.support.kafka.classes import Kafka
from tests.support.logs.transactions import Written, random_transactions

_PARTITIONS: Final = 4
_STEPS: Final = 40
_GROUPS: Final = ("first, with a comma", "second")
_TRANSFERS: Final = ("transfers", 0)
_TRANSACTIONS: Final = 5
_RECORDS: Final = 3
_ALL: Final = [*PARTITIONS, _TRANSFERS]
_TRIES: Final = 100
_MOMENT_SECONDS: Final = 0.1
_NOT_YET: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
_ISOLATIONS: Final = ("read_uncommitted", "read_committed")
_TOOL: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

#: What consumers get, by isolation.
_Read: TypeAlias = dict[str, dict[tuple[str, int], PartitionRead]]


def _log_dir(root: Path, logs: Mapping[int, tuple[Written, set[int]]]) -> Path:
    log_dir = root / "logs"
    log_dir.mkdir()
    (log_dir / META_PROPERTIES).write_text("version=1\nnode.id=1\ncluster.id=old\n")
    for number, (written, starts) in logs.items():
        written.write(log_dir / f"t-{number}", starts)
        (log_dir / f"t-{number}" / PARTITION_METADATA).write_text("version: 0\ntopic_id: nK9UueanTPWXzDtprD1jVw\n")
    return log_dir


def _quiet_ends(kafka: Kafka, root: Path, written: Written, starts: set[int]) -> list[int]:
    """Where the log may end so that Kafka finds nothing open. Kafka loads a log for each end: once producers have
    expired, it cuts a log without reading again which there were (`UnifiedLog.rebuildProducerState`).
    """
    quiet = []
    for count in range(len(written.batches) + 1):
        directory = root / str(count) / "t-0"
        directory.parent.mkdir(parents=True)
        written.write(directory, starts, until=count)
        with kafka.opened_log(directory, clean_shutdown=False) as log:
            end = log.logEndOffset()
            log.updateHighWatermark(end)
            if log.lastStableOffset() == end:
                quiet.append(end)
    return quiet


def test_ends_are_the_last_stable_ones(kafka: Kafka, tmp_path: Path, rng: random.Random) -> None:
    written = [random_transactions(rng, _STEPS) for _ in range(_PARTITIONS)]
    logs = {number: (each, set(rng.sample(range(1, len(each.batches)), 4))) for number, each in enumerate(written)}
    log_dir = _log_dir(tmp_path, logs)
    with Workers(1) as workers:
        engine = LocalEngine(workers, tmp_path / "staged")
        inventory = take_inventory(source_brokers([str(log_dir)], ANY_TOPIC), engine, ANY_TOPIC)
    replicas, earlier = list(inventory.replicas.values()), 0
    quiet = {
        Partition("t", number): _quiet_ends(kafka, tmp_path / f"cut-{number}", *of_log)
        for number, of_log in logs.items()
    }
    for given in range(max(each.next_offset for each in written) + 2):
        ends = plan_ends(dict.fromkeys(quiet, given), replicas, (), 1, {})
        assert ends.refusals == []
        for partition, of_kafka in quiet.items():
            planned = ends.by_partition[partition]
            assert planned.end == max(end for end in of_kafka if end <= given), (partition, given)
            cut = ends.cut(inventory.replicas[partition])[0]
            assert cut.end_offset == planned.end
            assert planned.left_bytes == inventory.replicas[partition][0].kept_bytes - cut.kept_bytes
            earlier += planned.open_since is not None
    assert earlier


def _use(broker: Broker) -> None:
    """Transactions one after the other, and groups at the ends of all partitions."""
    with broker.running():
        make_topics(broker.bootstrap, [NewTopic(_TRANSFERS[0], 1, 1)])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "transfers"})
        producer.init_transactions(TIMEOUT_SECONDS)
        for number in range(_TRANSACTIONS):
            producer.begin_transaction()
            for _ in range(_RECORDS):
                producer.produce(_TRANSFERS[0], b"%d" % number, partition=0)
            if number % 2:
                producer.abort_transaction(TIMEOUT_SECONDS)
            else:
                producer.commit_transaction(TIMEOUT_SECONDS)
        for group in _GROUPS:
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
            ends = [
                TopicPartition(*place, consumer.get_watermark_offsets(TopicPartition(*place), TIMEOUT_SECONDS)[1])
                for place in _ALL
            ]
            consumer.commit(offsets=ends, asynchronous=False)
            consumer.close()


def _read(broker: Broker) -> _Read:
    return {isolation: read(broker.bootstrap, _ALL, isolation) for isolation in _ISOLATIONS}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Broker:
    return killed_broker(tmp_path_factory.mktemp("until") / "broker", broker_version, _use)


@pytest.fixture(scope="module")
def alone(killed: Broker, tmp_path_factory: pytest.TempPathFactory) -> _Read:
    """What consumers get of the disk where its own broker starts on it."""
    broker = killed.copy(tmp_path_factory.mktemp("alone") / "broker")
    with broker.running():
        return _read(broker)


def _committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """A group's offsets, once its coordinator, which begins after the broker, answers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        for tries_left in reversed(range(_TRIES)):
            try:
                found = consumer.committed([TopicPartition(*place) for place in _ALL], TIMEOUT_SECONDS)
                break
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET or not tries_left:
                    raise
                consumer.poll(_MOMENT_SECONDS)
    finally:
        consumer.close()
    return {(each.topic, each.partition): each.offset for each in found}


def _ends(plan: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    found = {}
    for end in plan["ends"]:
        topic, _, number = end["partition"].rpartition("-")
        found[topic, int(number)] = end["end"]
    return found


def test_a_cluster_comes_back_to_given_offsets(
    killed: Broker, alone: _Read, tmp_path: Path, rng: random.Random
) -> None:
    old = killed.copy(tmp_path / "old")
    new = Broker(tmp_path / "new", {}, more_log_dirs=["more"], version=killed.version, cluster_id=NEW_CLUSTER)
    until, resets = tmp_path / "until.json", tmp_path / "resets.csv"
    given = [
        {"topic": topic, "partition": number, "offset": rng.randint(1, alone[_ISOLATIONS[0]][topic, number].end)}
        for topic, number in PARTITIONS
    ]
    given.append({"topic": _TRANSFERS[0], "partition": 0, "offset": 2 * (_RECORDS + 1) + 1})
    until.write_text(json.dumps({"partitions": given, "version": 1}))
    refused = restore_one(old, new, "--until-offsets", str(until))
    assert refused.code == ExitCode.USAGE and any("--reset-offsets FILE" in line for line in refused.json["refused"])
    options = ("--until-offsets", str(until), "--reset-offsets", str(resets))
    planned = restore_one(old, new, *options)
    assert planned.code == ExitCode.OK, planned
    applied = restore_one(old, new, *options, "--apply", planned.json["plan"])
    assert applied.code == ExitCode.OK and applied.json["applied"], applied
    ends = _ends(applied.json)
    assert ends.keys() == set(_ALL) and ends[_TRANSFERS] == 2 * (_RECORDS + 1)
    with new.running() as run:
        restored = _read(new)
        before = {group: _committed(new.bootstrap, group) for group in _GROUPS}
        reset = ("--bootstrap-server", new.bootstrap, "--reset-offsets", "--execute", "--all-groups")
        new.run_tool(_TOOL, *reset, "--from-file", str(resets))
        for group in _GROUPS:
            expected = {place: min(offset, ends[place]) for place, offset in before[group].items()}
            assert _committed(new.bootstrap, group) == expected and expected != before[group]
    for place, end in ends.items():
        for isolation in _ISOLATIONS:
            of_alone, found = alone[isolation][place], restored[isolation][place]
            assert found.records == [record for record in of_alone.records if record.offset < end], (place, isolation)
            assert found.end == end
    assert "stray" not in "\n".join(run.lines())
