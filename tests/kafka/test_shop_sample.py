"""`samples/shop` holds what its messages are said to be, in the bytes of Confluent's own serializers."""

from __future__ import annotations

from kidxlib.library.read import read
from tests.kafka.shop_sample import SAMPLE, messages, payment, shipment

#: Of order 1234, 59.9 francs, by bike, after the id of the schema: written once by `AvroSerializer` and
#: `ProtobufSerializer` of confluent-kafka 2.16.1 with the files in `samples/shop/schemas`.
_OF_CONFLUENT = {
    "payment-11": "a4133333333333f34d40",
    "payment-12": "a4133333333333f34d4006434846",
    "shipment": "0008d209120462696b65",
}


def test_values_are_those_of_confluents_serializers() -> None:
    values = payment(1234, 59.9, None), payment(1234, 59.9, "CHF"), shipment(1234, "bike")
    assert [value[:5].hex() for value in values] == ["000000000b", "000000000c", "0000000015"]
    assert [value[5:].hex() for value in values] == [*_OF_CONFLUENT.values()]


def test_the_sample_holds_its_messages() -> None:
    sent: dict[str, list[tuple[str, bytes]]] = {}
    for message in messages():
        sent.setdefault(message.topic, []).append((message.key, message.value))
    for topic, expected in sent.items():
        found = read(SAMPLE / "kafka-logs", topics=topic, columns=["key", "value"]).read_all().to_pylist()
        assert sorted((row["key"].decode(), row["value"]) for row in found) == sorted(expected)
