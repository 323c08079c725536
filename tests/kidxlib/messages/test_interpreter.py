"""Each message in each of its versions is read as it was written, and its JSON is that of Kafka. What cannot be written
is refused; what can be, Kafka reads in `test_dump_decoders`.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import UnreadableMessageError
from kidxlib.format.kafka_release import KAFKA_4_3, NEWEST
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import Readable, json_text, read_message, write_message
from kidxlib.messages.interpreter import unsigned_varint as varint
from kidxlib.messages.typed_records import CLUSTER_METADATA
from tests.support.messages import random_values

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
                data = write_message(message, values, version)
                readable = Readable(data)
                assert repr(read_message(message, readable, version)) == repr(values)  # nan is not equal to itself
                assert readable.remaining == 0, message.name
                if data:
                    with pytest.raises(UnreadableMessageError):
                        read_message(message, Readable(data[:-1]), version)


def test_a_version_above_all_is_read_as_the_highest() -> None:
    """As in Kafka, but for messages with structs that are defined in place."""
    metadata = messages_of("kafka-metadata")
    topic = write_message(metadata["TopicRecord"], {"name": "t", "topicId": "A" * 22}, 0)
    assert read_message(metadata["TopicRecord"], Readable(topic), 99)["name"] == "t"
    broker = write_message(
        metadata["ClientQuotaRecord"], random_values(metadata["ClientQuotaRecord"], 0, random.Random(1)), 0
    )
    with pytest.raises(UnreadableMessageError, match="Can't read version 99 of EntityData"):
        read_message(metadata["ClientQuotaRecord"], Readable(b"\2" + broker[1:]), 99)


_TOPIC = write_message(messages_of("kafka-metadata")["TopicRecord"], {"name": "t", "topicId": "A" * 22}, 0)[:-1]


@pytest.mark.parametrize(
    ("count", "tags", "says"),
    [
        (b"\xff\xff\xff\xff\x0f", b"", "Invalid negative number of tagged fields -1"),
        (varint(3), b"\1\0", "Tried to read 3 tagged fields, but there are only 2 bytes remaining."),
        (
            varint(10_001),
            b"\1\0" * 10_001,
            "Tried to read 10001 tagged fields, which exceeds the maximum allowed count of 10000.",
        ),
        (varint(10_000), b"\1\0" * 10_000, None),
    ],
    ids=["below 0", "above what is left", "too many", "most"],
)
def test_numbers_of_tagged_fields_are_limited_since_4_4(count: bytes, tags: bytes, says: str | None) -> None:
    data = _TOPIC + count + tags
    if says is None or len(tags) != 2:  # else there is no third one
        older = Readable(data)
        assert read_message(messages_of("kafka-metadata", KAFKA_4_3)["TopicRecord"], older, 0)["name"] == "t"
        assert older.remaining == 0
    newest = messages_of("kafka-metadata")["TopicRecord"]
    if says is None:
        assert read_message(newest, Readable(data), 0)["name"] == "t"
        return
    with pytest.raises(UnreadableMessageError) as refused:
        read_message(newest, Readable(data), 0)
    assert refused.value.message == says


def test_numbers_of_elements_are_limited_since_4_4() -> None:
    """A million may be there, and before 4.4 one more."""
    newer, older = (
        messages_of("kafka-clients", release)["ConsumerProtocolSubscription"] for release in (NEWEST, KAFKA_4_3)
    )
    end = write_message(newer, {"topics": [], "userData": None}, 0)[4:]

    def data(count: int) -> bytes:
        return count.to_bytes(4) + bytes(2 * count) + end  # each text is empty

    for message, count in ((newer, 1_000_000), (older, 1_000_001)):
        assert len(read_message(message, Readable(data(count)), 0)["topics"]) == count
    with pytest.raises(UnreadableMessageError, match="size 1000001, which exceeds the maximum allowed size of 1000000"):
        read_message(newer, Readable(data(1_000_001)), 0)


def test_what_came_later_is_not_in_an_older_release() -> None:
    """An unknown tagged field is passed over; a message that is there since 4.4 says so."""
    value = "StreamsGroupMetadataValue"
    newer, older = (messages_of("kafka-group-coordinator", release)[value] for release in (NEWEST, KAFKA_4_3))
    values = random_values(newer, 0, random.Random(1)) | {"storedDescriptionTopologyEpoch": 7}
    data = write_message(newer, values, 0)
    assert read_message(newer, Readable(data), 0)["storedDescriptionTopologyEpoch"] == 7
    assert "storedDescriptionTopologyEpoch" not in read_message(older, Readable(data), 0)
    assert (newer.is_by_release, messages_of("kafka-metadata")["TopicRecord"].is_by_release) == (True, False)
    assert "UnregisterControllerRecord" not in messages_of("kafka-metadata", KAFKA_4_3)


@given(_VALUES)
def test_it_is_read_back(value: object) -> None:
    assert json.loads(json_text(value)) == value


def test_escapes_are_those_of_jackson() -> None:
    assert json_text({"ä\x7f\u2028": ['"\\/\b\t\n\f\r\0\x1f', float("nan")]}) == (
        '{"ä\x7f\u2028":["\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F","NaN"]}'
    )


@pytest.mark.parametrize(
    ("name", "version", "values", "says"),
    [
        ("TopicRecord", 1, {}, "TopicRecord of version 1, which it does not have"),
        ("PartitionRecord", 0, {"directories": ["A" * 22]}, "PartitionRecord of version 0 lacks directories"),
        ("TopicRecord", 0, {"name": None}, "TopicRecord: name is null"),
        ("PartitionRecord", 2, {"replicas": None}, "PartitionRecord: replicas is null"),
    ],
)
def test_what_a_reader_would_not_see_is_refused(name: str, version: int, values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        write_message(messages_of(CLUSTER_METADATA)[name], values, version)
