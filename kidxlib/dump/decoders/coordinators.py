"""Records of `__consumer_offsets`, `__transaction_state` and `__share_group_state`.

Source: `DumpLogSegments.CoordinatorRecordMessageParser` and its subclasses.
"""

from __future__ import annotations

from typing import Any, Final

from kidxlib.dump.decoders.decoded import Decoded, Part
from kidxlib.errors import MalformedError, UnknownRecordTypeError, UnreadableMessageError
from kidxlib.messages.coordinator import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    CoordinatorRecord,
    read_coordinator_record,
)
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.json_objects import json_object
from kidxlib.messages.readable import Readable
from kidxlib.messages.reading import read_message
from kidxlib.records.reader import Record

_KEY_VERSION: Final = 0
#: What Kafka prints in place of a tombstone's value.
_TOMBSTONE: Final = Part(None, "<DELETE>")
#: The protocol type of groups whose members say what they subscribe to in messages that Kafka knows.
_CONSUMER: Final = "consumer"
#: By the field of a member that holds it, such a message.
_OF_MEMBERS: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}


def decode_consumer_offsets(record: Record) -> Decoded:
    """A record of `__consumer_offsets` (`--offsets-decoder`).

    Raises:
        MalformedError: it has no key; Kafka throws, too.
    """
    return _decode(record, CONSUMER_OFFSETS)


def decode_transaction_state(record: Record) -> Decoded:
    """A record of `__transaction_state` (`--transaction-log-decoder`).

    Raises:
        MalformedError: as `decode_consumer_offsets`.
    """
    return _decode(record, TRANSACTION_STATE)


def decode_share_group_state(record: Record) -> Decoded:
    """A record of `__share_group_state` (`--share-group-state-decoder`).

    Raises:
        MalformedError: as `decode_consumer_offsets`.
    """
    return _decode(record, SHARE_GROUP_STATE)


def _decode(record: Record, module: str) -> Decoded:
    if record.key is None:
        raise MalformedError(f"no key in the record at offset {record.offset}", "one, as this decoder reads it")
    try:
        read = read_coordinator_record(record.key, record.value, module)
    except UnknownRecordTypeError as error:
        text = f"Unknown record type {error.record_type} at offset {record.offset}, skipping."
        return Decoded(Part(text, text), None, is_whole=False)
    except UnreadableMessageError as error:
        text = f"Error at offset {record.offset}, skipping. {error.message or 'null'}"
        return Decoded(Part(text, text), None, is_whole=False)
    key = {"type": str(read.record_type), "data": json_object(read.key_message, read.key, _KEY_VERSION)}
    if read.value is None:
        return Decoded(Part(key), _TOMBSTONE)
    return Decoded(Part(key), Part({"version": str(read.value_version), "data": _value(read)}))


def _value(read: CoordinatorRecord) -> dict[str, Any]:
    assert read.value is not None and read.value_version is not None
    shown = json_object(read.value_message, read.value, read.value_version)
    if read.value_message.name == "GroupMetadataValue" and read.value["protocolType"] == _CONSUMER:
        for member, member_shown in zip(read.value["members"], shown["members"], strict=True):
            for field, message_name in _OF_MEMBERS.items():
                member_shown[field] = _consumer_protocol(message_name, member[field]) or member_shown[field]
    return shown


def _consumer_protocol(message_name: str, data: bytes) -> dict[str, Any] | None:
    """What a member of a group says in Kafka's consumer protocol; None where it is none."""
    message, readable = messages_of("kafka-clients")[message_name], Readable(data)
    try:
        version = readable.number(2)
        return json_object(message, read_message(message, readable, version), version)
    except UnreadableMessageError:
        return None
