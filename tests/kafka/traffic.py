"""Writers to a broker: plain, idempotent and transactional producers, interleaved, one batch at a time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, TypeAlias

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewTopic

from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.admin import make_topics

#: How many partitions each topic has.
TOPICS: Final = {"plain": 2, "transactions": 3, "append-time": 1}
PARTITIONS: Final = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]

#: Explicit timestamps start here and go forward by about this much a step, with many steps back. Those of `plain` are
#: long gone. Those of `transactions` are yet to come, so that markers, which the broker stamps, are never the latest.
FIRST_TIMESTAMP: Final = {"plain": 1_577_836_800_000, "transactions": 4_102_444_800_000, "append-time": 946_684_800_000}
STEP_MS: Final = 1_000
JITTER_MS: Final = 30_000

#: One idempotent producer writes only this often, at the beginning, and with timestamps long gone. A broker keeps it in
#: its snapshots as long as it runs; when it starts again it drops such producers from what it loads.
STEPS_UNTIL_SILENT: Final = 5

_NEVER: Final = str(2**63 - 1)
_CONFIG: Final = {
    # `segment.bytes` cannot be less than 1 MiB from Kafka 4.1 on; this one, of Kafka's own tests, can, and wins.
    "internal.segment.bytes": "16384",
    "segment.ms": _NEVER,
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": _NEVER,
}
_TOPIC_CONFIG: Final = {"append-time": {"message.timestamp.type": "LogAppendTime"}}

#: Topic, partition and offset of a record.
Place: TypeAlias = tuple[str, int, int]

#: Of records: none for most of them.
_HEADERS: Final[tuple[list[tuple[str, str | bytes | None]], ...]] = (
    *[[]] * 9,
    [("trace", b"\0\xff")],
    [("a", b""), ("a", None), ("\u00e4", b"x" * 300)],
)
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Transactional producers: how likely each batch is the last of its transaction. The last ones span segments.
_ENDINGS: Final = (0.5, 0.3, 0.1, 0.03)
_WORDS: Final = [f"word{number:04}".encode() for number in range(3000)]


def create_topics(bootstrap: str, *, has_internal_setting: bool = True) -> None:
    """Create the topics of `TOPICS`.

    Args:
        has_internal_setting: False for brokers before 4.1, which do not know `internal.segment.bytes`.
    """
    config = dict(_CONFIG)
    if not has_internal_setting:
        config["segment.bytes"] = config.pop("internal.segment.bytes")
    topics = [
        NewTopic(topic, count, 1, config={**config, **_TOPIC_CONFIG.get(topic, {})}) for topic, count in TOPICS.items()
    ]
    make_topics(bootstrap, topics)


class Traffic:
    """Producers that write, each in its own codec, in an order that only the seed decides.

    They live through restarts of the broker, and so may their transactions.

    Attributes:
        committed: the records that a `read_committed` consumer is to see.
    """

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._random = random.Random(seed)
        self._steps = 0
        self._plain = [self._producer(codec) for codec in _CODECS]
        self._plain.append(self._producer("lz4", {"enable.idempotence": True}))
        self._silent_soon = self._producer("none", {"enable.idempotence": True})
        self._transactional = [self._started_afresh(number) for number in range(len(_ENDINGS))]
        self._open: dict[int, list[Place]] = {}
        self.committed: set[Place] = set()

    def run(self, steps: int) -> None:
        """Write that many times, each time one producer to one topic: a batch to each of some partitions."""
        for _ in range(steps):
            self._steps += 1
            if self._steps <= STEPS_UNTIL_SILENT:
                self.committed.update(self._write(self._silent_soon, "plain"))
            if self._random.random() < 0.6:
                self._transactional_step()
            else:
                topic = self._random.choice(list(TOPICS))
                self.committed.update(self._write(self._random.choice(self._plain), topic))

    def end_transactions(self, but: int) -> None:
        """End all transactions that are open, but have one of this producer open. All markers are written then."""
        for number in sorted(self._open.keys() - {but}):
            self._end(number)
        # A transaction's end is acknowledged before its markers are written; for a fresh start they have to be.
        for number in range(len(self._transactional)):
            if number != but:
                self._transactional[number] = self._started_afresh(number)
        if but not in self._open:
            self._begin(but)
        self._open[but] += self._write(self._transactional[but], "transactions")

    def abort_left_over(self, number: int) -> None:
        """Have the broker abort the transaction that this producer has left open."""
        self._started_afresh(number)

    def _transactional_step(self) -> None:
        number = self._random.randrange(len(self._transactional))
        if number not in self._open:
            self._begin(number)
        self._open[number] += self._write(self._transactional[number], "transactions")
        if self._random.random() < _ENDINGS[number]:
            self._end(number)

    def _begin(self, number: int) -> None:
        self._transactional[number].begin_transaction()
        self._open[number] = []

    def _end(self, number: int) -> None:
        producer, written = self._transactional[number], self._open.pop(number)
        if self._random.random() < 0.5:
            producer.commit_transaction(TIMEOUT_SECONDS)
            self.committed.update(written)
        else:
            producer.abort_transaction(TIMEOUT_SECONDS)

    def _write(self, producer: Producer, topic: str) -> list[Place]:
        written: list[Place] = []

        def note(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None and partition is not None and offset is not None, error
            written.append((topic, partition, offset))

        count = TOPICS[topic]
        for partition in self._random.sample(range(count), self._random.randint(1, count)):
            for _ in range(self._random.randint(1, 8)):
                now = FIRST_TIMESTAMP[topic] + self._steps * STEP_MS + self._random.randint(-JITTER_MS, JITTER_MS)
                words = b" ".join(self._random.choices(_WORDS, k=self._random.randint(5, 80)))
                value = self._random.choices((words, b"", None), (18, 1, 1))[0]
                key = self._random.choice((None, b"%d" % self._random.randrange(100)))
                headers = self._random.choice(_HEADERS)
                producer.produce(topic, value, key, partition, note, timestamp=now, headers=headers)
        assert producer.flush(TIMEOUT_SECONDS) == 0
        return written

    def _producer(self, codec: str, more: Mapping[str, object] | None = None) -> Producer:
        config: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "compression.type": codec,
            "linger.ms": 60_000,  # a batch is what stands between two flushes
            "log_level": 2,
            **(more or {}),
        }
        return Producer(config)

    def _started_afresh(self, number: int) -> Producer:
        """A new transactional producer that takes the place of the one with that number, also in the broker's eyes."""
        codec = _CODECS[number % len(_CODECS)]
        # As long as the broker allows: left open on purpose, a transaction is not to end by itself.
        more = {"transactional.id": f"writer-{number}", "transaction.timeout.ms": 900_000}
        producer = self._producer(codec, more)
        producer.init_transactions(TIMEOUT_SECONDS)
        return producer
