"""How storage plugins name the objects of remote segments, and which objects a partition has in a bucket.

`LocalTieredStorage`, Kafka's own plugin, puts files of remote segments into a folder: a partition has a directory
`<topic>-<partition>-<topic id>`, a file is `<start offset>-<segment id><suffix>`. Source: `LocalTieredStorage`,
`RemoteTopicPartitionDirectory`, `RemoteLogSegmentFileset`.

Aiven's plugin, Tiered Storage for Apache Kafka, writes a log, one object with all indexes, and a manifest. A topic has
a directory `<topic>-<topic id>`, with a directory for each partition, named by its number. Source: `ObjectKeyFactory`,
`SegmentManifestV1`, `SegmentIndexesV1` of the plugin's version 1.1.1. Tested with its published test vectors, and with
objects that it wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.errors import RemoteLogMetadataError, UsageError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.format.topic_partition import PARTITION_MAX, is_topic_name
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.storage.location import Directory, Location, entries_in, not_packed
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.text.times import NS_PER_MS

#: The object with the leader epochs of a segment.
EPOCHS_SUFFIX: Final = ".leader_epoch_checkpoint"
#: The parts of a segment, some of them optional, in whichever objects they are.
PARTS: Final = (
    *(LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX, EPOCHS_SUFFIX),
    TRANSACTION_INDEX_SUFFIX,
)

#: The directory that the plugin makes below its setting `dir`.
STORAGE_DIRECTORY: Final = "kafka-tiered-storage"
_DIRECTORY: Final = re.compile(r"(.+)-(0|[1-9][0-9]*)-([A-Za-z0-9_-]{22})")

INDEXES_SUFFIX: Final = ".indexes"
MANIFEST_SUFFIX: Final = ".rsm-manifest"

_TOPIC: Final = re.compile(r"(.+)-([A-Za-z0-9_-]{22})")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]*")
#: Suffixes by the names in a manifest.
_INDEXES: Final = {
    "offset": OFFSET_INDEX_SUFFIX,
    "timestamp": TIME_INDEX_SUFFIX,
    "producerSnapshot": SNAPSHOT_SUFFIX,
    "leaderEpoch": EPOCHS_SUFFIX,
    "transaction": TRANSACTION_INDEX_SUFFIX,
}

#: The names of objects in all layouts.
_OBJECT: Final = r"^(?P<start_offset>0*[0-9]{1,18})-(?P<segment_id>[A-Za-z0-9_-]{22})(?P<suffix>\.[a-z_-]+)$"
#: Objects of one partition.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("name", pa.string(), nullable=False),
    pa.field("start_offset", pa.int64(), nullable=False),
    pa.field("segment_id", pa.string(), nullable=False),
    pa.field("suffix", pa.string(), nullable=False),
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("written_ms", pa.int64(), nullable=False),  # since the epoch; whole seconds in an object store
    pa.field("etag", pa.string()),  # without its quotes; null for a file, and if not requested
]
_OBJECTS: Final = pa.schema(_FIELDS)
_LISTED_NAMES: Final = ["name", "start_offset", "segment_id", "suffix", "bytes", "written_ns", "etag"]
#: Name, bytes, time of writing in ns since the epoch, and ETag.
_Listed: TypeAlias = tuple[str, int, int, str | None]


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """How a plugin of tiered storage names objects.

    Attributes:
        required: the suffixes of the objects that each segment has.
        optional: the suffixes of the objects that some segments have.
        list_partitions: lists the directories of partitions in a bucket, in order of their names. Raises OSError if
            the bucket cannot be listed.
        partition_path: gives the path of a partition's directory in a bucket.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    list_partitions: Callable[[Location], Mapping[TopicIdPartition, Location]]
    partition_path: Callable[[TopicIdPartition], str]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of all objects."""
        return (*self.required, *self.optional)

    @property
    def has_single_files(self) -> bool:
        """Whether each part of a segment is an object of its own, as on a broker's disk."""
        return set(PARTS) == set(self.suffixes)


def local_storage_directory(partition: TopicIdPartition) -> str:
    """The name of a partition's directory in `LocalTieredStorage`."""
    return f"{partition.topic}-{partition.partition}-{partition.topic_id}"


def parse_topic_id_partition(name: str) -> TopicIdPartition | None:
    """The partition whose directory has this name; None if it is not a partition's."""
    match = _DIRECTORY.fullmatch(name)
    if match is None or not is_topic_name(match[1]) or int(match[2]) > PARTITION_MAX:
        return None
    return TopicIdPartition(match[3], match[1], int(match[2]))


def find_bucket(place: Location) -> Location:
    """The directory in a bucket of tiered storage that holds the partitions' directories: `place`, or the plugin's in
    it.
    """
    below = place / STORAGE_DIRECTORY
    is_there = below.is_dir() if isinstance(below, Path) else any(True for _ in below.glob("*"))
    return below if is_there else place


def list_bucket_partitions(bucket: Location) -> dict[TopicIdPartition, Location]:
    """The directories of partitions, in the order of their names."""
    parsed = ((parse_topic_id_partition(place.name), place) for place in entries_in(bucket))
    return {partition: place for partition, place in parsed if partition is not None}


LOCAL: Final = ObjectLayout(
    name="local",
    required=tuple(suffix for suffix in PARTS if suffix != TRANSACTION_INDEX_SUFFIX),
    optional=(TRANSACTION_INDEX_SUFFIX,),
    list_partitions=list_bucket_partitions,
    partition_path=local_storage_directory,
)


def partition_path(partition: TopicIdPartition) -> str:
    """The path of a partition's directory in a bucket."""
    return f"{partition.topic}-{partition.topic_id}/{partition.partition}"


def _list_aiven_partitions(bucket: Location) -> dict[TopicIdPartition, Location]:
    """The directories of partitions, in the order of their paths."""
    directories: dict[TopicIdPartition, Location] = {}
    for topic in entries_in(bucket):
        match = _TOPIC.fullmatch(topic.name)
        if match is None or not is_topic_name(match[1]):
            continue
        for place in entries_in(topic):
            if _PARTITION.fullmatch(place.name) and int(place.name) <= PARTITION_MAX:
                directories[TopicIdPartition(match[2], match[1], int(place.name))] = place
    return directories


AIVEN: Final = ObjectLayout(
    name="aiven",
    required=(LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX),
    optional=(),
    list_partitions=_list_aiven_partitions,
    partition_path=partition_path,
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A segment's manifest.

    Attributes:
        partition, segment_id: whose manifest it is.
        indexes: the position and size of each index in the object of all indexes, in bytes, by suffix.
        log_bytes: the size of the log on the broker.
        is_compressed, is_encrypted: how objects differ from the broker's files.
        start_offset, end_offset, max_timestamp_ms, leader_epochs: as in `RemoteLogSegmentMetadata`.
    """

    partition: TopicIdPartition
    segment_id: str
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
        """Whether objects hold the same bytes as the broker's files."""
        return not self.is_compressed and not self.is_encrypted


def read_manifest(data: bytes) -> Manifest:
    """Read the manifest of a remote segment, as Aiven's plugin writes it."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if str(fields["version"]) != "1":
            raise RemoteLogMetadataError(f"a manifest of version {fields['version']}, expected 1")
        metadata = fields["remoteLogSegmentMetadata"]
        segment = metadata["remoteLogSegmentId"]
        of_topic, of_partition = segment["topicIdPartition"], segment["topicIdPartition"]["topicPartition"]
        indexes = {
            _INDEXES[name]: (int(index["position"]), int(index["size"]))
            for name, index in fields["segmentIndexes"].items()
            if index is not None
        }
        epochs = sorted((int(epoch), int(offset)) for epoch, offset in metadata["segmentLeaderEpochs"].items())
        return Manifest(
            partition=TopicIdPartition(
                str(of_topic["topicId"]), str(of_partition["topic"]), int(of_partition["partition"])
            ),
            segment_id=str(segment["id"]),
            indexes=indexes,
            log_bytes=int(fields["chunkIndex"]["originalFileSize"]),
            is_compressed=bool(fields["compression"]),
            is_encrypted=fields.get("encryption") is not None,
            start_offset=int(metadata["startOffset"]),
            end_offset=int(metadata["endOffset"]),
            max_timestamp_ms=int(metadata["maxTimestampMs"]),
            leader_epochs=tuple(EpochEntry(epoch, offset) for epoch, offset in epochs),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RemoteLogMetadataError(f"no manifest of a segment: {type(error).__name__}: {error}") from error


def ensure_manifest_of_segment(manifest: Manifest, segment_id: str) -> None:
    """Ensure that a remote segment's manifest is that of the segment whose name it has. The plugin goes by what stands
    in it, and would read parts of the segment's objects as another one has them.

    Raises:
        RemoteLogMetadataError: it is another segment's.
    """
    if manifest.segment_id != segment_id:
        raise RemoteLogMetadataError(f"the manifest of segment {manifest.segment_id}, expected that of {segment_id}")


def ensure_manifest_of_partition(manifest: Manifest, partition: TopicIdPartition, place: Location) -> None:
    """Ensure that a manifest lies in its own partition's directory. With a `key.prefix` that does not end with `/`, the
    plugin writes a topic's directory with the prefix in its name (`ObjectKeyFactory.key`).

    Raises:
        UsageError: it is another partition's.
    """
    if manifest.partition != partition:
        raise UsageError(
            f"{place}: the manifest of {partition_path(manifest.partition)}, expected that of "
            f"{partition_path(partition)}: with a key.prefix that does not end with /, or renamed directories, give a "
            "copy of the bucket whose directories have the names of the manifests"
        )


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """What is in a partition's directory.

    Attributes:
        objects: rows of `_OBJECTS`.
        others: names of files or objects that are not a remote segment's.
    """

    objects: pa.Table
    others: Sequence[str]


def object_name(start_offset: int, segment_id: str, suffix: str) -> str:
    """The name of an object in its partition's directory."""
    return f"{start_offset:020d}-{segment_id}{suffix}"


def list_objects(directory: Location, suffixes: Collection[str], *, etags: bool = False) -> ListedObjects:
    """The objects of a partition; none if it has no directory. One request to an object store lists a thousand.

    Args:
        suffixes: the suffixes of objects; files with others are `others`.
        etags: return the ETags of objects in a store, for which `kidx[copies]` is needed.
    """
    place = not_packed(directory)
    listed = _objects_in(place, etags) if isinstance(place, ObjectPath) else _files_in(place)
    return _as_listed(listed, suffixes)


def _objects_in(directory: ObjectPath, etags: bool) -> Iterator[_Listed]:
    if etags:
        from kidxlib.storage.store.client import objects_with_etags  # needs a package of an extra

        paths = objects_with_etags(directory)
    else:
        paths = directory.glob("*")
    for path in paths:
        if (status := path.listed) is not None:
            yield path.name, status.st_size, status.st_mtime_ns, status.etag.strip('"') or None


def _files_in(directory: Path) -> Iterator[_Listed]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it has gone since
                    if entry.is_file():
                        status = entry.stat()
                        yield entry.name, status.st_size, status.st_mtime_ns, None
    except FileNotFoundError:
        return


def _as_listed(entries: Iterable[_Listed], suffixes: Collection[str]) -> ListedObjects:
    names, sizes, times, etags = [list(column) for column in zip(*entries, strict=True)] or ([], [], [], [])
    name = pa.array(names, pa.string())
    parts = pc.extract_regex(name, _OBJECT).flatten()
    numbers = (pa.array(sizes, pa.int64()), pa.array(times, pa.int64()))
    listed = pa.table([name, *parts, *numbers, pa.array(etags, pa.string())], _LISTED_NAMES)
    is_object: Any = pc.is_in(listed["suffix"], value_set=pa.array(list(suffixes)))
    objects = listed.filter(is_object)
    written_ms = pc.divide(objects["written_ns"], NS_PER_MS)
    return ListedObjects(
        objects.append_column("written_ms", written_ms).select(_OBJECTS.names).cast(_OBJECTS),
        [str(name) for name in listed.filter(pc.invert(is_object))["name"].to_pylist()],
    )


def objects_directory(place: Location, layout: ObjectLayout, partition: TopicIdPartition) -> Directory:
    """The directory of a partition's objects in a bucket or a mirror of one."""
    return Directory(str(place), layout.partition_path(partition))
