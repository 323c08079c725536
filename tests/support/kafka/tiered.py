"""A real broker with tiered storage (KIP-405), whose bucket is a directory beside its log dir."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from tests.support.kafka.admin import make_topics, wait_until
from tests.support.kafka.broker import CLUSTER_ID, DEADLINE_SECONDS, Broker
from tests.support.kafka.jars import PROJECT, PROMISED, jars_of
from tests.support.tiered_sites import Site

JARS: Final = PROJECT / ".jars" / "tiered"
METADATA_TOPIC: Final = REMOTE_LOG_METADATA_TOPIC
METADATA_PARTITIONS: Final = 2

#: The settings of a tiered topic: a segment is uploaded when the next one begins.
TIERED_TOPIC: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",  # Kafka's least
    "local.retention.ms": "1000",
    "retention.ms": "-1",
}
#: The same with segments so small that a few are soon written, by a setting of Kafka's own tests.
SMALL_SEGMENTS: Final = {
    **{name: value for name, value in TIERED_TOPIC.items() if name != "segment.bytes"},
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "1024",
    "retention.ms": str(10 * 365 * 24 * 60 * 60 * 1000),
}
#: Settings of a broker whose own topics take little room.
ONE_PARTITION_EACH: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
#: The topics that `fill` makes: one without transactions, and one with some that are committed and some aborted.
PLAIN: Final = "readings"
TRANSACTIONS: Final = "payments"
PARTITIONS: Final = [(PLAIN, 0), (PLAIN, 1), (TRANSACTIONS, 0)]
_BATCHES: Final = 60
_FIRST_MS: Final = 1_760_000_000_000
_PLUGIN: Final = "org.apache.kafka.server.log.remote"
#: The version in `conf/jars/tiered.xml`.
_PLUGIN_OF: Final = "4.3.1"


def tiered_broker(
    directory: Path,
    settings: Mapping[str, object],
    version: str = PROMISED,
    ports: tuple[int, int] | None = None,
    format_with: Sequence[str] = (),
    cluster_id: str = CLUSTER_ID,
) -> Broker:
    """A new `Broker` whose remote segments are in `directory/remote`. What its plugin needs and a later Kafka does not
    have comes from the plugin's Kafka.
    """
    if not JARS.is_dir():
        subprocess.run([PROJECT / "setup.sh", "kafka"], check=True)
    return Broker(
        directory,
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": f"{_PLUGIN}.storage.LocalTieredStorage",
            "rsm.config.dir": directory / "remote",
            "remote.log.metadata.manager.class.name": (
                f"{_PLUGIN}.metadata.storage.TopicBasedRemoteLogMetadataManager"
            ),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
            "rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
            "remote.log.manager.task.interval.ms": 500,
            "log.retention.check.interval.ms": 500,
            "log.initial.task.delay.ms": 500,  # earlier, no segment is rolled by time or deleted
            **settings,
        },
        jars_before=[f"{JARS}/*"],
        jars_behind=[f"{jars_of(_PLUGIN_OF)}/kafka-clients-{_PLUGIN_OF}.jar"],
        version=version,
        ports=ports,
        format_with=format_with,
        cluster_id=cluster_id,
    )


def tiered_twin(broker: Broker, directory: Path) -> Broker:
    """A twin as by `Broker.copy`, with a copy of the bucket, too."""
    twin = broker.copy(directory, {"rsm.config.dir": directory / "remote"})
    shutil.copytree(broker.directory / "remote", directory / "remote")
    return twin


def metadata_records(bootstrap: str) -> Iterator[bytes]:
    """The values of the metadata topic from its beginning on, as they are written, without an end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "metadata", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(METADATA_TOPIC, n, OFFSET_BEGINNING) for n in range(METADATA_PARTITIONS)])
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            if message is None:
                raise TimeoutError(f"{METADATA_TOPIC}: nothing new in {DEADLINE_SECONDS} seconds")
            if (error := message.error()) is not None:
                raise KafkaException(error)
            value = message.value()
            assert value is not None
            yield value
    finally:
        consumer.close()


def fill(broker: Broker, replicas: int = 1) -> None:
    """Make `PLAIN` and `TRANSACTIONS`, write some segments of each, and wait until they are copied. The first segments
    of `TRANSACTIONS` have no transaction, later ones have aborted ones.

    Args:
        broker: one that has a replica of all partitions.
        replicas: of each partition.
    """
    bootstrap = broker.bootstrap
    topics = [
        NewTopic(topic, count, replicas, config=SMALL_SEGMENTS) for topic, count in ((PLAIN, 2), (TRANSACTIONS, 1))
    ]
    make_topics(bootstrap, topics)
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    paid = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "transactional.id": "payer"})
    paid.init_transactions(DEADLINE_SECONDS)
    for number in range(_BATCHES):
        for partition in range(2):
            _write(plain, PLAIN, partition, number)
        if number < _BATCHES // 3:
            _write(plain, TRANSACTIONS, 0, number)
            continue
        paid.begin_transaction()
        _write(paid, TRANSACTIONS, 0, number)
        (paid.abort_transaction if number % 3 == 0 else paid.commit_transaction)(DEADLINE_SECONDS)
    _wait_until_copied(broker)


def write_briefly_kept(broker: Broker, topic: str) -> Iterator[None]:
    """Make a topic that keeps its records for two seconds, and write to it at each step of the iterator."""
    configs = {**SMALL_SEGMENTS, "local.retention.ms": "500", "retention.ms": "2000"}
    make_topics(broker.bootstrap, [NewTopic(topic, 1, 1, config=configs)])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    while True:
        for _ in range(10):
            producer.produce(topic, bytes(2000))
            assert producer.flush(DEADLINE_SECONDS) == 0
        yield


def _write(producer: Producer, topic: str, partition: int, number: int) -> None:
    """Write a batch of five records with different times."""
    for at in range(5 * number, 5 * number + 5):
        value = random.Random(at).randbytes(200)
        producer.produce(topic, value, str(at).encode(), partition, timestamp=_FIRST_MS + at * 1000)
    assert producer.flush(DEADLINE_SECONDS) == 0


def _wait_until_copied(broker: Broker) -> None:
    """Wait until all records are in the bucket, and none in the log dir."""
    directories = [broker.log_dir / f"{topic}-{partition}" for topic, partition in PARTITIONS]
    wait_until(
        lambda: not any(_size(path) for directory in directories for path in directory.glob("*.log")),
        "segments stay in the log dir",
    )


def _size(path: Path) -> int:
    """The size of a file; 0 if it was deleted since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def site_of(broker: Broker, directory: Path) -> Site:
    """A copy of a stopped broker's bucket, with the metadata of remote segments and of the cluster."""
    log_dir = directory / "log-dir"
    log_dir.mkdir(parents=True)
    for path in broker.log_dir.iterdir():
        if path.name.startswith((METADATA_TOPIC, METADATA_DIRECTORY)):
            shutil.copytree(
                path, log_dir / path.name, ignore=shutil.ignore_patterns("*index", "*.snapshot", "*epoch-checkpoint")
            )
    shutil.copy2(broker.log_dir / "meta.properties", log_dir)
    bucket = broker.directory / "remote" / STORAGE_DIRECTORY
    return Site(Path(shutil.copytree(bucket, directory / STORAGE_DIRECTORY)), log_dir)
