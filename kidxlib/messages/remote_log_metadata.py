"""Records of `__remote_log_metadata`: the remote segments of each partition in tiered storage (KIP-405).

Source: `RemoteLogMetadataSerde`, its four transforms, and the classes that these make.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from kidxlib.errors import UnreadableMessageError
from kidxlib.format.kafka_release import NEWEST, KafkaRelease
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.interpreter import Values
from kidxlib.messages.typed_records import REMOTE_LOG_METADATA, FramedMessage, read_framed, write_framed


class SegmentState(enum.Enum):
    """`RemoteLogSegmentState`."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(enum.Enum):
    """`RemotePartitionDeleteState`."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition with its topic's id: the topic may have been deleted and created again."""

    topic_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegmentId:
    """The id of a remote segment. Each attempt to copy a segment has another id."""

    partition: TopicIdPartition
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentFacts:
    """The common fields of segments and their snapshots.

    Attributes:
        start_offset, end_offset: of the records, both inclusive.
        max_timestamp_ms: the largest timestamp of the records.
        event_timestamp_ms: when this was written.
        segment_bytes: the size of the log.
        leader_epochs: the first offset of each epoch, in order.
        custom_metadata: the storage plugin's own data; None if it has none.
        transaction_index_empty: the transaction index is empty and was not copied.
    """

    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_bytes: int
    leader_epochs: Mapping[int, int]
    custom_metadata: bytes | None
    state: SegmentState
    transaction_index_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment(_SegmentFacts):
    """A segment that is copied, or was: `RemoteLogSegmentMetadata`."""

    segment: RemoteSegmentId


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentUpdate:
    """A remote segment's new state: `RemoteLogSegmentMetadataUpdate`. The fields are those of `RemoteSegment`."""

    segment: RemoteSegmentId
    custom_metadata: bytes | None
    state: SegmentState
    event_timestamp_ms: int
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDelete:
    """A partition whose remote segments are to be deleted: `RemotePartitionDeleteMetadata`."""

    partition: TopicIdPartition
    state: PartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentSnapshot(_SegmentFacts):
    """A segment in a snapshot of a partition's metadata: `RemoteLogSegmentMetadataSnapshot`. No Kafka writes it."""

    id: str


RemoteLogMetadata: TypeAlias = RemoteSegment | RemoteSegmentUpdate | RemotePartitionDelete | RemoteSegmentSnapshot
_State = TypeVar("_State", SegmentState, PartitionDeleteState)


#: Java's message when `DumpLogSegments` takes the size of a null value.
_NO_VALUE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def read_remote_log_metadata(
    value: bytes | None, release: KafkaRelease = NEWEST
) -> tuple[FramedMessage, RemoteLogMetadata]:
    """Read the message of tiered storage in a record's value (`RemoteLogMetadataSerde.deserialize`)."""
    if value is None:
        raise UnreadableMessageError("bytes, not null", _NO_VALUE)
    framed = read_framed(value, REMOTE_LOG_METADATA, release)
    values = framed.values
    match framed.message.name:
        case "RemoteLogSegmentMetadataRecord":
            return framed, _segment(values)
        case "RemoteLogSegmentMetadataUpdateRecord":
            return framed, _update(values)
        case "RemotePartitionDeleteMetadataRecord":
            return framed, _partition_delete(values)
        case _:
            return framed, _snapshot(values)


def write_remote_log_metadata(metadata: RemoteSegment | RemoteSegmentUpdate) -> bytes:
    """The record's value that `read_remote_log_metadata` reads (`RemoteLogMetadataSerde.serialize`)."""
    values: dict[str, Any] = {
        "remoteLogSegmentId": _id_of(metadata.segment),
        "brokerId": metadata.broker_id,
        "eventTimestampMs": metadata.event_timestamp_ms,
        "customMetadata": metadata.custom_metadata,
        "remoteLogSegmentState": metadata.state.value,
    }
    if isinstance(metadata, RemoteSegment):
        values |= {
            "startOffset": metadata.start_offset,
            "endOffset": metadata.end_offset,
            "maxTimestampMs": metadata.max_timestamp_ms,
            "segmentLeaderEpochs": [
                {"leaderEpoch": epoch, "offset": offset} for epoch, offset in metadata.leader_epochs.items()
            ],
            "segmentSizeInBytes": metadata.segment_bytes,
            "txnIndexEmpty": metadata.transaction_index_empty,
        }
    update = "" if isinstance(metadata, RemoteSegment) else "Update"
    message = messages_of(REMOTE_LOG_METADATA)[f"RemoteLogSegmentMetadata{update}Record"]
    return write_framed(FramedMessage(message, 0, values))


def _id_of(segment: RemoteSegmentId) -> Values:
    of = segment.partition
    return {"topicIdPartition": {"name": of.topic, "id": of.topic_id, "partition": of.partition}, "id": segment.id}


def _segment(values: Values) -> RemoteSegment:
    start_offset, end_offset = values["startOffset"], values["endOffset"]
    if start_offset < 0:
        raise UnreadableMessageError(
            "a start offset from 0 on",
            f"Unexpected start offset = {start_offset}. StartOffset for a remote segment cannot be negative",
        )
    if end_offset < start_offset:
        raise UnreadableMessageError(
            f"an end offset from {start_offset} on",
            f"Unexpected end offset = {end_offset}. EndOffset for a remote segment cannot be less than startOffset = "
            f"{start_offset}",
        )
    return RemoteSegment(
        segment=_segment_id(values["remoteLogSegmentId"]),
        leader_epochs=_leader_epochs(values),
        state=_segment_state(values),
        **_facts(values),
    )


def _snapshot(values: Values) -> RemoteSegmentSnapshot:
    state = _segment_state(values)  # first, as in Kafka, which fails on it before the epochs
    return RemoteSegmentSnapshot(
        id=values["segmentId"], state=state, leader_epochs=_leader_epochs(values), **_facts(values)
    )


def _facts(values: Values) -> dict[str, Any]:
    """The common fields of segments and their snapshots, from a message."""
    return {
        "start_offset": values["startOffset"],
        "end_offset": values["endOffset"],
        "max_timestamp_ms": values["maxTimestampMs"],
        "broker_id": values["brokerId"],
        "event_timestamp_ms": values["eventTimestampMs"],
        "segment_bytes": values["segmentSizeInBytes"],
        "custom_metadata": values["customMetadata"],
        "transaction_index_empty": values["txnIndexEmpty"],
    }


def _update(values: Values) -> RemoteSegmentUpdate:
    return RemoteSegmentUpdate(
        segment=_segment_id(values["remoteLogSegmentId"]),
        custom_metadata=values["customMetadata"],
        state=_segment_state(values),
        event_timestamp_ms=values["eventTimestampMs"],
        broker_id=values["brokerId"],
    )


def _partition_delete(values: Values) -> RemotePartitionDelete:
    return RemotePartitionDelete(
        partition=_partition(values["topicIdPartition"]),
        state=_state(PartitionDeleteState, values["remotePartitionDeleteState"], None),
        event_timestamp_ms=values["eventTimestampMs"],
        broker_id=values["brokerId"],
    )


def _segment_id(values: Values) -> RemoteSegmentId:
    return RemoteSegmentId(_partition(values["topicIdPartition"]), values["id"])


def _partition(values: Values) -> TopicIdPartition:
    return TopicIdPartition(values["id"], values["name"], values["partition"])


def _leader_epochs(values: Values) -> dict[int, int]:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in values["segmentLeaderEpochs"]}
    if not epochs:
        raise UnreadableMessageError("one leader epoch or more", "segmentLeaderEpochs can not be null or empty")
    return dict(sorted(epochs.items()))


def _segment_state(values: Values) -> SegmentState:
    return _state(SegmentState, values["remoteLogSegmentState"], "state can not be null")


def _state(states: type[_State], number: int, message: str | None) -> _State:
    try:
        return states(number)
    except ValueError:
        raise UnreadableMessageError(f"a state from 0 to {len(states) - 1}, not {number}", message) from None
