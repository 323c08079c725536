"""Records of `__consumer_offsets`, `__transaction_state` and `__share_group_state`: a key that gives the type, and a
value that gives its version.

Source: `CoordinatorRecordSerde` and its three subclasses.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UnknownRecordTypeError, UnreadableMessageError
from kidxlib.messages.definitions import Message, messages_of
from kidxlib.messages.readable import Readable
from kidxlib.messages.reading import Values, read_message

CONSUMER_OFFSETS: Final = "kafka-group-coordinator"
TRANSACTION_STATE: Final = "kafka-transaction-coordinator"
SHARE_GROUP_STATE: Final = "kafka-share-coordinator"


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record of such a topic.

    Attributes:
        key_message, value_message: which messages key and value are.
        value_version: as the value gives it; None of a tombstone.
        value: None is a tombstone.
    """

    key_message: Message
    key: Values
    value_message: Message
    value_version: int | None
    value: Values | None

    @property
    def record_type(self) -> int:
        """What the key begins with."""
        assert self.key_message.api_key is not None
        return self.key_message.api_key


def read_coordinator_record(key: bytes, value: bytes | None, module: str) -> CoordinatorRecord:
    """Read a record.

    Args:
        module: whose messages they are: `CONSUMER_OFFSETS`, `TRANSACTION_STATE` or `SHARE_GROUP_STATE`.

    Raises:
        UnknownRecordTypeError: no message has the type that the key gives.
        UnreadableMessageError: Kafka throws, too.
    """
    readable = Readable(key)
    record_type = _version(readable, "key")
    if record_type not in _by_type(module):
        raise UnknownRecordTypeError(record_type)
    key_message, value_message = _by_type(module)[record_type]
    key_values = _read(key_message, readable, record_type, "key")
    if value is None:
        return CoordinatorRecord(key_message, key_values, value_message, None, None)
    readable = Readable(value)
    version = _version(readable, "value")
    if version not in value_message.versions:
        versions = value_message.versions
        raise UnreadableMessageError(
            f"version {versions.lowest} to {versions.highest} of {value_message.name}, not {version}",
            f"Found an unknown record version {version} for {record_type} type",
        )
    values = _read(value_message, readable, version, "value")
    return CoordinatorRecord(key_message, key_values, value_message, version, values)


def _version(readable: Readable, what: str) -> int:
    try:
        return readable.number(2)
    except UnreadableMessageError as error:
        raise UnreadableMessageError(error.expected, f"Could not read version from {what}'s buffer.") from error


def _read(message: Message, readable: Readable, version: int, what: str) -> Values:
    try:
        return read_message(message, readable, version)
    except UnreadableMessageError as error:
        raise UnreadableMessageError(
            error.expected,
            f"Could not read record with version {version} from {what}'s buffer due to: {error.message or 'null'}.",
        ) from error


@functools.cache
def _by_type(module: str) -> Mapping[int, tuple[Message, Message]]:
    """The messages of key and value, by what keys begin with."""
    messages = messages_of(module).values()
    values = {message.api_key: message for message in messages if message.kind == "coordinator-value"}
    return {
        message.api_key: (message, values[message.api_key])
        for message in messages
        if message.kind == "coordinator-key" and message.api_key is not None
    }
