"""`kidxlib/messages/definitions.json` is what Kafka's jars say."""

from __future__ import annotations

from kidxlib.messages.definitions import kafka_version
from tests.kafka.definitions import TARGET, definitions
from tests.support.kafka.jars import PROMISED


def test_made_anew_they_are_the_same() -> None:
    assert TARGET.read_text() == definitions()
    assert kafka_version() == PROMISED
