"""The objects of Aiven's plugin, Tiered Storage for Apache Kafka: a log, all indexes in one object, and a manifest.

A topic has a directory `<topic>-<topic id>`, in it each partition one that is its number.

Source: `ObjectKeyFactory`, `SegmentManifestV1`, `SegmentIndexesV1` of the plugin's version 1. What is read here was
written by its published test vectors, and not by the plugin itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.format.topic_partition import PARTITION_MAX, is_name
from kidxlib.log.remote.layout import EPOCHS_SUFFIX, Layout
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.storage.location import Location, entries_in

INDEXES_SUFFIX: Final = ".indexes"
MANIFEST_SUFFIX: Final = ".rsm-manifest"

_TOPIC: Final = re.compile(r"(.+)-([A-Za-z0-9_-]{22})")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]*")
#: By their names in a manifest.
_INDEXES: Final = {
    "offset": OFFSET_INDEX_SUFFIX,
    "timestamp": TIME_INDEX_SUFFIX,
    "producerSnapshot": SNAPSHOT_SUFFIX,
    "leaderEpoch": EPOCHS_SUFFIX,
    "transaction": TRANSACTION_INDEX_SUFFIX,
}


def partition_path(partition: TopicIdPartition) -> str:
    """The path of a partition's directory."""
    return f"{partition.topic}-{partition.topic_id}/{partition.partition}"


def list_partitions(bucket: Location) -> dict[TopicIdPartition, Location]:
    """The directories of partitions, in the order of their paths.

    Raises:
        OSError: a directory cannot be listed.
    """
    found: dict[TopicIdPartition, Location] = {}
    for topic in entries_in(bucket):
        match = _TOPIC.fullmatch(topic.name)
        if match is None or not is_name(match[1]):
            continue
        for place in entries_in(topic):
            if _PARTITION.fullmatch(place.name) and int(place.name) <= PARTITION_MAX:
                found[TopicIdPartition(match[2], match[1], int(place.name))] = place
    return found


AIVEN: Final = Layout(
    name="aiven",
    required=(LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX),
    optional=(),
    list_partitions=list_partitions,
    partition_path=partition_path,
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says of its segment.

    Attributes:
        indexes: where each part lies in the object of all indexes, by suffix: its position and size, in bytes.
        log_bytes: the size of the log as the broker had it.
        is_compressed, is_encrypted: how objects differ from what the broker had.
        start_offset, end_offset, max_timestamp_ms, leader_epochs: as `RemoteLogSegmentMetadata`.
    """

    indexes: Mapping[str, tuple[int, int]]
    log_bytes: int
    is_compressed: bool
    is_encrypted: bool
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    leader_epochs: tuple[EpochEntry, ...]

    @property
    def is_plain(self) -> bool:
        """Whether objects hold the bytes that the broker had."""
        return not self.is_compressed and not self.is_encrypted


def read_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        RemoteLogMetadataError: it is none of version 1.
    """
    try:
        given: dict[str, Any] = json.loads(data)
        if str(given["version"]) != "1":
            raise RemoteLogMetadataError(f"a manifest of version {given['version']}, expected 1")
        metadata = given["remoteLogSegmentMetadata"]
        indexes = {
            _INDEXES[name]: (int(index["position"]), int(index["size"]))
            for name, index in given["segmentIndexes"].items()
            if index is not None
        }
        epochs = sorted((int(epoch), int(offset)) for epoch, offset in metadata["segmentLeaderEpochs"].items())
        return Manifest(
            indexes=indexes,
            log_bytes=int(given["chunkIndex"]["originalFileSize"]),
            is_compressed=bool(given["compression"]),
            is_encrypted=given.get("encryption") is not None,
            start_offset=int(metadata["startOffset"]),
            end_offset=int(metadata["endOffset"]),
            max_timestamp_ms=int(metadata["maxTimestampMs"]),
            leader_epochs=tuple(EpochEntry(*each) for each in epochs),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RemoteLogMetadataError(f"no manifest of a segment: {type(error).__name__}: {error}") from error
