"""Records of `__remote_log_metadata` that no broker wrote, and logs of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.messages.definitions import messages_of
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.messages.typed_records import REMOTE_LOG_METADATA, FramedMessage, write_framed
from kidxlib.records.reader import Record
from tests.support.logs import encoded

SEGMENT: Final = "RemoteLogSegmentMetadataRecord"
UPDATE: Final = "RemoteLogSegmentMetadataUpdateRecord"
PARTITION_DELETE: Final = "RemotePartitionDeleteMetadataRecord"


def segment(
    partition: TopicIdPartition,
    segment_id: str,
    offsets: tuple[int, int],
    *,
    epochs: Mapping[int, int] | None = None,
    at_ms: int = 0,
    log_bytes: int = 1,
    max_timestamp_ms: int = 0,
    has_aborted: bool = False,
) -> FramedMessage:
    """The record of a segment whose copying begins at a time. It has the first and the last of `offsets`; `epochs` has
    the first offsets of epochs, by default of epoch 0.
    """
    values = {
        "remoteLogSegmentId": _id(partition, segment_id),
        "startOffset": offsets[0],
        "endOffset": offsets[1],
        "brokerId": 1,
        "maxTimestampMs": max_timestamp_ms,
        "eventTimestampMs": at_ms,
        "segmentLeaderEpochs": [
            {"leaderEpoch": epoch, "offset": offset} for epoch, offset in (epochs or {0: offsets[0]}).items()
        ],
        "segmentSizeInBytes": log_bytes,
        "customMetadata": None,
        "remoteLogSegmentState": SegmentState.COPY_SEGMENT_STARTED.value,
        "txnIndexEmpty": not has_aborted,
    }
    return FramedMessage(messages_of(REMOTE_LOG_METADATA)[SEGMENT], 0, values)


def update(partition: TopicIdPartition, segment_id: str, state: SegmentState, at_ms: int = 0) -> FramedMessage:
    values = {
        "remoteLogSegmentId": _id(partition, segment_id),
        "brokerId": 1,
        "eventTimestampMs": at_ms,
        "customMetadata": None,
        "remoteLogSegmentState": state.value,
    }
    return FramedMessage(messages_of(REMOTE_LOG_METADATA)[UPDATE], 0, values)


def copied(
    partition: TopicIdPartition, segment_id: str, offsets: tuple[int, int], **fields: Any
) -> list[FramedMessage]:
    finished = SegmentState.COPY_SEGMENT_FINISHED
    at_ms = fields.get("at_ms", 0)
    return [segment(partition, segment_id, offsets, **fields), update(partition, segment_id, finished, at_ms)]


def write_metadata(log_dir: Path, number: int, messages: Iterable[FramedMessage]) -> Path:
    """Write the log of one metadata partition in place of a former one. A record has the time of its message."""
    records = [
        Record(offset, message.values["eventTimestampMs"], None, write_framed(message))
        for offset, message in enumerate(messages)
    ]
    directory = log_dir / f"{REMOTE_LOG_METADATA_TOPIC}-{number}"
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.glob(f"*{LOG_SUFFIX}"):
        path.unlink()
    batches = (encoded.batch_v2(records[begin : begin + 1000]) for begin in range(0, len(records), 1000))
    (directory / segment_file(0, LOG_SUFFIX)).write_bytes(b"".join(batches))
    return directory


def _id(partition: TopicIdPartition, segment_id: str) -> dict[str, Any]:
    topic_id_partition = {"name": partition.topic, "id": partition.topic_id, "partition": partition.partition}
    return {"topicIdPartition": topic_id_partition, "id": segment_id}
