"""Each message in each of its versions is read as it was written, and its JSON is that of Kafka."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import UnreadableMessageError
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.reading import Readable, json_text, read_message
from tests.support.messages import encoded, random_values

_MODULES = ("kafka-clients", "kafka-group-coordinator", "kafka-metadata", "kafka-share-coordinator", "kafka-storage")
_MESSAGES = [
    message for module in (*_MODULES, "kafka-transaction-coordinator") for message in messages_of(module).values()
]

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
)


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


@given(_VALUES)
def test_it_is_read_back(value: object) -> None:
    assert json.loads(json_text(value)) == value


def test_escapes_are_those_of_jackson() -> None:
    assert json_text({"ä\x7f\u2028": ['"\\/\b\t\n\f\r\0\x1f', float("nan")]}) == (
        '{"ä\x7f\u2028":["\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F","NaN"]}'
    )
