"""`kidx dump` decodes the records of Kafka's own topics as `kafka-dump-log` does, be they sound or not."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from kidxlib.format import segment_files
from kidxlib.format.segment_files import segment_file
from kidxlib.messages.definitions import MessageDefinition, messages_of
from kidxlib.messages.interpreter import Values
from kidxlib.messages.interpreter import write_message as message_bytes
from kidxlib.messages.remote_log_metadata import SegmentState, read_remote_log_metadata
from kidxlib.messages.typed_records import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    FramedMessage,
    write_framed,
)
from kidxlib.records.reader import Record
from tests.conftest import Say
from tests.kafka.definitions import TARGET, definitions
from tests.kafka.dumps import assert_as_kafka
from tests.kafka.reading import TIMEOUT_SECONDS, consume_in_group
from tests.support.kafka.admin import delete_topic, make_topics, set_config
from tests.support.kafka.broker import Broker
from tests.support.kafka.dump import KafkaDump
from tests.support.kafka.jars import PROMISED
from tests.support.kafka.tiered import METADATA_TOPIC, TIERED_TOPIC, metadata_records, tiered_broker
from tests.support.logs import encoded
from tests.support.messages import random_values

_OFFSETS: Final = "--offsets-decoder"
_TRANSACTIONS: Final = "--transaction-log-decoder"
_METADATA: Final = "--cluster-metadata-decoder"
_REMOTE: Final = "--remote-log-metadata-decoder"
_SHARES: Final = "--share-group-state-decoder"
_DECODERS: Final = (_OFFSETS, _TRANSACTIONS, _METADATA, _REMOTE, _SHARES)
_CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
_SETTINGS: Final = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "metadata.log.max.snapshot.interval.ms": 500,
}


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Path:
    """Of a broker that has had consumer groups, transactions, configs of all kinds, and a topic that was deleted."""
    broker = Broker(tmp_path_factory.mktemp("decoders") / "broker", _SETTINGS, version=broker_version)
    with broker.running():
        make_topics(
            broker.bootstrap, [NewTopic(name, 2, 1, config={"retention.ms": "-1"}) for name in ("kept", "deleted")]
        )
        _write(broker.bootstrap)
        for protocol in ("classic", "consumer"):
            consume_in_group(broker.bootstrap, "kept", protocol)
        _change_configs(broker)
        delete_topic(broker.bootstrap, "deleted")
    return broker.log_dir


def _write(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(TIMEOUT_SECONDS)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(4):
            producer.produce("kept", b"value", partition=number % 2)
        end(TIMEOUT_SECONDS)


def _change_configs(broker: Broker) -> None:
    """Of a topic, set and taken away, of a broker and of all, and of clients and users."""
    set_config(broker.bootstrap, "kept", {"index.interval.bytes": 512})
    set_config(broker.bootstrap, "kept", {"retention.ms": None})
    set_config(broker.bootstrap, "1", {"log.retention.ms": 3_600_000}, ResourceType.BROKER)
    for entity, change in (
        (("--broker-defaults",), "log.index.interval.bytes=2048"),
        (("--client", "client-1"), "request_percentage=12.5"),
        (("--user", "someone"), "SCRAM-SHA-256=[iterations=4096,password=secret]"),
    ):
        broker.run_tool(_CONFIGS, "--bootstrap-server", broker.bootstrap, *entity, "--alter", "--add-config", change)


def _files(directory: Path) -> Iterator[tuple[Path, str]]:
    """The logs and snapshots of Kafka's own topics, each with the option of its decoder."""
    for topic, option in (
        ("__consumer_offsets", _OFFSETS),
        ("__transaction_state", _TRANSACTIONS),
        ("__cluster_metadata", _METADATA),
    ):
        for suffix in (segment_files.LOG_SUFFIX, segment_files.KRAFT_SNAPSHOT_SUFFIX):
            for path in sorted((directory / f"{topic}-0").glob(f"*{suffix}")):
                yield path, option
    if (bootstrap := directory / segment_files.BOOTSTRAP_SNAPSHOT).exists():  # written before 4.4
        yield bootstrap, _METADATA


def test_topics_of_a_broker(kafka_dump: KafkaDump, log_dir: Path, scratch: Path) -> None:
    shown = b""
    for path, option in _files(log_dir):
        copy = Path(shutil.copy(path, scratch))
        assert assert_as_kafka(kafka_dump, copy, (option,)) == "well", path
        shown += b"\n".join(kafka_dump(option, "--files", str(copy)).lines)
        assert assert_as_kafka(kafka_dump, copy, (option, "--skip-record-metadata")) == "well", path
        copy.unlink()
    for said in (
        *(b'"subscription":{"topics":["kept"]', b'"assignmentEpochs"', b"<DELETE>", b'"transactionalId":"writer"'),
        *(b'"CONFIG_RECORD"', b'"name":"log.index.interval.bytes","value":"2048"', b'"value":12.5', b"SCRAM"),
        *(b'"REMOVE_TOPIC_RECORD"', b"Snapshot end offset: ", b"SnapshotFooter"),
    ):
        assert said in shown


def test_remote_log_metadata_of_a_broker(
    kafka_dump: KafkaDump, broker_version: str, tmp_path: Path, scratch: Path
) -> None:
    """Segments that were uploaded and then deleted with their topic, and those of a topic that stays."""
    broker = tiered_broker(tmp_path / "broker", {}, broker_version)
    with broker.running():
        make_topics(broker.bootstrap, [NewTopic(name, 1, 1, config=TIERED_TOPIC) for name in ("kept", "deleted")])
        _fill_segments(broker.bootstrap)
        written = map(read_remote_log_metadata, metadata_records(broker.bootstrap))
        states = Counter(metadata.state for _, metadata in islice(written, 8))  # two segments of each are copied
        delete_topic(broker.bootstrap, "deleted")
        while states[SegmentState.DELETE_SEGMENT_FINISHED] < 2:
            states[next(written)[1].state] += 1
    assert states.keys() == set(SegmentState), states
    shown = 0
    for log in sorted(broker.log_dir.glob(f"{METADATA_TOPIC}-*/*{segment_files.LOG_SUFFIX}")):
        assert assert_as_kafka(kafka_dump, Path(shutil.copy(log, scratch)), (_REMOTE,)) == "well"
        shown += sum(b"payload: Remote" in line for line in kafka_dump(_REMOTE, "--files", str(log)).lines)
    assert shown >= states.total()  # the broker may have copied a further segment since the last one was read


def _fill_segments(bootstrap: str) -> None:
    """Two whole segments of each topic, and the beginning of a third."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 65_536})
    for number in range(36):
        for topic in ("kept", "deleted"):
            producer.produce(topic, random.Random(number).randbytes(60_000))
    assert producer.flush(TIMEOUT_SECONDS) == 0


@pytest.mark.parametrize("option", _DECODERS)
def test_records_of_another_topic(kafka_dump: KafkaDump, log_dir: Path, scratch: Path, option: str) -> None:
    """Kafka says of each what keeps it from being read, or throws where there is no key."""
    for path, own in _files(log_dir):
        if own != option:
            assert_as_kafka(kafka_dump, Path(shutil.copy(path, scratch)), (option,))


@pytest.mark.parametrize("option", _DECODERS)
def test_random_messages(
    kafka_dump: KafkaDump, scratch: Path, rng: random.Random, say: Say, exhaustive: bool, option: str
) -> None:
    """Every message in every version with random values; three in ten with random changes of their bytes."""
    read = 0
    for _ in range(100 if exhaustive else 3):
        records = [Record(offset, 1, *_RANDOM[option](rng)) for offset in range(1000 if exhaustive else 250)]
        log = scratch / segment_file(0, segment_files.LOG_SUFFIX)
        log.write_bytes(encoded.batch_v2(records))
        try:
            assert_as_kafka(kafka_dump, log, (option,))
        except AssertionError as error:
            error.add_note(str(shutil.copy(log, kafka_dump.scratch / f"{option}.log")))
            raise
        read += len(records)
    say(f"{option}: {read} records as Kafka's")


def _random_coordinator_record(module: str, rng: random.Random) -> tuple[bytes, bytes | None]:
    messages = list(messages_of(module).values())
    key = rng.choice([message for message in messages if message.kind == "coordinator-key"])
    [value] = (each for each in messages if each.kind == "coordinator-value" and each.api_key == key.api_key)
    assert key.api_key is not None
    version = _random_version(value, rng)
    values = random_values(value, version, rng)
    if value.name == "GroupMetadataValue" and rng.random() < 0.7:
        values = _with_consumers(values, rng)
    key_bytes = _int16(key.api_key) + message_bytes(key, random_values(key, 0, rng), 0)
    value_bytes = _int16(version) + message_bytes(value, values, version)
    if rng.random() < 0.1:
        return key_bytes, None
    return _perhaps_changed(key_bytes, rng), _perhaps_changed(value_bytes, rng)


def _with_consumers(values: Values, rng: random.Random) -> Values:
    """The same group, of consumers that say what they subscribe to and what is assigned to them."""
    clients = messages_of("kafka-clients")

    def said(name: str) -> bytes:
        message = clients[name]
        version = _random_version(message, rng)
        return _perhaps_changed(
            _int16(version) + message_bytes(message, random_values(message, version, rng), version), rng
        )

    subscriptions = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
    members = [member | {field: said(name) for field, name in subscriptions.items()} for member in values["members"]]
    return values | {"protocolType": "consumer", "members": members}


def _random_framed_record(module: str, rng: random.Random) -> tuple[None, bytes | None]:
    message = rng.choice([each for each in messages_of(module).values() if each.api_key is not None])
    version = _random_version(message, rng)
    values = random_values(message, version, rng)
    if module == REMOTE_LOG_METADATA and rng.random() < 0.8:
        values = _plausible(values, rng)
    return None, _perhaps_changed(write_framed(FramedMessage(message, version, values)), rng)


def _plausible(values: Values, rng: random.Random) -> Values:
    """With states that there are, and offsets in order."""
    start = rng.randrange(100)
    right: dict[str, Any] = {
        "remoteLogSegmentState": rng.randrange(4),
        "remotePartitionDeleteState": rng.randrange(3),
        "startOffset": start,
        "endOffset": start + rng.randrange(3),
        "segmentLeaderEpochs": [
            {"leaderEpoch": rng.randrange(5), "offset": rng.randrange(100)} for _ in range(rng.randrange(1, 5))
        ],
    }
    return values | {name: value for name, value in right.items() if name in values}


def _random_version(message: MessageDefinition, rng: random.Random) -> int:
    return rng.randint(message.versions.lowest, message.versions.highest)


def _perhaps_changed(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.7:
        return data
    changed = bytearray(data)
    match rng.randrange(5):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            return data + rng.randbytes(rng.randrange(1, 4))
        case 2:
            at = rng.randrange(len(data))
            changed[at:at] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xff" * 5, b"\0", b"\xff"))
        case 3:
            return rng.randbytes(rng.randrange(20))
        case _:
            for _ in range(rng.randrange(1, 4)):
                changed[min(rng.randrange(len(data)), rng.randrange(len(data)))] = rng.choice((0, 1, 2, 127, 128, 255))
    return bytes(changed)


def _int16(value: int) -> bytes:
    return value.to_bytes(2, signed=True)


_RANDOM: Final[dict[str, Callable[[random.Random], tuple[bytes | None, bytes | None]]]] = {
    _OFFSETS: lambda rng: _random_coordinator_record(CONSUMER_OFFSETS, rng),
    _TRANSACTIONS: lambda rng: _random_coordinator_record(TRANSACTION_STATE, rng),
    _SHARES: lambda rng: _random_coordinator_record(SHARE_GROUP_STATE, rng),
    _METADATA: lambda rng: _random_framed_record(CLUSTER_METADATA, rng),
    _REMOTE: lambda rng: _random_framed_record(REMOTE_LOG_METADATA, rng),
}


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("option", _DECODERS)
def test_keys_and_values_that_are_null(kafka_dump: KafkaDump, scratch: Path, option: str, magic: int) -> None:
    """Where there is no key, Kafka throws: nothing of the record's contents is shown, and nothing after it."""
    log = scratch / segment_file(0, segment_files.LOG_SUFFIX)
    for key, value in ((b"", None), (b"\0", b""), (b"\0\1", None), (None, b"\1"), (None, None)):
        records = [Record(0, 1, key, value), Record(1, 1, b"\0\2\0\1g", None)]
        log.write_bytes(_log(records, magic))
        for options in ((option,), (option, "--skip-record-metadata")):
            assert_as_kafka(kafka_dump, log, options)


def _log(records: Sequence[Record], magic: int) -> bytes:
    if magic == 2:
        return encoded.batch_v2(records)
    return b"".join(encoded.message(record, magic) for record in records)


def test_made_anew_they_are_the_same() -> None:
    assert TARGET.read_text() == definitions()
    assert json.loads(TARGET.read_text())["kafka"] == PROMISED
