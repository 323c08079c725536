"""A killed broker's disk with many partitions: compacted, tiered, preallocated ones, and some with large indexes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.checkpoint_files import CLEANER_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.records.reader import Record
from kidxlib.storage.log_dir import read_offset_checkpoint
from tests.kafka.crashed import SHORT_SESSION
from tests.kafka.disk_damages import DAMAGES, Damage
from tests.kafka.produce import NONE, connected
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.broker import Broker
from tests.support.kafka.tiered import ONE_PARTITION_EACH, set_config, tiered_broker
from tests.support.logs import encoded

#: Yet to come, so that markers, which a broker stamps, are never the latest.
FIRST_MS: Final = 4_102_444_800_000
#: Of the producer that leaves its transaction open.
LEFT_OPEN: Final = "left-open"
PARTITIONS: Final[Mapping[tuple[str, int], Damage]] = MappingProxyType(
    {(kind, number): damage for kind, damages in DAMAGES.items() for number, damage in enumerate(damages)}
)

_NEVER: Final = str(2**63 - 1)
_COMMON: Final = {
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "1024",
    "segment.index.bytes": "65536",
    "segment.ms": _NEVER,
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": _NEVER,
}
_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "deleted": _COMMON,
        "compacted": {**_COMMON, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        "tiered": {**_COMMON, "remote.storage.enable": "true", "local.retention.bytes": "1"},
        "preallocated": {**_COMMON, "preallocate": "true"},
        "paged": {**_COMMON, "internal.segment.bytes": "65536", "index.interval.bytes": "1"},
    }
)
#: Longer than any test: until then a transaction that is left open is not to end by itself.
_TRANSACTION_MS: Final = 24 * 60 * 60 * 1000
_SETTINGS: Final = {
    **ONE_PARTITION_EACH,
    **SHORT_SESSION,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,  # of which all is cleared each time
    "transaction.max.timeout.ms": _TRANSACTION_MS,
}
_ROUNDS: Final = (45, 35, 45)
#: Batches of one record each, to `paged`: segments of some 700, whose index is longer than a page.
_SMALL_ROUNDS: Final = (700, 1_500)
_KEYS: Final = 30


class _Writers:
    """Plain, idempotent and transactional producers, one of which writes a batch to each partition each time."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._random, self._small = bootstrap, random.Random(11), 0
        self._plain = [self._producer(codec) for codec in ("none", "gzip", "snappy")]
        self._idempotent = [self._producer(codec, **{"enable.idempotence": True}) for codec in ("none", "lz4")]
        self._transactional = [self._started(codec, f"writer-{codec}") for codec in ("none", "zstd")]
        self._left_open = self._started("none", LEFT_OPEN)
        self._open: set[int] = set()

    def write(self, rounds: int) -> None:
        """No transaction is open at the end."""
        for _ in range(rounds):
            kind = self._random.choice(["plain", "idempotent", "idempotent", "transaction", "transaction"])
            if kind == "plain":
                self._write(self._random.choice(self._plain))
            elif kind == "idempotent":
                self._write(self._random.choice(self._idempotent))
            else:
                number = self._random.randrange(len(self._transactional))
                if number not in self._open:
                    self._transactional[number].begin_transaction()
                    self._open.add(number)
                self._write(self._transactional[number])
                if self._random.random() < 0.4:
                    self._end(number)
        for number in list(self._open):
            self._end(number)

    def leave_open(self) -> None:
        """Begin a transaction, and write on beside it."""
        self._left_open.begin_transaction()
        for producer in (self._left_open, self._idempotent[1], self._left_open, *self._idempotent):
            self._write(producer)

    def write_small(self, rounds: int) -> None:
        """Batches of one record each to `paged`, of a producer whose sequence goes on."""
        places = [place for place in PARTITIONS if place[0] == "paged"]
        with connected(self._bootstrap) as connection:
            for number in range(self._small, self._small + rounds):
                record = Record(0, FIRST_MS + number, b"k", b"%d" % number)
                batch = encoded.batch_v2([record], producer_id=10**6, producer_epoch=0, base_sequence=number)
                answers = connection.produce(dict.fromkeys(places, batch))
                assert {answer.error for answer in answers.values()} == {NONE}, answers
        self._small += rounds

    def _end(self, number: int) -> None:
        producer = self._transactional[number]
        (producer.commit_transaction if self._random.random() < 0.5 else producer.abort_transaction)(TIMEOUT_SECONDS)
        self._open.discard(number)

    def _write(self, producer: Producer) -> None:
        for kind, number in PARTITIONS:
            if kind == "paged":
                continue
            for _ in range(self._random.randint(1, 4)):
                key = b"%d" % self._random.randrange(_KEYS)
                value = self._random.randbytes(self._random.randint(10, 400))
                producer.produce(kind, value, key, number, timestamp=FIRST_MS + self._random.randrange(10**7))
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def _started(self, codec: str, name: str) -> Producer:
        producer = self._producer(codec, **{"transactional.id": name, "transaction.timeout.ms": _TRANSACTION_MS})
        producer.init_transactions(TIMEOUT_SECONDS)
        return producer

    def _producer(self, codec: str, **more: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": codec,
                "linger.ms": 60_000,  # a batch is what stands between two flushes
                "log_level": 2,
                **more,
            }
        )


def killed_disk(directory: Path, version: str) -> Broker:
    """A broker that was stopped once, and killed amid work, with a transaction open in all partitions but `paged`.

    Of `compacted` some segments were compacted, before the stop and after it. Of `tiered` the first segments are in the
    bucket alone, later ones there and in the log dir.
    """
    broker = tiered_broker(directory, _SETTINGS, version)
    with broker.running():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic(kind, len(DAMAGES[kind]), 1, config=dict(config)) for kind, config in _CONFIGS.items()]
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_SECONDS)
        writers = _Writers(broker.bootstrap)
        writers.write(_ROUNDS[0])
        writers.write_small(_SMALL_ROUNDS[0])
        wait_until(lambda: _is_compacted(broker), "segments are not compacted")
        wait_until(lambda: all(_first(path) > 0 for path in _directories(broker, "tiered")), "segments stay")
        set_config(broker.bootstrap, "tiered", "local.retention.bytes", -2)
    with broker.running_until_killed():
        writers.write(_ROUNDS[1])
        wait_until(lambda: _is_compacted(broker), "segments are not compacted")
        set_config(broker.bootstrap, "compacted", "min.compaction.lag.ms", 60_000)  # all is of the future: no more
        writers.write(_ROUNDS[2])
        writers.write_small(_SMALL_ROUNDS[1])
        writers.leave_open()
    return broker


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait for what a broker does in the background."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        threading.Event().wait(0.05)


def _directories(broker: Broker, kind: str) -> list[Path]:
    return [broker.log_dir / f"{kind}-{number}" for number in range(len(DAMAGES[kind]))]


def _is_compacted(broker: Broker) -> bool:
    """Whether all is compacted but the segments that are written to."""
    done = read_offset_checkpoint(broker.log_dir / CLEANER_CHECKPOINT) or {}
    return all(
        done.get(TopicPartition("compacted", number), 0) == int(max(path.glob(f"*{LOG_SUFFIX}")).stem) > 0
        for number, path in enumerate(_directories(broker, "compacted"))
    )


def _first(directory: Path) -> int:
    return min(int(path.stem) for path in directory.glob(f"*{LOG_SUFFIX}"))
