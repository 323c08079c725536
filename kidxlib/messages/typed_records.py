"""Records of Kafka's own topics, whose key or value begins with a type and a version.

In `__cluster_metadata` and `__remote_log_metadata` the value has both (`AbstractApiMessageSerde`,
`MetadataRecordSerde`, `RemoteLogMetadataSerde`). In `__consumer_offsets`, `__transaction_state` and
`__share_group_state` the key gives the type, and the value gives its version (`CoordinatorRecordSerde` and its three
subclasses).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UnknownRecordTypeError, UnreadableMessageError
from kidxlib.format.kafka_release import NEWEST, KafkaRelease
from kidxlib.java import as_short
from kidxlib.messages.definitions import MessageDefinition, messages_of
from kidxlib.messages.interpreter import Readable, Values, read_message, unsigned_varint, write_message

CLUSTER_METADATA: Final = "kafka-metadata"
REMOTE_LOG_METADATA: Final = "kafka-storage"

_FRAME_VERSION: Final = 1
_INT16_MAX: Final = 2**15 - 1

CONSUMER_OFFSETS: Final = "kafka-group-coordinator"
TRANSACTION_STATE: Final = "kafka-transaction-coordinator"
SHARE_GROUP_STATE: Final = "kafka-share-coordinator"


@dataclass(frozen=True, slots=True)
class FramedMessage:
    """A message in a record's value, in the record's version, even if the message does not have that version."""

    message: MessageDefinition
    version: int
    values: Values


def read_framed(value: bytes | None, module: str, release: KafkaRelease = NEWEST) -> FramedMessage:
    """Read a typed record's value as a release of Kafka does. The module is `CLUSTER_METADATA` or
    `REMOTE_LOG_METADATA`.
    """
    if value is None:
        raise UnreadableMessageError("bytes, not null", "Error while reading frame version")
    readable = Readable(value)
    frame_version = _short(readable, "frame version")
    if frame_version == 0:
        raise UnreadableMessageError(
            "frame version 1, not 0",
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported.",
        )
    if frame_version != _FRAME_VERSION:
        raise UnreadableMessageError(
            f"frame version 1, not {frame_version}",
            f"Could not deserialize metadata record due to unknown frame version {frame_version}(only frame version "
            f"{_FRAME_VERSION} is supported)",
        )
    api_key, version = _short(readable, "type"), _short(readable, "version")
    message = _by_api_key(module, release).get(api_key)
    if message is None:
        raise UnreadableMessageError(
            f"a record type that Kafka knows, not {api_key}",
            f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {api_key}",
        )
    try:
        values = read_message(message, readable, version)
    except UnreadableMessageError as error:
        raise UnreadableMessageError(error.expected, f"Failed to deserialize record with type {api_key}") from error
    if readable.remaining > 0:
        raise UnreadableMessageError(
            f"{readable.remaining} bytes less", f"Found {readable.remaining} byte(s) of garbage after {api_key}"
        )
    return FramedMessage(message, version, values)


def write_framed(framed: FramedMessage) -> bytes:
    """The record's value that `read_framed` reads (`AbstractApiMessageSerde.write`)."""
    assert framed.message.api_key is not None
    frame = b"".join(map(unsigned_varint, (_FRAME_VERSION, framed.message.api_key, framed.version)))
    return frame + write_message(framed.message, framed.values, framed.version)


def _short(readable: Readable, what: str) -> int:
    try:
        value = readable.unsigned_varint()
    except UnreadableMessageError as error:
        raise UnreadableMessageError(error.expected, f"Error while reading {what}") from error
    if value > _INT16_MAX:
        raise UnreadableMessageError(f"{what} of at most {_INT16_MAX}, not {value}", f"Value for {what} was too large.")
    return as_short(value)


@functools.cache
def _by_api_key(module: str, release: KafkaRelease) -> Mapping[int, MessageDefinition]:
    messages = messages_of(module, release).values()
    return {message.api_key: message for message in messages if message.api_key is not None}


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record of a coordinator's topic. The value and its version are None in a tombstone."""

    key_message: MessageDefinition
    key: Values
    value_message: MessageDefinition
    value_version: int | None
    value: Values | None

    @property
    def record_type(self) -> int:
        """The type that a typed record has at the beginning of its key."""
        assert self.key_message.api_key is not None
        return self.key_message.api_key


def read_coordinator_record(
    key: bytes, value: bytes | None, module: str, release: KafkaRelease = NEWEST
) -> CoordinatorRecord:
    """Read a typed record of a coordinator's topic as a release of Kafka does. The module is `CONSUMER_OFFSETS`,
    `TRANSACTION_STATE` or `SHARE_GROUP_STATE`.
    """
    readable = Readable(key)
    record_type = _version(readable, "key")
    if record_type not in _by_type(module, release):
        raise UnknownRecordTypeError(record_type)
    key_message, value_message = _by_type(module, release)[record_type]
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


def _read(message: MessageDefinition, readable: Readable, version: int, what: str) -> Values:
    try:
        return read_message(message, readable, version)
    except UnreadableMessageError as error:
        raise UnreadableMessageError(
            error.expected,
            f"Could not read record with version {version} from {what}'s buffer due to: {error.message or 'null'}.",
        ) from error


@functools.cache
def _by_type(module: str, release: KafkaRelease) -> Mapping[int, tuple[MessageDefinition, MessageDefinition]]:
    """The messages of key and value, by the type in the key."""
    messages = messages_of(module, release).values()
    values = {message.api_key: message for message in messages if message.kind == "coordinator-value"}
    return {
        message.api_key: (message, values[message.api_key])
        for message in messages
        if message.kind == "coordinator-key" and message.api_key is not None
    }
