"""Records of `__remote_log_metadata`, as log dirs and backups have them in the segments of its partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kidxlib.errors import CheckpointError, MalformedError, MalformedRecordsError, RemoteLogMetadataError
from kidxlib.format import checkpoint_files
from kidxlib.format.segment_files import parse_segment_log
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.log.remote.exported_metadata import EXPORT_SUFFIX, ExportedPartition, exported_partitions
from kidxlib.log.remote.metadata_record import REMOTE_LOG_METADATA_TOPIC, MetadataRecord, read_record
from kidxlib.records.batch_headers import batches, is_crc_valid
from kidxlib.records.reader import records
from kidxlib.storage.checkpoints import read_offset_checkpoint
from kidxlib.storage.lazy_log import LogFile
from kidxlib.storage.location import Location, entries_in, files_in
from kidxlib.storage.log_bytes import LogBytes


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """A partition as one directory has it.

    Attributes:
        number: of the partition.
        logs: by base offset, ascending.
        end: the base offset of its last segment and the size of that, in bytes: of two copies the one with more has
            read further.
    """

    number: int
    directory: Location
    logs: Mapping[int, Location]
    end: tuple[int, int]

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return next(iter(self.logs), 0)

    @property
    def log_start_offset(self) -> int:
        """The first offset that a broker gives to who reads the topic: records before it may still be there."""
        name = checkpoint_files.LOG_START_OFFSET_CHECKPOINT
        try:
            starts = read_offset_checkpoint(self.directory.parent / name) or {}
        except (CheckpointError, OSError):
            starts = {}
        return max(self.start_offset, starts.get(TopicPartition(REMOTE_LOG_METADATA_TOPIC, self.number), 0))

    def records(self) -> Iterator[MetadataRecord]:
        """Its records, in order. A batch at the very end that is not whole is left out, as a broker may be writing it.

        Raises:
            RemoteLogMetadataError: the logs are not what a broker writes.
            OSError: one cannot be read.
        """
        last = max(self.logs, default=None)
        for base_offset, path in self.logs.items():
            with contextlib.closing(LogFile(str(path))) as file, file.read_sequentially() as log:
                yield from _records(path, log, is_last=base_offset == last)


def metadata_partitions(places: Iterable[Location]) -> dict[int, MetadataPartition | ExportedPartition]:
    """The partitions that some places have, by number. Of several copies the one that has read furthest counts.

    Args:
        places: log dirs, directories of single partitions, or files with what was exported.

    Raises:
        RemoteLogMetadataError: a file is none of an export.
        OSError: one cannot be read.
    """
    found: dict[int, MetadataPartition | ExportedPartition] = {}
    for place in places:
        for partition in _partitions_in(place):
            number = partition.number
            if number not in found or partition.end > found[number].end:
                found[number] = partition
    return dict(sorted(found.items()))


def _partitions_in(place: Location) -> Iterator[MetadataPartition | ExportedPartition]:
    if place.name.endswith(EXPORT_SUFFIX):
        yield from exported_partitions(place)
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


def _listed(number: int, directory: Location) -> MetadataPartition:
    named = ((parse_segment_log(name), path) for name, path in files_in(directory).items())
    logs = dict(sorted((base_offset, path) for base_offset, path in named if base_offset is not None))
    last = max(logs, default=None)
    end = (-1, 0) if last is None else (last, logs[last].stat().st_size)
    return MetadataPartition(number, directory, logs, end)


def _records(path: Location, log: LogBytes, *, is_last: bool) -> Iterator[MetadataRecord]:
    position = 0
    try:
        for batch in batches(log):
            if not is_crc_valid(log, batch):
                break
            if not batch.is_control:
                for record in records(log, batch):
                    yield MetadataRecord(
                        record.offset, record.timestamp, read_record(path, record.offset, record.value)
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
