"""The objects of `LocalTieredStorage`, Kafka's own storage plugin: it puts files of remote segments into a folder.

A partition has a directory `<topic>-<partition>-<topic id>`, a file is `<start offset>-<segment id><suffix>`.

Source: `LocalTieredStorage`, `RemoteTopicPartitionDirectory`, `RemoteLogSegmentFileset`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kidxlib.format.segment_files import TRANSACTION_INDEX_SUFFIX
from kidxlib.format.topic_partition import PARTITION_MAX, is_name
from kidxlib.log.remote.layout import PARTS, Layout
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.storage.location import Location, entries_in

#: Below the directory that the plugin is given as `dir`.
STORAGE_DIRECTORY: Final = "kafka-tiered-storage"
_DIRECTORY: Final = re.compile(r"(.+)-(0|[1-9][0-9]*)-([A-Za-z0-9_-]{22})")


def partition_directory(partition: TopicIdPartition) -> str:
    """The name of a partition's directory."""
    return f"{partition.topic}-{partition.partition}-{partition.topic_id}"


def parse_partition_directory(name: str) -> TopicIdPartition | None:
    """The partition whose directory is called `name`; None where it is not one's."""
    match = _DIRECTORY.fullmatch(name)
    if match is None or not is_name(match[1]) or int(match[2]) > PARTITION_MAX:
        return None
    return TopicIdPartition(match[3], match[1], int(match[2]))


def find_bucket(place: Location) -> Location:
    """The directory with those of partitions, where the one above it may be given, too."""
    below = place / STORAGE_DIRECTORY
    is_there = below.is_dir() if isinstance(below, Path) else any(True for _ in below.glob("*"))
    return below if is_there else place


def list_partitions(bucket: Location) -> dict[TopicIdPartition, Location]:
    """The directories of partitions, in the order of their names.

    Raises:
        OSError: the bucket cannot be listed.
    """
    named = ((parse_partition_directory(place.name), place) for place in entries_in(bucket))
    return {partition: place for partition, place in named if partition is not None}


LOCAL: Final = Layout(
    name="local",
    required=tuple(suffix for suffix in PARTS if suffix != TRANSACTION_INDEX_SUFFIX),
    optional=(TRANSACTION_INDEX_SUFFIX,),
    list_partitions=list_partitions,
    partition_path=partition_directory,
)
