"""Each message in each of its versions is read as it was written."""

from __future__ import annotations

import random

import pytest

from kidxlib.errors import UnreadableMessageError
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.readable import Readable
from kidxlib.messages.reading import read_message
from tests.support.messages import encoded, random_values

_MODULES = ("kafka-clients", "kafka-group-coordinator", "kafka-metadata", "kafka-share-coordinator", "kafka-storage")
_MESSAGES = [
    message for module in (*_MODULES, "kafka-transaction-coordinator") for message in messages_of(module).values()
]


def test_what_was_written_is_read(rng: random.Random) -> None:
    """In no version anything is left, and with one byte less each ends in an error."""
    for message in _MESSAGES:
        for version in range(message.versions.lowest, message.versions.highest + 1):
            for _ in range(10):
                values = random_values(message, version, rng)
                data = encoded(message, values, version)
                readable = Readable(data)
                assert repr(read_message(message, readable, version)) == repr(values)  # nan is not equal to itself
                assert readable.remaining == 0, message.name
                if data:
                    with pytest.raises(UnreadableMessageError):
                        read_message(message, Readable(data[:-1]), version)


def test_a_version_above_all_is_read_as_the_highest() -> None:
    """As in Kafka, but for messages with structs that are defined in place."""
    metadata = messages_of("kafka-metadata")
    topic = encoded(metadata["TopicRecord"], {"name": "t", "topicId": "A" * 22}, 0)
    assert read_message(metadata["TopicRecord"], Readable(topic), 99)["name"] == "t"
    broker = encoded(
        metadata["ClientQuotaRecord"], random_values(metadata["ClientQuotaRecord"], 0, random.Random(1)), 0
    )
    with pytest.raises(UnreadableMessageError, match="Can't read version 99 of EntityData"):
        read_message(metadata["ClientQuotaRecord"], Readable(b"\2" + broker[1:]), 99)
