"""The records of control batches: transaction markers, and control records of KRaft's log.

Sources: `ControlRecordType`, `ControlRecordUtils`, `EndTransactionMarker`, which read all values as version 0, whatever
version they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kidxlib.errors import MalformedError, UnreadableMessageError
from kidxlib.format import layouts
from kidxlib.format.kafka_release import NEWEST, KafkaRelease
from kidxlib.messages.definitions import MessageDefinition, messages_of
from kidxlib.messages.interpreter import Readable, json_object, read_message
from kidxlib.records.reader import Record


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A record of a control batch.

    Attributes:
        type_id: the type in the key.
        name: the type's name; None if Kafka does not know the type.
        fields: the fields of the value, as in Kafka's JSON; None if the type is not known.
    """

    type_id: int
    name: str | None
    fields: dict[str, Any] | None


def read_control_record(record: Record, release: KafkaRelease = NEWEST) -> ControlRecord:
    type_id = _type_id(_bytes(record.key, "key of a control record"))
    if type_id not in _TYPES:
        return ControlRecord(type_id, None, None)
    name, message_name = _TYPES[type_id]
    what = f"value of a control record {name}"
    value, message = _bytes(record.value, what), messages_of("kafka-clients", release)[message_name]
    try:
        return ControlRecord(type_id, name, _fields(message, value))
    except UnreadableMessageError as error:
        raise _malformed(value, what, error.expected) from error


def _type_id(key: bytes) -> int:
    """The type in a key, which has a version before it."""
    what = "key of a control record"
    if len(key) < layouts.CONTROL_KEY_BYTES:
        raise _malformed(key, what, f"{layouts.CONTROL_KEY_BYTES} bytes or more")
    readable = Readable(key)
    try:
        _check_version(readable)
    except UnreadableMessageError as error:
        raise _malformed(key, what, error.expected) from error
    return readable.number(2)


def _fields(message: MessageDefinition, value: bytes) -> dict[str, Any]:
    """The fields of a value. A marker has a version before them; KRaft's messages have it among their fields."""
    readable = Readable(value)
    if message.name == _END_OF_TRANSACTION:
        _check_version(readable)
        return json_object(message, read_message(message, readable, 0), 0)
    values = read_message(message, readable, 0)
    return json_object(message, values, values["version"])


def _check_version(readable: Readable) -> None:
    """Read a version, which may be any that is not negative."""
    version = readable.number(2)
    if version < 0:
        raise UnreadableMessageError(f"a version from 0 on, not {version}", None)


def _bytes(data: bytes | None, what: str) -> bytes:
    if data is None:
        raise MalformedError(f"null as {what}", "bytes")
    return data


def _malformed(data: bytes, what: str, expected: str) -> MalformedError:
    return MalformedError(f"{data.hex() or 'nothing'} as {what}", expected)


_END_OF_TRANSACTION: Final = "EndTxnMarker"
#: The name of each type, and the message in its value.
_TYPES: Final = {
    layouts.CONTROL_TYPE_ABORT: ("ABORT", _END_OF_TRANSACTION),
    layouts.CONTROL_TYPE_COMMIT: ("COMMIT", _END_OF_TRANSACTION),
    2: ("LEADER_CHANGE", "LeaderChangeMessage"),
    3: ("SNAPSHOT_HEADER", "SnapshotHeaderRecord"),
    4: ("SNAPSHOT_FOOTER", "SnapshotFooterRecord"),
    5: ("KRAFT_VERSION", "KRaftVersionRecord"),
    6: ("KRAFT_VOTERS", "VotersRecord"),
}
