"""Reads the partitions of `__remote_log_metadata` in log dirs; partitions that have grown are read again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.tiered.listing import flag_since
from kidxlib.catalog.matching import runs
from kidxlib.errors import UsageError, describe_error
from kidxlib.log.remote.metadata_topic import (
    REMOTE_LOG_METADATA_TOPIC,
    ExportedMetadataPartition,
    MetadataTopicPartition,
    metadata_partition,
    metadata_partitions,
    possible_counts,
)
from kidxlib.log.remote.segments import LINEAGE_BREAKS, REMOTE_METADATA, FoldedMetadata, fold_remote_segments
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.tiered.tiered_request import TieredRequest
from kidxlib.storage.location import Location
from kidxlib.terminal.console import begin_phase, warn


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMetadata:
    """The contents of `__remote_log_metadata`.

    Attributes:
        segments, breaks: rows of `REMOTE_METADATA` and of `LINEAGE_BREAKS`.
        flag_since: since when each broker is known to record that a segment has no transaction index.
        known: the partitions of topics that have records here.
        read: the metadata partitions that were read.
        possible_counts: how many metadata partitions there may be; empty if no number fits all records.
        begins_late: metadata partitions whose first records are gone, or below the log start.
        forgotten: rows of `REMOTE_METADATA` whose records are below the log start of the metadata partition: they are
            still there, but a starting broker does not read them.
        last_ms: the time of the latest record, ms since the epoch; None without a record.
    """

    segments: pa.Table
    breaks: pa.Table
    flag_since: Mapping[int, int]
    known: frozenset[TopicIdPartition]
    read: frozenset[int]
    possible_counts: Sequence[int]
    begins_late: Sequence[int]
    forgotten: pa.Table
    records: int
    last_ms: int | None

    @property
    def partitions(self) -> int | None:
        """The number of metadata partitions; None if it is not certain."""
        return self.possible_counts[0] if len(self.possible_counts) == 1 else None

    def begins_late_for(self, partition: TopicIdPartition) -> bool:
        """Whether the metadata partition of a topic's partition has lost its first records."""
        return any(metadata_partition(partition, count) in self.begins_late for count in self.possible_counts)

    def knows(self, partition: TopicIdPartition) -> bool:
        """Whether all metadata of a partition was certainly read."""
        if partition in self.known or not self.possible_counts:
            return partition in self.known
        return all(metadata_partition(partition, count) in self.read for count in self.possible_counts)


@dataclass(slots=True)
class RemoteMetadataReader:
    places: Sequence[Location]
    topics: re.Pattern[str]
    _read: dict[int, _FoldedPartition] = field(default_factory=dict)

    def read(self) -> RemoteMetadata:
        """The metadata as it is now."""
        partitions = metadata_partitions(self.places)
        for number, partition in partitions.items():
            known = self._read.get(number)
            if known is None or (known.partition, known.log_start_offset) != (partition, partition.log_start_offset):
                self._read[number] = _fold_partition(partition)
        read = {number: self._read[number] for number in partitions}
        folded = [part.all for part in read.values()]
        seen = [(partition, number) for number, part in read.items() for partition in part.all.partitions]
        segments = pa.concat_tables([REMOTE_METADATA.empty_table(), *(part.segments for part in folded)])
        breaks = pa.concat_tables([LINEAGE_BREAKS.empty_table(), *(part.breaks for part in folded)])
        return RemoteMetadata(
            segments=self._rows_of_topics(segments),
            breaks=self._rows_of_topics(breaks),
            flag_since=flag_since(segments),
            known=frozenset(partition for partition, _ in seen),
            read=frozenset(partitions),
            possible_counts=possible_counts(seen, max(partitions, default=-1)),
            begins_late=[number for number, partition in read.items() if partition.log_start_offset > 0],
            forgotten=self._rows_of_topics(
                pa.concat_tables([REMOTE_METADATA.empty_table(), *(partition.forgotten for partition in read.values())])
            ),
            records=sum(part.records for part in folded),
            last_ms=max((part.last_ms for part in folded if part.last_ms is not None), default=None),
        )

    def _rows_of_topics(self, rows: pa.Table) -> pa.Table:
        wanted = [topic for topic in map(str, pc.unique(rows["topic"]).to_pylist()) if self.topics.fullmatch(topic)]
        return rows.filter(pc.is_in(rows["topic"], pa.array(wanted, pa.string())))


@dataclass(frozen=True, slots=True)
class _FoldedPartition:
    """A metadata partition that was read: the result of all its records, and the rows of segments that only records
    below its log start tell of.
    """

    partition: MetadataTopicPartition | ExportedMetadataPartition
    log_start_offset: int
    all: FoldedMetadata
    forgotten: pa.Table


def _fold_partition(partition: MetadataTopicPartition | ExportedMetadataPartition) -> _FoldedPartition:
    start, of_all = partition.log_start_offset, fold_remote_segments(partition.records())
    if start <= partition.start_offset:
        return _FoldedPartition(partition, start, of_all, REMOTE_METADATA.empty_table())
    left = fold_remote_segments(record for record in partition.records() if record.offset >= start).segments
    is_known = pc.is_in(of_all.segments["segment_id"], value_set=left["segment_id"].combine_chunks())
    return _FoldedPartition(partition, start, of_all, of_all.segments.filter(pc.invert(is_known)))


def split_by_partition(rows: pa.Table, order: str) -> dict[TopicIdPartition, pa.Table]:
    """The remote metadata's rows of each partition, in the order of a column. They are copies: a slice would be sent to
    a worker with all rows.
    """
    rows = rows.sort_by([(name, "ascending") for name in ("topic_id", "partition", order)])
    parts = list(runs([rows[name].combine_chunks() for name in ("topic_id", "partition")]))
    firsts = rows.select(["topic_id", "topic", "partition"]).take(pa.array([start for start, _ in parts], pa.int64()))
    return {
        TopicIdPartition(**first): rows.take(np.arange(start, end))
        for first, (start, end) in zip(firsts.to_pylist(), parts, strict=True)
    }


def read_remote_metadata(reader: RemoteMetadataReader, request: TieredRequest) -> RemoteMetadata:
    """Read the metadata of remote segments for an audit or a repair of a bucket. Warn if it is not complete."""
    begin_phase("reading the metadata")
    try:
        metadata = reader.read()
    except OSError as error:
        raise UsageError(f"--tiered-metadata: {describe_error(error)}") from error
    if not metadata.read:
        places = ", ".join(map(str, request.places))
        raise UsageError(
            f"--tiered-metadata {places}: no partition of {REMOTE_LOG_METADATA_TOPIC} is there; name a log "
            "dir or an export that has it"
        )
    if not metadata.possible_counts:
        warn(
            f"records of {REMOTE_LOG_METADATA_TOPIC} are not where Kafka looks for them: the topic was given more "
            "partitions, or is of two clusters; objects of partitions without a record are not judged"
        )
    for number in metadata.begins_late:
        warn(
            f"{REMOTE_LOG_METADATA_TOPIC}-{number}: its first records are gone, or below its log start; brokers do not "
            "know segments that are only in these"
        )
    return metadata
