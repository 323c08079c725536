"""`kidxlib/messages/definitions.json` is what Kafka's jars say."""

from __future__ import annotations

from kidxlib.messages.definitions import kafka_version
from tests.kafka.definitions import TARGET, definitions
from tests.support.kafka.classes import Kafka


def test_made_anew_they_are_the_same(kafka: Kafka) -> None:
    assert TARGET.read_text() == definitions()
    assert kafka_version() == kafka.versions["kafka"]
