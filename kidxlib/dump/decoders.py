"""What `kafka-dump-log` prints for the records of Kafka's own topics, with the option for each of them. Some of it is
different in releases of Kafka.

Sources: `DumpLogSegments.CoordinatorRecordMessageParser` and its subclasses, `ClusterMetadataLogMessageParser`,
`RemoteMetadataLogMessageParser`, and `toString` of the classes that these read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from kidxlib.errors import MalformedError, UnknownRecordTypeError, UnreadableMessageError
from kidxlib.format.kafka_release import KAFKA_4_4, KafkaRelease
from kidxlib.java import boolean_text
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import ARRAY_ELEMENTS_MAX, Readable, json_object, json_text, read_message
from kidxlib.messages.remote_log_metadata import (
    RemoteLogMetadata,
    RemotePartitionDelete,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentSnapshot,
    RemoteSegmentUpdate,
    TopicIdPartition,
    read_remote_log_metadata,
)
from kidxlib.messages.typed_records import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    CoordinatorRecord,
    FramedMessage,
    read_coordinator_record,
    read_framed,
)
from kidxlib.records.reader import Record


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """A key or a value that was decoded.

    Attributes:
        fields: as a JSON value.
        text: what Kafka prints; None if that is the JSON.
    """

    fields: Any
    text: str | None = None

    @property
    def shown(self) -> str:
        return json_text(self.fields) if self.text is None else self.text


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record that was decoded.

    Attributes:
        key, value: None if Kafka prints nothing.
        is_whole: whether all of it could be read. If not, the key or the value is Kafka's message about that.
        may_differ: whether another release may print something else.
    """

    key: DecodedPart | None
    value: DecodedPart | None
    is_whole: bool = True
    may_differ: bool = False


#: Decodes the records of one of Kafka's own topics, as a release of Kafka does.
Decoder: TypeAlias = Callable[[Record, KafkaRelease], Decoded]

_KEY_VERSION: Final = 0
#: What Kafka prints in place of a tombstone's value.
_TOMBSTONE: Final = DecodedPart(None, "<DELETE>")
#: The protocol type of groups whose members say what they subscribe to in messages that Kafka knows.
_CONSUMER: Final = "consumer"
#: The fields of a member that hold such a message, and the message of each.
_OF_MEMBERS: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}

_TRANSACTION_LOG_VALUE: Final = "TransactionLogValue"
#: `TransactionState.stateName`, by its id.
_TRANSACTION_STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def _decode_cluster_metadata(record: Record, release: KafkaRelease) -> Decoded:
    try:
        framed = read_framed(record.value, CLUSTER_METADATA, release)
    except UnreadableMessageError as error:
        text = f"Error at {record.offset}, skipping. {error.message or 'null'}"
        return Decoded(None, DecodedPart(text, text), is_whole=False, may_differ=True)
    return Decoded(None, DecodedPart(_framed_fields(framed)), may_differ=framed.message.is_by_release)


def _framed_fields(framed: FramedMessage) -> dict[str, Any]:
    return {
        "type": _WORD_START.sub("_", framed.message.name).upper(),
        "version": framed.version,
        "data": json_object(framed.message, framed.values, framed.version),
    }


def _decode_remote_log_metadata(record: Record, release: KafkaRelease) -> Decoded:
    try:
        framed, metadata = read_remote_log_metadata(record.value, release)
    except UnreadableMessageError as error:
        text = f"Error at offset {record.offset}, skipping. {error.message or 'null'}"
        return Decoded(None, DecodedPart(text, text), is_whole=False, may_differ=True)
    return Decoded(None, DecodedPart(_framed_fields(framed), _text(metadata)), may_differ=framed.message.is_by_release)


def _text(metadata: RemoteLogMetadata) -> str:
    match metadata:
        case RemoteSegment():
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment(metadata.segment)}, "
                f"startOffset={metadata.start_offset}, endOffset={metadata.end_offset}, brokerId={metadata.broker_id}, "
                f"maxTimestampMs={metadata.max_timestamp_ms}, eventTimestampMs={metadata.event_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs(metadata.leader_epochs)}, "
                f"segmentSizeInBytes={metadata.segment_bytes}, customMetadata={_custom(metadata.custom_metadata)}, "
                f"state={metadata.state.name}, txnIdxEmpty={boolean_text(metadata.transaction_index_empty)}}}"
            )
        case RemoteSegmentUpdate():
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment(metadata.segment)}, "
                f"customMetadata={_custom(metadata.custom_metadata)}, state={metadata.state.name}, "
                f"eventTimestampMs={metadata.event_timestamp_ms}, brokerId={metadata.broker_id}}}"
            )
        case RemotePartitionDelete():
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={_partition(metadata.partition)}, "
                f"state={metadata.state.name}, eventTimestampMs={metadata.event_timestamp_ms}, "
                f"brokerId={metadata.broker_id}}}"
            )
        case RemoteSegmentSnapshot():
            return (
                f"RemoteLogSegmentMetadataSnapshot{{segmentId={metadata.id}, startOffset={metadata.start_offset}, "
                f"endOffset={metadata.end_offset}, maxTimestampMs={metadata.max_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs(metadata.leader_epochs)}, "
                f"segmentSizeInBytes={metadata.segment_bytes}, customMetadata={_custom(metadata.custom_metadata)}, "
                f"state={metadata.state.name}, txnIdxEmpty={boolean_text(metadata.transaction_index_empty)}}}"
            )


def _segment(segment: RemoteSegmentId) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(segment.partition)}, id={segment.id}}}"


def _partition(partition: TopicIdPartition) -> str:
    return f"{partition.topic_id}:{partition.topic}-{partition.partition}"


def _epochs(epochs: Mapping[int, int]) -> str:
    return f"{{{', '.join(f'{epoch}={offset}' for epoch, offset in epochs.items())}}}"


def _custom(metadata: bytes | None) -> str:
    return "Optional.empty" if metadata is None else f"Optional[CustomMetadata{{{len(metadata)} bytes}}]"


def _decode_coordinator_record(record: Record, release: KafkaRelease, module: str) -> Decoded:
    if record.key is None:
        raise MalformedError(f"no key in the record at offset {record.offset}", "one, as this decoder reads it")
    try:
        read = read_coordinator_record(record.key, record.value, module, release)
    except UnknownRecordTypeError as error:
        text = f"Unknown record type {error.record_type} at offset {record.offset}, skipping."
        return Decoded(DecodedPart(text, text), None, is_whole=False, may_differ=True)
    except UnreadableMessageError as error:
        text = f"Error at offset {record.offset}, skipping. {error.message or 'null'}"
        return Decoded(DecodedPart(text, text), None, is_whole=False, may_differ=True)
    key = {"type": str(read.record_type), "data": json_object(read.key_message, read.key, _KEY_VERSION)}
    if read.value is None:
        return Decoded(DecodedPart(key), _TOMBSTONE)
    value = {"version": str(read.value_version), "data": _value(read, release)}
    return Decoded(DecodedPart(key), DecodedPart(value), may_differ=_may_differ(read, record))


def _may_differ(read: CoordinatorRecord, record: Record) -> bool:
    """Whether releases may print a record differently which could be read. A message of the consumer protocol within it
    is shown as bytes by those that refuse how many elements it has.
    """
    has_many = record.value is not None and len(record.value) > ARRAY_ELEMENTS_MAX
    return has_many or read.value_message.is_by_release or read.value_message.name == _TRANSACTION_LOG_VALUE


def _value(read: CoordinatorRecord, release: KafkaRelease) -> dict[str, Any]:
    assert read.value is not None and read.value_version is not None
    shown = json_object(read.value_message, read.value, read.value_version)
    if read.value_message.name == "GroupMetadataValue" and read.value["protocolType"] == _CONSUMER:
        for member, member_shown in zip(read.value["members"], shown["members"], strict=True):
            for field, message_name in _OF_MEMBERS.items():
                of_protocol = _consumer_protocol(message_name, member[field], release)
                member_shown[field] = of_protocol or member_shown[field]
    if read.value_message.name == _TRANSACTION_LOG_VALUE and release >= KAFKA_4_4:
        shown["transactionStatus"] = _state_name(read.value["transactionStatus"])
    return shown


def _state_name(state: int) -> str:
    return _TRANSACTION_STATES[state] if 0 <= state < len(_TRANSACTION_STATES) else str(state)


def _consumer_protocol(message_name: str, data: bytes, release: KafkaRelease) -> dict[str, Any] | None:
    """The message of a group's member in Kafka's consumer protocol; None if the bytes are none."""
    message, readable = messages_of("kafka-clients", release)[message_name], Readable(data)
    try:
        version = readable.number(2)
        return json_object(message, read_message(message, readable, version), version)
    except UnreadableMessageError:
        return None


#: The topic and its decoder, for each option.
DECODERS: Final[Mapping[str, tuple[str, Decoder]]] = {
    "--offsets-decoder": ("__consumer_offsets", partial(_decode_coordinator_record, module=CONSUMER_OFFSETS)),
    "--transaction-log-decoder": ("__transaction_state", partial(_decode_coordinator_record, module=TRANSACTION_STATE)),
    "--cluster-metadata-decoder": ("__cluster_metadata and its snapshots", _decode_cluster_metadata),
    "--remote-log-metadata-decoder": ("__remote_log_metadata", _decode_remote_log_metadata),
    "--share-group-state-decoder": (
        "__share_group_state",
        partial(_decode_coordinator_record, module=SHARE_GROUP_STATE),
    ),
}
