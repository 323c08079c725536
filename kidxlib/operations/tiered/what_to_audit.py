"""Plans an audit of tiered storage: which partitions are compared, how their topics are configured, and which segments
are read, in shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kidxlib.audit.tiered.finding import METADATA, CopiedSegmentRow, Level, RemoteFindingRow, RemoteSegmentKey, broken
from kidxlib.audit.tiered.listing import AsOf, Copying, RemotePartition
from kidxlib.audit.tiered.remote_segment import RemoteSegmentToRead
from kidxlib.catalog.matching import Values
from kidxlib.engine.shares import cut_by_weight
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.java import parse_integer
from kidxlib.log.remote.layout import Layout
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.log.remote.segments import LINEAGE_BREAKS, REMOTE_METADATA
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.tiered.remote_metadata import RemoteMetadata
from kidxlib.operations.tiered.tiered_request import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    RETENTION_MS,
    TieredRequest,
)
from kidxlib.recovery.options import RecoverOptions
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE
from kidxlib.run.index_options import options_of_topic
from kidxlib.storage.location import Location

#: The largest share: about a second of work.
_SHARE_SEGMENTS: Final = 64
_SHARE_BYTES: Final = 1024**3
_T = TypeVar("_T")

_COPY_DISABLE = "remote.log.copy.disable"
_COPY_LAG_MS, _COPY_LAG_BYTES = "remote.copy.lag.ms", "remote.copy.lag.bytes"
#: The value of a lag that stands for `local.retention`.
_SAME_AS_LOCAL_RETENTION = -2


@dataclass(frozen=True, slots=True)
class TopicsOfTiered:
    """The configurations of topics, looked up by id as well: another topic may have had the same name."""

    request: TieredRequest

    def retention_ms(self, partition: TopicIdPartition) -> int | None:
        """For how many ms the topic of a partition keeps records; negative: for ever; None: not known."""
        return self.setting(partition.topic, partition.topic_id, RETENTION_MS)

    def setting(self, topic: str, topic_id: str, name: str) -> int | None:
        """A topic's setting that is a number; None: not known."""
        source = self._source_of(topic, topic_id)
        return None if source is None else self._config_as_integer(source, topic, name)

    def is_copied(self, topic: str, topic_id: str) -> bool | None:
        """Whether brokers copy a topic's segments (`remote.storage.enable`); None: not known."""
        source = self._source_of(topic, topic_id)
        config = None if source is None else self.request.known_topics.config(source.name, topic, REMOTE_STORAGE_ENABLE)
        return None if config is None else config.value == "true"

    def copying(self, topic: str, topic_id: str) -> Copying:
        """Whether and when brokers copy a topic's segments, by its settings."""
        source = self._source_of(topic, topic_id)
        if source is None:
            return Copying()
        own = self.request.known_topics.of_sources[source.name].metadata.topic_configs.get(topic, {})
        is_on = self.is_copied(topic, topic_id) is not False and own.get(_COPY_DISABLE) != "true"
        lags = [parse_integer(own.get(name, "0"), 64) or 0 for name in (_COPY_LAG_MS, _COPY_LAG_BYTES)]
        limits = (self.setting(topic, topic_id, name) for name in (LOCAL_RETENTION_MS, LOCAL_RETENTION_BYTES))
        ms, bytes_ = (
            max((limit or 0) if lag == _SAME_AS_LOCAL_RETENTION else lag, 0)
            for lag, limit in zip(lags, limits, strict=True)
        )
        return Copying(is_on, ms, bytes_)

    def copied(self) -> Iterator[tuple[str, str]]:
        """The names and ids of topics that brokers copy by a cluster's metadata."""
        for of_source in self.request.known_topics.of_sources.values():
            for topic, topic_id in of_source.metadata.topics.items():
                if self.request.topics.fullmatch(topic) and self.is_copied(topic, topic_id):
                    yield topic, topic_id

    def options(self, partition: TopicIdPartition, directory: Location) -> RecoverOptions:
        """The options with which a partition's indexes are made."""
        source = self._source_of(partition.topic, partition.topic_id) or self.request.metadata[0]
        place = PartitionDirectory(source, TopicPartition(partition.topic, partition.partition), directory)
        interval_bytes, known = self.request.interval_bytes, self.request.known_topics
        options = options_of_topic(known, place, interval_bytes=interval_bytes, max_index_bytes=None)
        return options.of_id(partition.topic_id)

    def outliving_metadata(self, partitions: frozenset[TopicIdPartition]) -> Iterator[RemoteFindingRow]:
        """A finding on each topic that keeps records for longer than the metadata of its segments is kept."""
        topics = {(partition.topic, partition.topic_id) for partition in partitions}
        for topic, topic_id in sorted(topics):
            source = self._source_of(topic, topic_id) if self.request.topics.fullmatch(topic) else None
            if source is None:
                continue
            of_metadata = self._config_as_integer(source, REMOTE_LOG_METADATA_TOPIC, RETENTION_MS)
            of_topic = self._config_as_integer(source, topic, RETENTION_MS)
            if of_metadata is None or of_topic is None or not 0 <= of_metadata < (of_topic if of_topic >= 0 else 2**63):
                continue
            kept = "for ever" if of_topic < 0 else f"for {timedelta(milliseconds=of_topic)}"
            finding = broken(
                METADATA,
                "metadata-expires-first",
                f"{REMOTE_LOG_METADATA_TOPIC} keeps records for {timedelta(milliseconds=of_metadata)}, this one {kept}",
                "a segment whose metadata has gone is lost to brokers: nobody reads its records or deletes its objects",
            )
            all_partitions = TopicIdPartition(topic_id, topic, -1)
            yield RemoteFindingRow.found(all_partitions, RemoteSegmentKey(start_offset=0, segment_id=None), finding)

    def _source_of(self, topic: str, topic_id: str) -> Source | None:
        known = self.request.known_topics
        sources = self.request.metadata
        return next((source for source in sources if known.topic_id(source.name, topic) == topic_id), None)

    def _config_as_integer(self, source: Source, topic: str, name: str) -> int | None:
        config = self.request.known_topics.config(source.name, topic, name)
        return None if config is None else parse_integer(config.value, 64)


@dataclass(frozen=True, slots=True)
class TieredPlan:
    """How partitions are audited.

    Attributes:
        bucket: the directory of the partitions' directories.
        directories: the partitions' directories that exist.
        is_recorded: whether listed segments are recorded.
    """

    layout: Layout
    bucket: Location
    directories: Mapping[TopicIdPartition, Location]
    topics: TopicsOfTiered
    level: Level
    as_of: AsOf
    is_recorded: bool = False

    def partitions(
        self, metadata: RemoteMetadata, only: Collection[TopicIdPartition] | None = None
    ) -> list[RemotePartition]:
        """The partitions that the metadata has, or that have a directory, in order."""
        segments = by_partition(metadata.segments, "start_offset")
        forgotten = by_partition(metadata.forgotten, "start_offset")
        breaks = by_partition(metadata.breaks, "segment_start_offset")
        partitions = sorted(
            {*segments, *self.directories},
            key=lambda partition: (partition.topic, partition.partition, partition.topic_id),
        )
        return [
            RemotePartition(
                partition=partition,
                layout=self.layout,
                directory=self.directory(partition),
                segments=segments.get(partition, REMOTE_METADATA.empty_table()),
                breaks=breaks.get(partition, LINEAGE_BREAKS.empty_table()),
                knows_metadata=metadata.knows(partition),
                begins_late=metadata.begins_late_for(partition),
                forgotten=forgotten.get(partition, REMOTE_METADATA.empty_table()),
                flag_since=metadata.flag_since,
                retention_ms=self.topics.retention_ms(partition),
                as_of=self.as_of,
                level=self.level,
                copying=self.topics.copying(partition.topic, partition.topic_id),
                is_recorded=self.is_recorded,
            )
            for partition in partitions
            if only is None or partition in only
        ]

    def shares(
        self,
        segments: Iterable[CopiedSegmentRow],
        flag_since: Mapping[int, int],
        only: Callable[[CopiedSegmentRow], bool] = lambda row: True,
    ) -> Iterator[Sequence[RemoteSegmentToRead]]:
        """The segments whose bytes are read, in shares of consecutive segments of one partition. `segments` are all
        segments of the partitions: a segment is read with those before it.
        """
        ordered = sorted(segments, key=lambda row: (row.topic, row.topic_id, row.partition, row.start_offset))
        for _, of_partition in groupby(ordered, key=lambda row: (row.topic_id, row.partition)):
            rows = list(of_partition)
            wanted = [row.segment_id for row in rows if only(row)]
            if wanted:
                to_read = self._segments_to_read_by_id(rows, flag_since)
                yield from _divide_into_shares([to_read[segment_id] for segment_id in wanted])

    def _segments_to_read_by_id(
        self, rows: Sequence[CopiedSegmentRow], flag_since: Mapping[int, int]
    ) -> dict[str, RemoteSegmentToRead]:
        """The segments of a partition by id."""
        first = rows[0]
        partition = TopicIdPartition(first.topic_id, first.topic, first.partition)
        directory = self.directory(partition)
        options, kafka = self.topics.options(partition, directory), self.topics.request.kafka
        segments = [
            RemoteSegmentToRead(
                partition=partition,
                layout=self.layout,
                directory=directory,
                names={item["suffix"]: item["name"] for item in row.objects},
                segment_id=row.segment_id,
                start_offset=row.start_offset,
                end_offset=row.end_offset,
                log_bytes=row.log_bytes,
                max_timestamp_ms=row.max_timestamp_ms,
                leader_epochs=tuple(EpochEntry(epoch["epoch"], epoch["start_offset"]) for epoch in row.leader_epochs),
                has_aborted=_has_aborted_by_metadata(row, flag_since),
                before=None,
                options=options,
                kafka=kafka,
            )
            for row in rows
        ]
        ends = Counter(segment.end_offset + 1 for segment in segments)
        by_end = {segment.end_offset + 1: segment for segment in segments if ends[segment.end_offset + 1] == 1}
        return {
            segment.segment_id: _with_segment_before(_with_segment_before(segment, by_end), by_end)
            for segment in segments
        }

    def directory(self, partition: TopicIdPartition) -> Location:
        return self.directories.get(partition, self.bucket / self.layout.partition_path(partition))


def by_partition(rows: pa.Table, order: str) -> dict[TopicIdPartition, pa.Table]:
    """The rows of each partition in the order of a column. They are copies: a slice would be sent to a worker with
    all rows.
    """
    if not rows.num_rows:
        return {}
    rows = rows.sort_by([(name, "ascending") for name in ("topic_id", "partition", order)])
    ids: Values = pc.dictionary_encode(rows["topic_id"].combine_chunks())
    keys = np.column_stack([ids.indices.to_numpy(), rows["partition"].to_numpy()])
    begins = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1), axis=1))
    firsts = rows.select(["topic_id", "topic", "partition"]).take(begins).to_pylist()
    parts = np.split(np.arange(rows.num_rows), begins[1:])
    return {
        TopicIdPartition(first["topic_id"], first["topic"], first["partition"]): rows.take(part)
        for first, part in zip(firsts, parts, strict=True)
    }


def units_of(items: Sequence[_T], cores: int) -> list[Sequence[_T]]:
    count = max(1, min(len(items), cores * BINS_PER_CORE))
    return [part for number in range(count) if (part := items[number::count])]


def _divide_into_shares(segments: Sequence[RemoteSegmentToRead]) -> Iterator[Sequence[RemoteSegmentToRead]]:
    weights = [max(segment.log_bytes, _SHARE_BYTES // _SHARE_SEGMENTS) for segment in segments]
    for start, end in cut_by_weight(weights, _SHARE_BYTES):
        yield tuple(segments[start:end])


def _with_segment_before(
    segment: RemoteSegmentToRead, by_end: Mapping[int, RemoteSegmentToRead]
) -> RemoteSegmentToRead:
    """The segment with the one before it. If it has that already, the one before that is set, too.
    `by_end` has segments by the first offset after them.
    """
    before = segment.before or by_end.get(segment.start_offset)
    if before is None:
        return segment
    if segment.before is not None:
        before = _with_segment_before(before, by_end)
    return replace(segment, before=before)


def _has_aborted_by_metadata(row: CopiedSegmentRow, flag_since: Mapping[int, int]) -> bool | None:
    """Whether transactions were aborted in a segment by the metadata; None: the metadata does not say."""
    if row.transaction_index_empty:
        return False
    since = flag_since.get(row.broker_id)
    return True if since is not None and since <= row.copied_at_ms else None
