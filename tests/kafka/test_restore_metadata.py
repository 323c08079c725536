"""A restored cluster's metadata is read by Kafka as it was meant, and a node that starts with it serves all of it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.topic_partition import TopicPartition as KidxPartition
from kidxlib.format.topic_partition import served_as
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import json_object
from kidxlib.messages.typed_records import CLUSTER_METADATA, FramedMessage, write_framed
from kidxlib.operations.restore.inventory import LogEvidence
from kidxlib.operations.restore.new_nodes import FormattedController, read_formatted, write_metadata
from kidxlib.operations.restore.restored_cluster import (
    SAFE_CONFIGS,
    ClusterEvidence,
    ConfigProof,
    RestoredCluster,
    RestoredConfig,
    RestoredPartition,
    RestoredTopic,
    cluster_metadata_records,
    restored_cluster,
    why_cluster_is_not_written,
)
from kidxlib.operations.restore.surviving_metadata import surviving_metadata
from kidxlib.records.batch_headers import batches
from kidxlib.records.batch_writer import write_batch
from kidxlib.storage.log_dir import read_topic_id
from kidxlib.storage.opened_log import LogFile
from tests.kafka.reading import TIMEOUT_SECONDS, PartitionRead, read
from tests.support.kafka.admin import make_topics
from tests.support.kafka.broker import JVM_OPTIONS, Broker
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump
from tests.support.messages import random_values

_SETTINGS: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
#: A dynamic quorum has no `controller.quorum.voters`.
_DYNAMIC: Final = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "127.0.0.1:{port}"}
_PLACES: Final = [("plain", 0), ("plain", 1), ("compacted", 0)]
_GROUP: Final = "group"
_RECORDS: Final = 300


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Old:
    """A broker that has had a transactional and an idempotent producer, a group and a user."""
    broker = Broker(tmp_path_factory.mktemp("restored") / "old", _SETTINGS, version=broker_version)
    with broker.running():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic("plain", 2, 1), NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"})]
        make_topics(broker.bootstrap, topics)
        _write(broker)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer", "log_level": 0})
        producer.init_transactions(TIMEOUT_SECONDS)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("compacted", b"value", key=b"key")
            end(TIMEOUT_SECONDS)
        consumer = _member(broker)
        consumer.commit(offsets=[TopicPartition("plain", 0, 7)], asynchronous=False)
        consumer.close()
        user = UserScramCredentialUpsertion(
            "someone", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
        )
        admin.alter_user_scram_credentials([user])["someone"].result(TIMEOUT_SECONDS)
        seen = {level: read(broker.bootstrap, _PLACES, level) for level in ("read_committed", "read_uncommitted")}
    return Old(broker, seen)


@dataclass(frozen=True, slots=True)
class Old:
    """The stopped broker, and what consumers of each isolation level got of it."""

    broker: Broker
    seen: dict[str, dict[tuple[str, int], PartitionRead]]


def _member(broker: Broker) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": _GROUP, "log_level": 0})


def _write(broker: Broker) -> None:
    """A new idempotent producer, whose records all arrive."""
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(_RECORDS):
        producer.produce(
            "plain",
            b"%d" % number,
            partition=number % 2,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert not failed


def _new(old: Broker, directory: Path, *, is_dynamic: bool) -> Broker:
    """A formatted broker at the same address, with the old one's folders."""
    ports = old._port, old._controller_port
    settings = {name: value.format(port=ports[1]) for name, value in _DYNAMIC.items()} if is_dynamic else {}
    options = ["--standalone"] if is_dynamic else []
    new = Broker(directory, {**_SETTINGS, **settings}, version=old.version, ports=ports, format_with=options)
    for path in old.log_dir.iterdir():
        if path.is_dir() and served_as(path.name) is not None:
            shutil.copytree(path, new.log_dir / path.name)
    return new


def _known(old: Broker, controller: FormattedController, *, has_metadata: bool) -> ClusterEvidence:
    directory_id = controller.properties.directory_id
    assert directory_id is not None
    found = []
    for path in sorted(old.log_dir.iterdir()):
        if path.is_dir() and (partition := served_as(path.name)) is not None:
            topic_id = read_topic_id(path)
            assert topic_id is not None
            alone: dict[str, Any] = {"replicas": (1,), "in_sync": (1,), "leader": 1, "directories": (directory_id,)}
            found.append(
                RestoredPartition(
                    topic=partition.topic, topic_id=topic_id, partition=partition.partition, leader_epoch=1, **alone
                )
            )
    return ClusterEvidence(
        surviving=surviving_metadata([old.log_dir]) if has_metadata else None,
        found=found,
        brokers=[1],
        controllers=[controller],
        evidence=LogEvidence(highest_producer_id=1),
    )


def _held(topic: RestoredTopic) -> RestoredTopic:
    """A topic from which nothing is deleted; a proven cleanup policy stays."""
    proven = {config.name: config for config in topic.configs}
    safe = {
        name: RestoredConfig(name=name, value=value, proof=ConfigProof.NOTHING, was=None)
        for name, value in SAFE_CONFIGS.items()
    }
    return replace(topic, configs=tuple((safe | proven).values()))


@pytest.mark.parametrize(("has_metadata", "is_dynamic"), [(True, False), (False, True)])
def test_a_node_serves_what_was_restored(old: Old, tmp_path: Path, *, has_metadata: bool, is_dynamic: bool) -> None:
    """With surviving metadata and with metadata made from folders, in a static and a dynamic quorum."""
    new = _new(old.broker, tmp_path / "new", is_dynamic=is_dynamic)
    controller = read_formatted(new.log_dir)
    assert (controller.voters is not None) == is_dynamic
    known = _known(old.broker, controller, has_metadata=has_metadata)
    cluster = restored_cluster(known)
    cluster = replace(cluster, topics=tuple(map(_held, cluster.topics)))
    assert list(why_cluster_is_not_written(known, cluster)) == []
    write_metadata([controller], cluster_metadata_records(cluster, controller.records))
    with new.running():
        seen = {level: read(new.bootstrap, _PLACES, level) for level in old.seen}
        assert seen == old.seen
        consumer = _member(new)
        [committed] = consumer.committed([TopicPartition("plain", 0)], TIMEOUT_SECONDS)
        consumer.close()
        assert committed.offset == 7
        _write(new)
        after = read(new.bootstrap, _PLACES, "read_uncommitted")
    for place in (("plain", 0), ("plain", 1)):
        assert len(after[place].records) == len(old.seen["read_uncommitted"][place].records) + _RECORDS // 2
    assert not [path for path in new.log_dir.iterdir() if path.name.endswith("-stray")]
    _assert_as_meant(new, cluster)
    if has_metadata:
        assert "UserScramCredentialRecord" in {record.message.name for record in cluster.carried}


def _assert_as_meant(node: Broker, cluster: RestoredCluster) -> None:
    """The metadata that the node wrote itself is that of the cluster, with its own registrations and producer ids."""
    surviving = surviving_metadata([node.log_dir])
    assert surviving is not None
    assert surviving.features == {name: level for name, level in cluster.features.items() if level > 0}
    own = {write_framed(record): record.values.get("name") for record in surviving.carried}
    assert set(map(write_framed, cluster.carried)) <= own.keys()
    assert "min.insync.replicas" in own.values(), "set by a controller that begins with eligible leader replicas"
    assert len(own) == max(1, len(cluster.carried)), "nothing else is set"
    assert surviving.next_producer_id == cluster.next_producer_id + 1_000
    metadata = surviving.metadata
    assert metadata.topics == {topic.name: topic.topic_id for topic in cluster.topics}
    for topic in cluster.topics:
        assert metadata.topic_configs[topic.name] == {config.name: config.value for config in topic.configs}
    assert len(metadata.assignments) == sum(len(topic.partitions) for topic in cluster.topics)
    for topic in cluster.topics:
        for partition in topic.partitions:
            assignment = metadata.assignments[KidxPartition(topic.name, partition.partition)]
            assert (assignment.replicas, assignment.directories) == (partition.replicas, partition.directories)
            assert (assignment.last_leader, assignment.led_epoch) == (partition.leader, partition.leader_epoch + 2)


def test_kafka_reads_every_record(kafka: Kafka, tmp_path: Path, scratch: Path, rng: random.Random) -> None:
    broker = Broker(tmp_path / "broker", {}, version=kafka.version, java_options=JVM_OPTIONS)
    controller = read_formatted(broker.log_dir)
    messages = messages_of(CLUSTER_METADATA, kafka.release).values()
    meant = [
        FramedMessage(message, version, random_values(message, version, rng))
        for message in messages
        for version in range(message.versions.lowest, message.versions.highest + 1)
        for _ in range(20)
    ]
    meant = [record for record in meant if "nan" not in repr(record.values) and "inf" not in repr(record.values)]
    write_metadata([controller], [*controller.records, *meant])
    lines = KafkaDump(kafka, scratch)("--cluster-metadata-decoder", "--files", str(controller.path)).lines
    payloads = [json.loads(line.split(b"payload: ", 1)[1]) for line in lines if b"payload: {" in line]
    assert payloads == [_shown(record) for record in [*controller.records, *meant]]
    assert not [line for line in lines if b"isvalid: false" in line]


def _shown(record: FramedMessage) -> object:
    name = record.message.name.removesuffix("Record")
    kind = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).lstrip("_") + "_RECORD"
    data = json_object(record.message, record.values, record.version)
    return json.loads(json.dumps({"type": kind, "version": record.version, "data": data}))


@pytest.mark.parametrize("options", [(), ("--standalone",)])
def test_formatted_directories(kafka: Kafka, tmp_path: Path, options: Sequence[str]) -> None:
    """What Kafka has written is written again byte for byte, but for the time of the records, which is the header's."""
    settings = {name: value.format(port=9) for name, value in _DYNAMIC.items()} if options else {}
    broker = Broker(
        tmp_path / "broker",
        settings,
        version=kafka.version,
        java_options=JVM_OPTIONS,
        format_with=(*options, "--add-scram", "SCRAM-SHA-256=[name=someone,password=secret]"),
    )
    controller = read_formatted(broker.log_dir)
    assert len(controller.records) == len(controller.features) + 1
    kafkas = [batch for batch in batches(LogFile(str(controller.path))) if not batch.is_control]
    [batch] = kafkas
    values = [write_framed(record) for record in controller.records]
    own = write_batch(values, base_offset=batch.offset_field, leader_epoch=0, timestamp_ms=batch.max_timestamp)
    assert own == controller.content[batch.position : batch.next_position]
    again = controller.content_with(controller.records)
    assert (again[: batch.position], again[batch.next_position :]) == (
        controller.content[: batch.position],
        controller.content[batch.next_position :],
    )
