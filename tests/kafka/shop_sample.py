"""Makes `samples/shop/kafka-logs` anew: a broker's log dir with orders in JSON, payments in Avro and shipments in
Protobuf, the latter two as Confluent's serializers frame them. One payment is not, and then nothing more is shipped.

Run it with `python -m tests.kafka.shop_sample`, in `.venv`. Messages are the same each time. Batches differ, and
docs/read.md names some.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.topic_partition import parse_partition_directory
from kidxlib.messages.interpreter import unsigned_varint
from tests.support.kafka.admin import make_topics
from tests.support.kafka.broker import Broker
from tests.support.kafka.jars import PROJECT
from tests.support.logs.v2_records import sized, varint

SAMPLE: Final = PROJECT / "samples" / "shop"

_START: Final = datetime(2026, 11, 24, 23, 20, tzinfo=UTC)
_SECONDS: Final = 45 * 60
#: When payments tell their currency, and when one comes that nobody can parse, in seconds since the start.
_SECOND_SCHEMA, _POISON = 20 * 60, 27 * 60 + 13
#: Ids that a registry might have given to the files of `samples/shop/schemas`.
_PAYMENT, _PAYMENT_WITH_CURRENCY, _SHIPMENT = 11, 12, 21
_TOPICS: Final = {"orders": 2, "payments": 1, "shipments": 1}
#: Their transactional ids, in the order in which they ask for their producer ids.
_SENDERS: Final = ("shop", "till", "warehouse", "refunds-beta")
_TIMEOUT_SECONDS: Final = 60.0
_SETTINGS: Final = {
    "transaction.state.log.num.partitions": 1,
    "log.retention.ms": -1,  # the sample's times are older than the broker
}


def framed(schema_id: int, *parts: bytes) -> bytes:
    """What Confluent's serializers write: a zero, the id of the schema, and what comes after it."""
    return b"".join([b"\0", struct.pack(">I", schema_id), *parts])


def payment(order: int, amount: float, currency: str | None) -> bytes:
    """Of `payment-11.avsc`, or of `payment-12.avsc` with a currency."""
    body = varint(order) + struct.pack("<d", amount)
    if currency is None:
        return framed(_PAYMENT, body)
    return framed(_PAYMENT_WITH_CURRENCY, body, sized(currency.encode()))


def shipment(order: int, carrier: str) -> bytes:
    """Of the first message of `shipment.proto`, which a single zero stands for."""
    return framed(
        _SHIPMENT, b"\0", b"\x08" + unsigned_varint(order), b"\x12" + unsigned_varint(len(carrier)) + carrier.encode()
    )


@dataclass(frozen=True, slots=True)
class Message:
    """A message, and the transactional id of who sends it, `second` seconds after the start."""

    second: int
    sender: str
    topic: str
    key: str
    value: bytes


def messages() -> Iterator[Message]:
    """All messages in their order."""
    rng, order = random.Random(45), 1_000
    for second in range(_SECONDS):
        if rng.random() < (0.6 if second <= 600 else 0.8):
            order += 1
            customer, total = f"c-{rng.randrange(40)}", round(rng.uniform(3, 120), 2)
            text = json.dumps({"order": order, "customer": customer, "total": total})
            yield Message(second, "shop", "orders", customer, text.encode())
            if rng.random() < 0.9:
                currency = None if second < _SECOND_SCHEMA else rng.choice(["EUR", "EUR", "CHF"])
                yield Message(second, "till", "payments", str(order), payment(order, total, currency))
            if rng.random() < 0.5 and second < _POISON:
                carrier = rng.choice(["post", "bike", "van"])
                yield Message(second, "warehouse", "shipments", str(order), shipment(order, carrier))
        if second == _POISON:
            refund = json.dumps({"refund": order, "amount": "n/a"})
            yield Message(second, "refunds-beta", "payments", str(order), refund.encode())


def fill(broker: Broker) -> None:
    """Send everything, each sender by a producer of its own, in a transaction every five minutes."""
    make_topics(broker.bootstrap, [NewTopic(name, count, 1) for name, count in _TOPICS.items()])
    producers = {sender: _producer(broker, sender) for sender in _SENDERS}
    for _, some in itertools.groupby(messages(), lambda message: message.second // 300):
        for producer in producers.values():
            producer.begin_transaction()
        # A minute at a time: batches lie one after the other as they would have.
        for _, minute in itertools.groupby(some, lambda message: message.second // 60):
            for message in minute:
                timestamp = int(_START.timestamp() + message.second) * 1_000
                producers[message.sender].produce(message.topic, message.value, message.key, timestamp=timestamp)
            for producer in producers.values():
                producer.flush(_TIMEOUT_SECONDS)
        for producer in producers.values():
            producer.commit_transaction(_TIMEOUT_SECONDS)


def _producer(broker: Broker, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "compression.type": "zstd",
            "linger.ms": 50,
            "partitioner": "murmur2_random",  # the Java client's
        }
    )
    producer.init_transactions(_TIMEOUT_SECONDS)
    return producer


def main() -> None:
    """Fill a broker, and keep of its log dir what a reader needs."""
    log_dir = SAMPLE / "kafka-logs"
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory) / "broker", _SETTINGS)
        with broker.running():
            fill(broker)
        shutil.rmtree(log_dir, ignore_errors=True)
        for path in broker.log_dir.iterdir():
            partition = parse_partition_directory(path.name)
            if partition is not None and partition.topic in (*_TOPICS, "__transaction_state"):
                shutil.copytree(path, log_dir / path.name, ignore=shutil.ignore_patterns("*index", "*.snapshot"))
        shutil.copy(broker.log_dir / "replication-offset-checkpoint", log_dir)


if __name__ == "__main__":
    main()
