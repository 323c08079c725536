"""Records of `__remote_log_metadata`.

Source: `DumpLogSegments.RemoteMetadataLogMessageParser`, and `toString` of what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from kidxlib.dump.decoders.cluster_metadata import framed_fields
from kidxlib.dump.decoders.decoded import Decoded, Part
from kidxlib.errors import UnreadableMessageError
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
from kidxlib.records.reader import Record


def decode_remote_log_metadata(record: Record) -> Decoded:
    """A record of `__remote_log_metadata` (`--remote-log-metadata-decoder`)."""
    try:
        framed, metadata = read_remote_log_metadata(record.value)
    except UnreadableMessageError as error:
        text = f"Error at offset {record.offset}, skipping. {error.message or 'null'}"
        return Decoded(None, Part(text, text), is_whole=False)
    return Decoded(None, Part(framed_fields(framed), _text(metadata)))


def _text(metadata: RemoteLogMetadata) -> str:
    match metadata:
        case RemoteSegment():
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment(metadata.segment)}, "
                f"startOffset={metadata.start_offset}, endOffset={metadata.end_offset}, brokerId={metadata.broker_id}, "
                f"maxTimestampMs={metadata.max_timestamp_ms}, eventTimestampMs={metadata.event_timestamp_ms}, "
                f"segmentLeaderEpochs={_epochs(metadata.leader_epochs)}, "
                f"segmentSizeInBytes={metadata.segment_bytes}, customMetadata={_custom(metadata.custom_metadata)}, "
                f"state={metadata.state.name}, txnIdxEmpty={_boolean(metadata.transaction_index_empty)}}}"
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
                f"state={metadata.state.name}, txnIdxEmpty={_boolean(metadata.transaction_index_empty)}}}"
            )


def _segment(segment: RemoteSegmentId) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(segment.partition)}, id={segment.id}}}"


def _partition(partition: TopicIdPartition) -> str:
    return f"{partition.topic_id}:{partition.topic}-{partition.partition}"


def _epochs(epochs: Mapping[int, int]) -> str:
    return f"{{{', '.join(f'{epoch}={offset}' for epoch, offset in epochs.items())}}}"


def _custom(metadata: bytes | None) -> str:
    return "Optional.empty" if metadata is None else f"Optional[CustomMetadata{{{len(metadata)} bytes}}]"


def _boolean(value: bool) -> str:
    return "true" if value else "false"
