"""The disk of a broker that had all kinds of work: what of Kafka's own files there is, is on it.

Each run of the tests looks at the one that is kept in `recorded/`; `--exhaustive` makes another one, and `--record`
keeps that.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kidxlib.format import checkpoint_files
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.segment_files import DELETED_SUFFIX, LOG_SUFFIX
from kidxlib.format.topic_partition import REMOTE_INDEX_CACHE, TopicPartition
from kidxlib.log.metadata_image import read_cluster_metadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.storage.log_dir import read_offset_checkpoint
from tests.kafka.crashed import SHORT_SESSION
from tests.kafka.reading import TIMEOUT_SECONDS, Seen, consume_in_group, read_all
from tests.kafka.start_disk import of_nobody
from tests.kafka.traffic import PARTITIONS as OF_TRAFFIC
from tests.kafka.traffic import Traffic, create_topics
from tests.support.kafka.broker import DEADLINE_SECONDS, Broker, free_ports
from tests.support.kafka.classes import Kafka
from tests.support.kafka.clients import JavaClients
from tests.support.kafka.tiered import PARTITIONS as IN_BUCKET
from tests.support.kafka.tiered import fill, tiered_broker, tiered_twin

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
        _delete_records(broker.bootstrap)
        _compact(broker)
        _register_controller(broker, directory / "controller")
    interrupted = [str(max(logs).with_suffix("")) for logs in _logs(broker.log_dir)]
    with broker.running():
        clients = JavaClients(kafka, broker.bootstrap)
        if kafka.release >= KAFKA_4_4:
            clients.unregister_controller(UNREGISTERED)
        fill(broker)
        _make_and_delete_topic(broker.bootstrap)
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
    return Worked(broker, killed, Disk(kafka.version, broker.log_dir, bucket, interrupted, _consumed(seen)))


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


def _consumed(seen: Seen) -> dict[str, dict[str, Consumed]]:
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


def _delete_records(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ClientPartition(topic, partition, offset) for (topic, partition), offset in DELETED.items()]
    for deleted in admin.delete_records(asked).values():
        deleted.result(TIMEOUT_SECONDS)


def _compact(broker: Broker) -> None:
    """Write few keys many times, and wait until the cleaner has been there."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [created] = admin.create_topics([NewTopic(COMPACTED, 1, 1, config=_COMPACTED_TOPIC)]).values()
    created.result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 7})
    rng = random.Random(3)
    for number in range(1500):
        value = None if number % 19 == 0 else rng.randbytes(40)
        producer.produce(COMPACTED, value, b"%d" % rng.randrange(50), 0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    checkpoint, deadline = broker.log_dir / checkpoint_files.CLEANER_CHECKPOINT, time.monotonic()
    while not (read_offset_checkpoint(checkpoint) or {}).get(TopicPartition(COMPACTED, 0)):
        assert time.monotonic() < deadline + DEADLINE_SECONDS, "nothing was cleaned"
        threading.Event().wait(0.1)


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
        _wait_until_registered(broker)
    shutil.rmtree(directory)


def _wait_until_registered(broker: Broker) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while UNREGISTERED not in read_cluster_metadata(broker.log_dir / METADATA_DIRECTORY).to_end.controllers:
        assert time.monotonic() < deadline, "the controller has not registered"
        threading.Event().wait(0.1)


def _make_and_delete_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic("brief", 1, 1)]).values()
    created.result(TIMEOUT_SECONDS)
    [deleted] = admin.delete_topics(["brief"]).values()
    deleted.result(TIMEOUT_SECONDS)
