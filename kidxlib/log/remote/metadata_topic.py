"""Records of `__remote_log_metadata`, from segments of log dirs and backups, or from Parquet files of `kidx export` or
Spark's Kafka source (columns `partition`, `offset`, `timestamp`, `value`, and perhaps `topic`); and which metadata
partition holds the records of a topic's partition.

Source: `RemoteLogMetadataTopicPartitioner`, `Utils.murmur2`, `Objects.hash`.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.errors import (
    CheckpointError,
    MalformedError,
    MalformedRecordsError,
    RemoteLogMetadataError,
    UnreadableMessageError,
)
from kidxlib.format import checkpoint_files
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.java import as_int
from kidxlib.messages.remote_log_metadata import RemoteLogMetadata, TopicIdPartition, read_remote_log_metadata
from kidxlib.records.batch_headers import batches, is_crc_valid
from kidxlib.records.reader import records
from kidxlib.storage.location import Location, entries_in, files_in, not_packed
from kidxlib.storage.log_bytes import LogBytes
from kidxlib.storage.log_dir import read_offset_checkpoint
from kidxlib.storage.opened_log import LogFile
from kidxlib.storage.store.s3 import input_file

EXPORT_SUFFIX: Final = ".parquet"
_COLUMNS: Final = ("partition", "offset", "timestamp", "value")

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
#: More partitions than any metadata topic has.
_PARTITIONS_MAX: Final = 10_000

#: `TopicBasedRemoteLogMetadataManagerConfig.REMOTE_LOG_METADATA_TOPIC_NAME`.
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of a metadata partition."""

    offset: int
    timestamp_ms: int
    metadata: RemoteLogMetadata


def _read_record(path: Location, offset: int, value: bytes | None) -> RemoteLogMetadata:
    """The metadata in a record of a file."""
    try:
        return read_remote_log_metadata(value)[1]
    except UnreadableMessageError as error:
        raise RemoteLogMetadataError(
            f"{path}: record at offset {offset}: expected {error.expected}; it is of a newer Kafka, or of another topic"
        ) from error


@dataclass(frozen=True, slots=True)
class MetadataTopicPartition:
    """A metadata partition in a directory.

    Attributes:
        logs: by base offset, ascending.
        end: the base offset of the last segment and its size in bytes: the copy with the greater `end` has more.
    """

    number: int
    directory: Location
    logs: Mapping[int, Location]
    end: tuple[int, int]

    @property
    def start_offset(self) -> int:
        """The first offset in the directory."""
        return next(iter(self.logs), 0)

    @property
    def log_start_offset(self) -> int:
        """The first offset that a broker returns; earlier records may still be in the directory."""
        name = checkpoint_files.LOG_START_OFFSET_CHECKPOINT
        try:
            starts = read_offset_checkpoint(self.directory.parent / name) or {}
        except (CheckpointError, OSError):
            starts = {}
        return max(self.start_offset, starts.get(TopicPartition(REMOTE_LOG_METADATA_TOPIC, self.number), 0))

    def records(self) -> Iterator[MetadataRecord]:
        """The records, in order, without a torn batch at the very end, which a broker may be writing."""
        last = max(self.logs, default=None)
        for base_offset, path in self.logs.items():
            with contextlib.closing(LogFile(str(path))) as file, file.read_sequentially() as log:
                yield from _records(path, log, is_last=base_offset == last)


@dataclass(frozen=True, slots=True)
class ExportedMetadataPartition:
    """A metadata partition in an export.

    Attributes:
        path: the export's.
        end: the last offset and the number of records: the copy with the greater `end` has more.
        start_offset: the first offset in the export.
        rows: `offset` (int64), `timestamp` (ms since the epoch) and `value` of the records, by offset, without repeats.
    """

    number: int
    path: Location
    end: tuple[int, int]
    start_offset: int
    rows: pa.Table = field(compare=False)

    @property
    def log_start_offset(self) -> int:
        """The first offset of the export, as a consumer wrote it."""
        return self.start_offset

    def records(self) -> Iterator[MetadataRecord]:
        """The records, in order."""
        for batch in self.rows.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                offset, value = row["offset"], row["value"]
                yield MetadataRecord(offset, row["timestamp"], _read_record(self.path, offset, value))


def _exported_partitions(path: Location) -> Iterator[ExportedMetadataPartition]:
    """The metadata partitions in an export.

    Args:
        path: a file, or a directory of files.
    """
    files = [path] if path.is_file() else [file for file in entries_in(path) if file.name.endswith(EXPORT_SUFFIX)]
    if not files:
        return
    rows = pa.concat_tables([_read(file) for file in files]).sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    numbers: list[int] = np.unique(rows["partition"].to_numpy()).tolist()
    for number in numbers:
        of_partition = rows.filter(pc.equal(rows["partition"], pa.scalar(number, pa.int32())))
        offsets: Any = of_partition["offset"].to_numpy()
        is_first = [True, *(offsets[1:] != offsets[:-1])]
        once = of_partition.filter(pa.array(is_first)).drop_columns(["partition"])
        yield ExportedMetadataPartition(number, path, (int(offsets[-1]), once.num_rows), int(offsets[0]), once)


def _read(path: Location) -> pa.Table:
    import pyarrow.parquet as pq  # slow to import, and only exports need it

    try:
        place = not_packed(path)
        source: Any = place if isinstance(place, Path) else input_file(place)
        with pq.ParquetFile(source) as file:
            names = file.schema_arrow.names
            missing = [name for name in _COLUMNS if name not in names]
            if missing:
                raise RemoteLogMetadataError(
                    f"{path}: no column {missing[0]}; expected what kidx export writes of {REMOTE_LOG_METADATA_TOPIC}"
                )
            rows = file.read(columns=[*_COLUMNS, *(["topic"] if "topic" in names else [])])
        if "topic" in names:
            rows = rows.filter(pc.equal(rows["topic"].cast(pa.string()), pa.scalar(REMOTE_LOG_METADATA_TOPIC)))
        return pa.table(
            {
                "partition": rows["partition"].cast(pa.int32()),
                "offset": rows["offset"].cast(pa.int64()),
                "timestamp": _milliseconds(rows["timestamp"]),
                "value": rows["value"].cast(pa.binary()),
            }
        )
    except pa.ArrowException as error:
        raise RemoteLogMetadataError(f"{path}: {error}; export it again") from error


def _milliseconds(times: Any) -> Any:
    if pa.types.is_timestamp(times.type):
        return times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
    return times.cast(pa.int64())


def metadata_partitions(places: Iterable[Location]) -> dict[int, MetadataTopicPartition | ExportedMetadataPartition]:
    """The metadata partitions in some places, by number. The copy with the greatest `end` counts.

    Args:
        places: log dirs, directories of single partitions, or exports.
    """
    partitions: dict[int, MetadataTopicPartition | ExportedMetadataPartition] = {}
    for place in places:
        for partition in _partitions_in(place):
            number = partition.number
            if number not in partitions or partition.end > partitions[number].end:
                partitions[number] = partition
    return dict(sorted(partitions.items()))


def _partitions_in(place: Location) -> Iterator[MetadataTopicPartition | ExportedMetadataPartition]:
    if place.name.endswith(EXPORT_SUFFIX):
        yield from _exported_partitions(place)
    else:
        yield from (_listed(number, directory) for number, directory in _partition_directories(place))


def _partition_directories(directory: Location) -> Iterator[tuple[int, Location]]:
    own = parse_partition_directory(directory.name)
    if own is not None and own.topic == REMOTE_LOG_METADATA_TOPIC:
        yield own.partition, directory
        return
    for place in entries_in(directory):
        partition = parse_partition_directory(place.name)
        if partition is not None and partition.topic == REMOTE_LOG_METADATA_TOPIC:
            yield partition.partition, place


def _listed(number: int, directory: Location) -> MetadataTopicPartition:
    named = ((parse_segment_log(name), path) for name, path in files_in(directory).items())
    logs = dict(sorted((base_offset, path) for base_offset, path in named if base_offset is not None))
    last = max(logs, default=None)
    end = (-1, 0) if last is None else (last, logs[last].stat().st_size)
    return MetadataTopicPartition(number, directory, logs, end)


def _records(path: Location, log: LogBytes, *, is_last: bool) -> Iterator[MetadataRecord]:
    position = 0
    try:
        for batch in batches(log):
            if not is_crc_valid(log, batch):
                break
            if not batch.is_control:
                for record in records(log, batch):
                    yield MetadataRecord(
                        record.offset, record.timestamp, _read_record(path, record.offset, record.value)
                    )
            position = batch.next_position
    except (MalformedError, MalformedRecordsError) as error:
        if not is_last:
            raise RemoteLogMetadataError(f"{path}: {error}; copy the directory again") from error
    if position < log.size and not is_last:
        raise RemoteLogMetadataError(
            f"{path}: byte {position} of {log.size}: no whole batch, and another segment follows; copy the directory "
            "again"
        )


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """The number of the metadata partition for a topic's partition.

    Args:
        partitions: how many partitions the metadata topic has.
    """
    return _positive_hash(partition) % partitions


def possible_counts(seen: Iterable[tuple[TopicIdPartition, int]], highest: int) -> Sequence[int]:
    """How many partitions the metadata topic may have: the counts with which every record is in the right partition.

    Args:
        seen: partitions of topics, each with the number of the metadata partition that has its records.
        highest: the highest number of a metadata partition that was seen.

    Returns:
        Ascending, at most 10,000. Empty if no count fits: the topic has got more partitions since, or the records are
        of two clusters.
    """
    hashes = [(_positive_hash(partition), number) for partition, number in seen]
    return [
        count
        for count in range(highest + 1, _PARTITIONS_MAX + 1)
        if all(hashed % count == number for hashed, number in hashes)
    ]


def _positive_hash(partition: TopicIdPartition) -> int:
    uuid = base64.urlsafe_b64decode(f"{partition.topic_id}==")
    most, least = int.from_bytes(uuid[:8]), int.from_bytes(uuid[8:])
    hashed = 1
    for field_hash in (_long_hash(least), _long_hash(most), partition.partition):
        hashed = as_int(31 * hashed + field_hash)
    return _murmur2((hashed & _MASK).to_bytes(4)) & 0x7FFFFFFF


def _long_hash(value: int) -> int:
    """`Long.hashCode` of 64 bits."""
    return as_int((value ^ value >> 32) & _MASK)


def _murmur2(four: bytes) -> int:
    """`Utils.murmur2` of four bytes."""
    k = int.from_bytes(four, "little") * _M & _MASK
    k = (k ^ k >> _R) * _M & _MASK
    h = (_SEED ^ 4) * _M & _MASK ^ k
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
