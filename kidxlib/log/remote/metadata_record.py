"""A record of `__remote_log_metadata`, wherever it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kidxlib.errors import RemoteLogMetadataError, UnreadableMessageError
from kidxlib.messages.remote_log_metadata import RemoteLogMetadata, read_remote_log_metadata
from kidxlib.storage.location import Location

#: `TopicBasedRemoteLogMetadataManagerConfig.REMOTE_LOG_METADATA_TOPIC_NAME`.
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of a partition.

    Attributes:
        timestamp_ms: as its batch says.
    """

    offset: int
    timestamp_ms: int
    metadata: RemoteLogMetadata


def read_record(path: Location, offset: int, value: bytes | None) -> RemoteLogMetadata:
    """What a record says.

    Args:
        path: the file that has it.

    Raises:
        RemoteLogMetadataError: it is none of this topic.
    """
    try:
        return read_remote_log_metadata(value)[1]
    except UnreadableMessageError as error:
        raise RemoteLogMetadataError(
            f"{path}: record at offset {offset}: expected {error.expected}; it is of a newer Kafka, or of another topic"
        ) from error
