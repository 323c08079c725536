"""The disk of a broker that had all kinds of work: transactions, some open; topics compacted, tiered, deleted; records
deleted; groups of all kinds; a controller that was unregistered. No command says a false word of it, and what is made
of it is what the broker, its consumers and its tools have made.

Each run looks at a disk of the promised Kafka that is kept; `--exhaustive` lets brokers of both work, and starts them
again on what `kidx recover` has made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import socket
import struct
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.audit.startup.metadata_log import metadata_at_start
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT, LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.segment_files import DELETED_SUFFIX, LOG_SUFFIX
from kidxlib.format.topic_partition import REMOTE_INDEX_CACHE, TopicPartition
from kidxlib.log.metadata_image import read_cluster_metadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.processes import kidx
from tests.kafka.crashed import INDEX_SUFFIXES, SHORT_SESSION, read_again
from tests.kafka.dumps import assert_as_kafka
from tests.kafka.reading import TIMEOUT_SECONDS, Seen, consume_in_group, read_all, wait_until_read
from tests.kafka.start_disk import of_nobody
from tests.kafka.traffic import PARTITIONS as OF_TRAFFIC
from tests.kafka.traffic import Traffic, create_topics
from tests.support.kafka.admin import delete_records, delete_topic, make_topics, wait_until
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker, free_ports
from tests.support.kafka.classes import Kafka
from tests.support.kafka.dump import KafkaDump
from tests.support.kafka.jars import BESIDE, PROMISED, release_of
from tests.support.kafka.tiered import METADATA_TOPIC, fill, tiered_broker, tiered_twin
from tests.support.kafka.tiered import PARTITIONS as IN_BUCKET
from tests.support.logs.snapshots import producers_in

_CLIENTS: Final = "org.apache.kafka.clients"
_MESSAGES: Final = "org.apache.kafka.common.message"
_REQUESTS: Final = "org.apache.kafka.common.requests"


class JavaClients:
    """Clients in a JVM that has Kafka's classes, of the version of these."""

    def __init__(self, kafka: Kafka, bootstrap: str) -> None:
        self._kafka, self._java, self._bootstrap = kafka, kafka.gateway.jvm.java, bootstrap

    def consume_as_share_group(self, group: str, topic: str, least: int) -> None:
        """Let a share group take at least so many records, from the earliest on, and acknowledge them (KIP-932)."""
        self._set_config_of_group(group, "share.auto.offset.reset", "earliest")
        deserializer = self._kafka.find("org.apache.kafka.common.serialization.ByteArrayDeserializer")
        consumer = self._kafka.find(f"{_CLIENTS}.consumer.KafkaShareConsumer")(
            self._settings({"group.id": group}), deserializer(), deserializer()
        )
        try:
            consumer.subscribe(self._list(topic))
            taken, deadline = 0, time.monotonic() + DEADLINE_SECONDS
            while taken < least:
                assert time.monotonic() < deadline, f"share group {group}: {taken} records, expected {least}"
                taken += consumer.poll(self._java.time.Duration.ofMillis(500)).count()
            consumer.commitSync()
        finally:
            consumer.close()

    def join_streams_group(self, group: str, topic: str) -> None:
        """Let one member join a streams group that reads a topic (KIP-1071)."""
        data = self._kafka.find(f"{_MESSAGES}.StreamsGroupHeartbeatRequestData")
        kind = f"{_MESSAGES}.StreamsGroupHeartbeatRequestData$"
        subtopology = self._kafka.find(f"{kind}Subtopology")().setSubtopologyId("0").setSourceTopics(self._list(topic))
        topology = self._kafka.find(f"{kind}Topology")().setEpoch(1).setSubtopologies(self._list(subtopology))
        asked = data().setGroupId(group).setMemberId("AAAAAAAAAAAAAAAAAAAAAQ").setMemberEpoch(0)
        asked.setRebalanceTimeoutMs(60_000).setTopology(topology).setProcessId("process")
        for tasks in (asked.setActiveTasks, asked.setStandbyTasks, asked.setWarmupTasks, asked.setClientTags):
            tasks(self._list())
        request = self._kafka.find(f"{_REQUESTS}.StreamsGroupHeartbeatRequest$Builder")(asked).build()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (error := self._error_of(request)) != 0:  # the coordinator may still be loading
            assert time.monotonic() < deadline, f"streams group {group}: error {error}"
            threading.Event().wait(0.2)

    def unregister_controller(self, node_id: int) -> None:
        """As `kafka-cluster` does; since Kafka 4.4."""
        with self._admin() as admin:
            admin.unregisterController(node_id).all().get()

    def _set_config_of_group(self, group: str, name: str, value: str) -> None:
        resource = self._kafka.find("org.apache.kafka.common.config.ConfigResource")
        kind = self._kafka.find("org.apache.kafka.common.config.ConfigResource$Type")
        operation = self._kafka.find(f"{_CLIENTS}.admin.AlterConfigOp$OpType")
        entry = self._kafka.find(f"{_CLIENTS}.admin.ConfigEntry")(name, value)
        change = self._kafka.find(f"{_CLIENTS}.admin.AlterConfigOp")(entry, operation.SET)
        changes = self._java.util.HashMap()
        changes.put(resource(kind.GROUP, group), self._list(change))
        with self._admin() as admin:
            admin.incrementalAlterConfigs(changes).all().get()

    def _error_of(self, request: Any) -> int:
        """Send a request, and return the error's number in the answer, which is its first field after the throttling
        time.
        """
        version, kind = request.version(), request.apiKey()
        header = self._kafka.find(f"{_REQUESTS}.RequestHeader")(kind, version, "test", 1)
        buffer = request.serializeWithHeader(header)
        content = bytes(buffer.array())[: buffer.limit()]
        host, _, port = self._bootstrap.partition(":")
        with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as connection:
            connection.sendall(struct.pack(">i", len(content)) + content)
            with connection.makefile("rb") as answers:
                answer = answers.read(struct.unpack(">i", answers.read(4))[0])
        _correlation, _tags, _throttled, error = struct.unpack_from(">ibih", answer)
        return int(error)

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        admin = self._kafka.find(f"{_CLIENTS}.admin.Admin").create(self._settings({}))
        try:
            yield admin
        finally:
            admin.close()

    def _settings(self, more: Mapping[str, str]) -> Any:
        settings = self._java.util.Properties()
        for name, value in {"bootstrap.servers": self._bootstrap, **more}.items():
            settings.put(name, value)
        return settings

    def _list(self, *items: Any) -> Any:
        made = self._java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


COMPACTED: Final = "compacted"
#: Partitions whose records are in the log dir.
LOCAL: Final = [*OF_TRAFFIC, (COMPACTED, 0)]
#: Up to where the records of partitions are deleted, within a segment.
DELETED: Final = {("plain", 0): 51, ("transactions", 1): 37}

_SETTINGS: Final = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 200,
    **SHORT_SESSION,
}
_COMPACTED_TOPIC: Final = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
}
_STEPS: Final = 150
#: Which transactional producer has a transaction open over the restart, and which in the end.
_OPEN_OVER_RESTART: Final = 3
_LEFT_OPEN: Final = 2
#: In the archive, beside the log dir and the bucket.
_KEPT: Final = "about.json"
#: A controller that came, went, and was unregistered.
UNREGISTERED: Final = 7


@dataclass(frozen=True, slots=True)
class Disk:
    """What a broker has left that was cleanly stopped.

    Attributes:
        version: of its Kafka.
        interrupted: the segments that were active when it was restarted, as `<directory>/<base offset>`.
        consumed: by isolation and partition, what consumers had got, of `LOCAL` and `IN_BUCKET`.
    """

    version: str
    log_dir: Path
    bucket: Path
    interrupted: Sequence[str]
    consumed: Mapping[str, Mapping[str, Consumed]]


@dataclass(frozen=True, slots=True)
class Worked:
    """A broker after its work, cleanly stopped, and a twin of it that worked on and was killed."""

    broker: Broker
    killed: Broker
    disk: Disk


class Consumed(NamedTuple):
    """The records of a partition: their number, the offset behind the last, and a digest of all."""

    records: int
    end: int
    digest: str

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, bytes | None, bytes | None]], end: int) -> Consumed:
        """From offsets, timestamps in ms, keys and values."""
        digest, count = hashlib.sha256(), 0
        for row in rows:
            digest.update(repr(row).encode())
            count += 1
        return cls(count, end, digest.hexdigest())


def worked(directory: Path, kafka: Kafka) -> Worked:
    """Let a broker of Kafka's version work in `directory`: in two runs, of which the first ends amid a transaction."""
    broker = _dynamic_quorum(directory / "broker", kafka.version)
    with broker.running():
        create_topics(broker.bootstrap)
        traffic = Traffic(broker.bootstrap, seed=5)
        traffic.run(_STEPS)
        traffic.end_transactions(but=_OPEN_OVER_RESTART)
        delete_records(broker.bootstrap, DELETED)
        _compact(broker)
        _register_controller(broker, directory / "controller")
    interrupted = [str(max(logs).with_suffix("")) for logs in _logs(broker.log_dir)]
    with broker.running():
        clients = JavaClients(kafka, broker.bootstrap)
        if kafka.release >= KAFKA_4_4:
            clients.unregister_controller(UNREGISTERED)
        fill(broker)
        make_topics(broker.bootstrap, [NewTopic("brief", 1, 1)])
        delete_topic(broker.bootstrap, "brief")
        for protocol in ("classic", "consumer"):
            consume_in_group(broker.bootstrap, "plain", protocol)
        clients.consume_as_share_group("sharers", "plain", least=20)
        clients.join_streams_group("flow", "plain")
        traffic.run(_STEPS)
        traffic.end_transactions(but=_LEFT_OPEN)
        seen = read_all(broker.bootstrap, [*LOCAL, *IN_BUCKET])
    killed = tiered_twin(broker, directory / "killed")
    with killed.running_until_killed():
        traffic.run(_STEPS)
        traffic.end_transactions(but=_LEFT_OPEN)
    bucket = broker.directory / "remote" / STORAGE_DIRECTORY
    return Worked(broker, killed, Disk(kafka.version, broker.log_dir, bucket, interrupted, _consumed_of(seen)))


def unpack(directory: Path, version: str) -> Disk:
    """The disk that is kept."""
    with tarfile.open(_archive(version)) as archive:
        archive.extractall(directory, filter="data")
    kept = json.loads((directory / _KEPT).read_text())
    consumed = {
        isolation: {name: Consumed(*found) for name, found in of_isolation.items()}
        for isolation, of_isolation in kept["consumed"].items()
    }
    return Disk(version, directory / "data", directory / STORAGE_DIRECTORY, kept["interrupted"], consumed)


def keep(disk: Disk) -> None:
    """Archive a disk, without files that only wait to be deleted."""
    kept = {"interrupted": disk.interrupted, "consumed": disk.consumed}
    with tempfile.TemporaryDirectory() as directory, tarfile.open(_archive(disk.version), "w:xz") as archive:
        about = Path(directory, _KEPT)
        about.write_text(json.dumps(kept))
        for path, name in ((disk.log_dir, "data"), (disk.bucket, STORAGE_DIRECTORY), (about, _KEPT)):
            archive.add(path, name, filter=_kept_entry)


def _archive(version: str) -> Path:
    return Path(__file__).parent / "recorded" / f"live-disk-{version}.tar.xz"


def _kept_entry(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(entry.name).name
    is_left_out = name in (".lock", REMOTE_INDEX_CACHE) or name.endswith((DELETED_SUFFIX, "-delete"))
    return None if is_left_out else of_nobody(entry)


def _logs(log_dir: Path) -> Iterator[list[Path]]:
    """The logs of each partition, relative to the log dir."""
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        if logs := sorted(log.relative_to(log_dir) for log in directory.glob(f"*{LOG_SUFFIX}")):
            yield logs


def _consumed_of(seen: Seen) -> dict[str, dict[str, Consumed]]:
    return {
        isolation: {
            f"{topic}-{partition}": Consumed.of(
                ((each.offset, each.timestamp[1], each.key, each.value) for each in read.records), read.end
            )
            for (topic, partition), read in of_isolation.items()
        }
        for isolation, of_isolation in (("read_uncommitted", seen.uncommitted), ("read_committed", seen.committed))
    }


def _dynamic_quorum(directory: Path, version: str) -> Broker:
    """A broker with a bucket whose controllers are in records (KIP-853), so that others can come and go."""
    ports = free_ports(2)
    voters = {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[1]}"}
    return tiered_broker(
        directory, {**_SETTINGS, **voters}, version, (ports[0], ports[1]), format_with=("--standalone",)
    )


def _compact(broker: Broker) -> None:
    """Write few keys many times, and wait until the cleaner has been there."""
    make_topics(broker.bootstrap, [NewTopic(COMPACTED, 1, 1, config=_COMPACTED_TOPIC)])
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 7})
    rng = random.Random(3)
    for number in range(1500):
        value = None if number % 19 == 0 else rng.randbytes(40)
        producer.produce(COMPACTED, value, b"%d" % rng.randrange(50), 0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    checkpoint, place = broker.log_dir / checkpoint_files.CLEANER_CHECKPOINT, TopicPartition(COMPACTED, 0)
    wait_until(lambda: bool((read_offset_checkpoint(checkpoint) or {}).get(place)), "nothing was cleaned")


def _register_controller(broker: Broker, directory: Path) -> None:
    """Let another controller join as an observer, and go."""
    [port] = free_ports(1)
    address = f"CONTROLLER://127.0.0.1:{port}"
    settings = {
        "process.roles": "controller",
        "node.id": UNREGISTERED,
        "controller.quorum.voters": None,
        "controller.quorum.bootstrap.servers": broker.controller,
        "listeners": address,
        "advertised.listeners": address,
    }
    controller = Broker(directory, settings, version=broker.version, format_with=("--no-initial-controllers",))
    with controller.running():
        metadata = broker.log_dir / METADATA_DIRECTORY
        wait_until(
            lambda: UNREGISTERED in read_cluster_metadata(metadata).to_end.controllers,
            "the controller has not registered",
        )
    shutil.rmtree(directory)


_DECODERS: Final = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    METADATA_TOPIC: "--remote-log-metadata-decoder",
}
#: What consumers get is compared as these.
_ROW: Final = ("offset", "timestamp", "key", "value")


@pytest.fixture(scope="module")
def live(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, broker_version: str
) -> Worked | None:
    """Brokers that have worked; None where the kept disk stands for them. `--record` keeps their disk."""
    exhaustive, record = (bool(request.config.getoption(option)) for option in ("--exhaustive", "--record"))
    if not exhaustive and not record:
        return None
    done = worked(tmp_path_factory.mktemp("live"), kafka)
    if record and broker_version == PROMISED:
        keep(done.disk)
    return done


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, live: Worked | None, broker_version: str) -> Disk:
    if live is not None:
        return live.disk
    if broker_version != PROMISED:
        pytest.skip(f"no disk of Kafka {broker_version} is kept; --exhaustive makes one")
    return unpack(tmp_path_factory.mktemp("kept"), broker_version)


def test_it_has_all_of_that(disk: Disk) -> None:
    """Else the other tests show little."""
    metadata = metadata_at_start(disk.log_dir / METADATA_DIRECTORY)
    assert metadata is not None and metadata.topics.keys() >= {*_DECODERS} - {"__cluster_metadata"}
    is_newer = release_of(disk.version) >= KAFKA_4_4
    assert (KAFKA_4_4 in {record.since for record in metadata.newer_records}) == is_newer
    assert (UNREGISTERED in metadata.controllers) != is_newer
    starts = read_offset_checkpoint(disk.log_dir / LOG_START_OFFSET_CHECKPOINT) or {}
    assert {place: starts[TopicPartition(*place)] for place in DELETED} == DELETED
    cleaned = read_offset_checkpoint(disk.log_dir / CLEANER_CHECKPOINT) or {}
    assert cleaned[TopicPartition("compacted", 0)] > 1000
    committed, uncommitted = (disk.consumed[isolation] for isolation in ("read_committed", "read_uncommitted"))
    is_open = [name for name in committed if committed[name].end < uncommitted[name].end]
    assert is_open and {name.rpartition("-")[0] for name in is_open} == {"transactions"}
    assert list(disk.log_dir.glob(f"*/*{segment_files.TRANSACTION_INDEX_SUFFIX}"))


def test_nothing_is_wrong_with_it(disk: Disk) -> None:
    found = kidx("verify", disk.log_dir, "--deep-iteration", "--json")
    assert (found.code, found.err) == (0, ""), found.err
    assert {each["verdict"] for each in found.json["files"]} == {"whole", "identical", "safe"}
    assert not found.json["not_compared"] and not found.json["log_dir_failures"]
    for level in ("listing", "indexes", "full"):
        of_bucket = ("verify-tiered", disk.bucket, "--tiered-metadata", disk.log_dir, "--level", level, "--json")
        tiered = kidx(*of_bucket)
        assert (tiered.code, tiered.json["findings"]) == (0, []), tiered
        assert tiered.json["segments"]["COPY_SEGMENT_FINISHED"]["segments"] > 10


def test_what_another_kafka_would_do_is_told(disk: Disk) -> None:
    """A node of 4.3 ends over a controller that was unregistered, and over a `metadata.version` of 4.4."""
    is_newer = release_of(disk.version) >= KAFKA_4_4
    for version in (PROMISED, BESIDE):
        found = kidx("verify", disk.log_dir, "--kafka-version", version)
        is_refused = is_newer and version == BESIDE
        assert (found.code == ExitCode.PROBLEMS_FOUND) == is_refused, found
        assert ("which Kafka knows since 4.4; Kafka 4.3, as --kafka-version says" in found.out) == is_refused


def test_files_are_rebuilt_byte_for_byte(disk: Disk, tmp_path: Path) -> None:
    """Index files where the broker was not restarted within the segment, where it counted the interval from zero;
    transaction indexes of all; snapshots and epochs as far as records tell them.
    """
    built = kidx("build", disk.log_dir, "--index-dir", tmp_path, "--snapshots", "--epochs")
    assert built.code == 0, built
    compared = 0
    for path in _files(disk, INDEX_SUFFIXES):
        name = path.relative_to(disk.log_dir)
        if str(name.with_suffix("")) in disk.interrupted and path.suffix != segment_files.TRANSACTION_INDEX_SUFFIX:
            continue
        assert (tmp_path / name).read_bytes() == path.read_bytes(), name
        compared += 1
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob(f"*{segment_files.TRANSACTION_INDEX_SUFFIX}")}
    assert made == {path.relative_to(disk.log_dir) for path in _files(disk, (segment_files.TRANSACTION_INDEX_SUFFIX,))}
    assert compared > 80
    # A first log has no state before it: where that is in the bucket, no snapshot of it is made.
    snapshots = [path for path in tmp_path.rglob(f"*{segment_files.SNAPSHOT_SUFFIX}")]
    for path in snapshots:
        theirs = producers_in((disk.log_dir / path.relative_to(tmp_path)).read_bytes())
        assert theirs <= producers_in(path.read_bytes()), path  # a broker forgets producers after a day
    assert len(snapshots) > 30
    epochs = [directory / LEADER_EPOCH_CHECKPOINT for directory in _partitions(disk)]
    same = {
        path.parent.name
        for path in epochs
        if (tmp_path / path.parent.name / path.name).read_bytes() == path.read_bytes()
    }
    # By batches, the first epoch begins before the records that were deleted; a broker that loads the file cuts it.
    unlike = {*DELETED, ("compacted", 0)}
    assert {f"{topic}-{partition}" for topic, partition in LOCAL if (topic, partition) not in unlike} <= same


def _files(disk: Disk, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for directory in _partitions(disk):
        yield from (path for path in sorted(directory.iterdir()) if path.suffix in suffixes)


def _partitions(disk: Disk) -> list[Path]:
    """The directories of partitions, without those that wait to be deleted."""
    return [path.parent for path in sorted(disk.log_dir.glob("*/partition.metadata")) if path.parent.suffix == ""]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_an_export_has_what_consumers_got(disk: Disk, isolation: str, tmp_path: Path) -> None:
    consumed = disk.consumed[isolation]
    found = {}
    for number, (place, partitions, more) in enumerate(
        ((disk.log_dir, LOCAL, ()), (disk.bucket, IN_BUCKET, ("--tiered-metadata", disk.log_dir)))
    ):
        output = tmp_path / f"{number}.parquet"
        topics = "|".join(sorted({topic for topic, _ in partitions}))
        asked = ("export", place, "--output", output, "--topics", topics, "--isolation", isolation, *more)
        exported = kidx(*asked)
        assert exported.code == 0, exported
        table = pq.read_table(output)
        table = table.set_column(
            table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
        )
        for topic, partition in partitions:
            name = f"{topic}-{partition}"
            found[name] = _consumed(table, topic, partition, consumed[name].end)
    assert found == consumed


def _consumed(table: pa.Table, topic: str, partition: int, end: int) -> Consumed:
    rows = (
        tuple(row[name] for name in _ROW)
        for row in table.select(["topic", "partition", *_ROW]).to_pylist()
        if (row["topic"], row["partition"]) == (topic, partition)
    )
    return Consumed.of(rows, end)


def test_it_is_dumped_and_decoded_as_kafkas_own_tool_does(disk: Disk, kafka_dump: KafkaDump, tmp_path: Path) -> None:
    copy, shown, dumped = tmp_path / "copy", b"", 0
    for directory in _partitions(disk):
        shutil.copytree(directory, copy)
        decoder = _DECODERS.get(directory.name.rpartition("-")[0])
        for path in sorted(copy.iterdir()):
            if path.suffix in (".log", ".checkpoint"):
                options: tuple[str, ...] = ("--deep-iteration",) if decoder is None else (decoder,)
            elif path.suffix in (*INDEX_SUFFIXES, ".snapshot"):
                options = ()
            else:
                continue
            assert_as_kafka(kafka_dump, path, options)
            if decoder is not None and options:
                shown += b"\n".join(kafka_dump(decoder, "--files", str(path)).lines)
            dumped += 1
        shutil.rmtree(copy)
    assert dumped > 150
    is_newer = release_of(disk.version) >= KAFKA_4_4
    for said, is_said in (
        (b'"groupId":"flow"', True),
        (b'"groupId":"sharers"', True),
        (b"RemoteLogSegmentMetadata", True),
        (b'"UNREGISTER_CONTROLLER_RECORD"', is_newer),
        (b'"transactionStatus":"Ongoing"', is_newer),
        (b'"transactionStatus":1', not is_newer),
    ):
        assert (said in shown) == is_said, said


@pytest.mark.exhaustive("starts brokers on the disk of one that was killed")
@pytest.mark.parametrize("level", ["checkpoint", "marker"])
def test_a_killed_twin_is_recovered(live: Worked | None, level: str, tmp_path: Path) -> None:
    assert live is not None
    alone, ours = (tiered_twin(live.killed, tmp_path / name) for name in ("alone", "ours"))
    recovered = kidx("recover", ours.log_dir, "--apply", "--level", level, "--json")
    assert recovered.code == 0 and recovered.json["applied"], recovered
    assert recovered.json["start_bytes_now"] < recovered.json["start_bytes"] / 3
    assert kidx("verify", ours.log_dir, "--json").code == 0
    (by_itself, read_again, skips), (of_ours, read_of_ours, skips_ours) = map(_started, (alone, ours))
    assert of_ours.differences(by_itself) == []
    assert (skips, skips_ours) == (0, int(level == "marker")) and sum(read_again.values()) > sum(read_of_ours.values())
    assert max(read_of_ours.values(), default=0) <= (level == "checkpoint")


def _started(broker: Broker) -> tuple[Seen, dict[str, int], int]:
    """What consumers get, how many segments of each partition the broker has read again, and in how many log dirs it
    has found a clean stop.
    """
    with broker.running() as run:
        wait_until_read(broker.bootstrap, IN_BUCKET)
        seen = read_all(broker.bootstrap, [*LOCAL, *IN_BUCKET])
    return seen, *read_again(run)
