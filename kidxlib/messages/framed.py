"""Records of `__cluster_metadata` and of `__remote_log_metadata`: a message behind its type and version.

Source: `AbstractApiMessageSerde`, `MetadataRecordSerde`, `RemoteLogMetadataSerde`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kidxlib.errors import UnreadableMessageError
from kidxlib.java import as_short
from kidxlib.messages.definitions import Message, messages_of
from kidxlib.messages.readable import Readable
from kidxlib.messages.reading import Values, read_message

CLUSTER_METADATA: Final = "kafka-metadata"
REMOTE_LOG_METADATA: Final = "kafka-storage"

_FRAME_VERSION: Final = 1
_INT16_MAX: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class FramedMessage:
    """A message of such a topic.

    Attributes:
        message: which it is.
        version: as the record gives it, be it one that the message has or not.
    """

    message: Message
    version: int
    values: Values


def read_framed(value: bytes | None, module: str) -> FramedMessage:
    """Read a record's value.

    Args:
        module: whose messages they are, `CLUSTER_METADATA` or `REMOTE_LOG_METADATA`.

    Raises:
        UnreadableMessageError: Kafka throws, too.
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
    message = _by_api_key(module).get(api_key)
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


def _short(readable: Readable, what: str) -> int:
    try:
        value = readable.unsigned_varint()
    except UnreadableMessageError as error:
        raise UnreadableMessageError(error.expected, f"Error while reading {what}") from error
    if value > _INT16_MAX:
        raise UnreadableMessageError(f"{what} of at most {_INT16_MAX}, not {value}", f"Value for {what} was too large.")
    return as_short(value)


@functools.cache
def _by_api_key(module: str) -> Mapping[int, Message]:
    return {message.api_key: message for message in messages_of(module).values() if message.api_key is not None}
