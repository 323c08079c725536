"""The audit of a bucket of tiered storage. A plan says which partitions are compared, how their topics are configured,
and in which shares segments are read. Workers find what is wrong, and the catalog gets their findings.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kidxlib.audit.tiered.listing import Copying, JudgedAsOf, RemotePartition
from kidxlib.audit.tiered.remote_finding import (
    METADATA,
    OBJECTS,
    REMOTE_FOUND,
    AuditLevel,
    CopiedSegmentRow,
    RemoteCountRow,
    RemoteFindingRow,
    RemoteSegmentKey,
    broken_remote,
)
from kidxlib.audit.tiered.remote_segment import RemoteSegmentToRead
from kidxlib.catalog import updates
from kidxlib.catalog.findings import REMOTE_SEGMENTS, RemoteFinding
from kidxlib.catalog.rows import rows_of_columns
from kidxlib.engine.protocol import Engine
from kidxlib.engine.shares import cut_by_weight
from kidxlib.engine.work import StagedRows, Work, reads_little
from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.indexing.bins import BINS_PER_CORE
from kidxlib.indexing.source import PartitionDirectory, Source
from kidxlib.java import parse_long
from kidxlib.log.remote.layout import ObjectLayout
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.log.remote.segments import LINEAGE_BREAKS, REMOTE_METADATA
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.tiered.audit_work import SegmentsToRead, audit_bytes, audit_listings
from kidxlib.operations.tiered.remote_metadata import RemoteMetadata, RemoteMetadataReader, split_by_partition
from kidxlib.operations.tiered.tiered_request import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    RETENTION_MS,
    TieredRecordRequest,
    TieredRequest,
)
from kidxlib.recovery.options import RecoverOptions
from kidxlib.retention.policy import REMOTE_STORAGE_ENABLE
from kidxlib.run.index_options import options_of_topic
from kidxlib.storage.location import Location
from kidxlib.tables.protocol import Tables
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase

#: The largest share: about a second of work.
_SHARE_SEGMENTS: Final = 64
_SHARE_BYTES: Final = 1024**3
_COPY_DISABLE = "remote.log.copy.disable"
_COPY_LAG_MS, _COPY_LAG_BYTES = "remote.copy.lag.ms", "remote.copy.lag.bytes"
#: The value of a lag that stands for `local.retention`.
_SAME_AS_LOCAL_RETENTION = -2
#: Topic id, partition, start offset and segment id.
SegmentRowKey: TypeAlias = tuple[str, int, int, str]
_SEGMENT_KEY: Final = ("topic_id", "partition", "start_offset", "segment_id")
_FINDING_COLUMNS: Final = tuple(RemoteFinding.__annotations__)


@dataclass(frozen=True, slots=True)
class BucketAuditPlan:
    """How a bucket's partitions are audited.

    Attributes:
        bucket: the parent of the partitions' directories.
        directories: the partitions' directories that exist.
        is_recorded: whether listed segments are recorded.
    """

    layout: ObjectLayout
    bucket: Location
    directories: Mapping[TopicIdPartition, Location]
    topics: BucketAuditTopics
    level: AuditLevel
    as_of: JudgedAsOf
    is_recorded: bool = False

    def partitions(
        self, metadata: RemoteMetadata, only: Collection[TopicIdPartition] | None = None
    ) -> list[RemotePartition]:
        """The partitions that a bucket's audit compares, in order: those in the metadata or with a directory."""
        segments = split_by_partition(metadata.segments, "start_offset")
        forgotten = split_by_partition(metadata.forgotten, "start_offset")
        breaks = split_by_partition(metadata.breaks, "segment_start_offset")
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
                retention_ms=self.topics.setting(partition.topic, partition.topic_id, RETENTION_MS),
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
        """The segments for which `only` is true, in shares of consecutive segments of one partition. `segments` must be
        all segments of the partitions: a segment is read with those before it.
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
        ends = Counter(segment.end_offset for segment in segments)
        by_next_offset = {segment.end_offset + 1: segment for segment in segments if ends[segment.end_offset] == 1}
        return {  # each with the two segments before it
            segment.segment_id: _with_segment_before(_with_segment_before(segment, by_next_offset), by_next_offset)
            for segment in segments
        }

    def directory(self, partition: TopicIdPartition) -> Location:
        """A partition's directory in the bucket."""
        return self.directories.get(partition, self.bucket / self.layout.partition_path(partition))


@dataclass(frozen=True, slots=True)
class BucketAuditTopics:
    """The settings of topics, by name and id: another topic may have had the same name."""

    request: TieredRequest

    def setting(self, topic: str, topic_id: str, name: str) -> int | None:
        """The value of a topic's numeric setting; None: not known."""
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
        config = self.request.known_topics.of_sources[source.name].metadata.topic_configs.get(topic, {})
        is_on = self.is_copied(topic, topic_id) is not False and config.get(_COPY_DISABLE) != "true"
        lags = [parse_long(config.get(name, "0")) or 0 for name in (_COPY_LAG_MS, _COPY_LAG_BYTES)]
        retentions = (self.setting(topic, topic_id, name) for name in (LOCAL_RETENTION_MS, LOCAL_RETENTION_BYTES))
        lag_ms, lag_bytes = (
            max((retention or 0) if lag == _SAME_AS_LOCAL_RETENTION else lag, 0)
            for lag, retention in zip(lags, retentions, strict=True)
        )
        return Copying(is_on, lag_ms, lag_bytes)

    def copied_topics(self) -> Iterator[tuple[str, str]]:
        """The names and ids of the topics that brokers copy, as far as clusters' metadata knows topics."""
        for known in self.request.known_topics.of_sources.values():
            for topic, topic_id in known.metadata.topics.items():
                if self.request.topics.fullmatch(topic) and self.is_copied(topic, topic_id):
                    yield topic, topic_id

    def options(self, partition: TopicIdPartition, directory: Location) -> RecoverOptions:
        source = self._source_of(partition.topic, partition.topic_id) or self.request.metadata[0]
        place = PartitionDirectory(source, TopicPartition(partition.topic, partition.partition), directory)
        interval_bytes, known = self.request.interval_bytes, self.request.known_topics
        options = options_of_topic(known, place, interval_bytes=interval_bytes, max_index_bytes=None)
        return options.of_id(partition.topic_id)

    def metadata_expiry_findings(self, partitions: frozenset[TopicIdPartition]) -> Iterator[RemoteFindingRow]:
        """A finding on each topic that keeps records for longer than the metadata of its segments is kept."""
        topics = {(partition.topic, partition.topic_id) for partition in partitions}
        for topic, topic_id in sorted(topics):
            source = self._source_of(topic, topic_id) if self.request.topics.fullmatch(topic) else None
            if source is None:
                continue
            metadata_ms = self._config_as_integer(source, REMOTE_LOG_METADATA_TOPIC, RETENTION_MS)
            topic_ms = self._config_as_integer(source, topic, RETENTION_MS)
            if metadata_ms is None or topic_ms is None:
                continue
            if metadata_ms < 0 or 0 <= topic_ms <= metadata_ms:  # below 0: for ever
                continue
            kept = "for ever" if topic_ms < 0 else f"for {timedelta(milliseconds=topic_ms)}"
            finding = broken_remote(
                METADATA,
                "metadata-expires-first",
                f"{REMOTE_LOG_METADATA_TOPIC} keeps records for {timedelta(milliseconds=metadata_ms)}, this one {kept}",
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
        return None if config is None else parse_long(config.value)


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is in a bucket.

    Attributes:
        by_counter: how many and how many bytes, by the state of segments or another counter (`RemoteCountRow.what`).
        object_bytes: the size of all objects of each topic, by its name and id.
        read_bytes: about how many bytes of objects the audit has read.
    """

    by_counter: Mapping[str, tuple[int, int]]
    object_bytes: Mapping[tuple[str, str], int]
    read_bytes: int = 0


def plan_bucket_audit(request: TieredRequest, metadata: RemoteMetadata) -> BucketAuditPlan:
    """List the directories of the bucket, and plan the audit of them."""
    begin_phase("listing the bucket")
    listed = request.layout.list_partitions(request.bucket)
    directories = {partition: place for partition, place in listed.items() if request.topics.fullmatch(partition.topic)}
    if not directories and not metadata.segments.num_rows:
        raise UsageError(
            f"{request.bucket}: no partition's directory, and the metadata has no remote segment; "
            "expected the place that the storage plugin writes to"
        )
    as_of_ms = request.as_of_ms if request.as_of_ms is not None else metadata.last_ms or 0
    as_of = JudgedAsOf(metadata_ms=as_of_ms, stuck_ms=request.stuck_ms)
    return BucketAuditPlan(
        layout=request.layout,
        bucket=request.bucket,
        directories=directories,
        topics=BucketAuditTopics(request),
        level=request.level,
        as_of=as_of,
        is_recorded=request.recorded_as is not None,
    )


def _divide_into_shares(segments: Sequence[RemoteSegmentToRead]) -> Iterator[Sequence[RemoteSegmentToRead]]:
    weights = [max(segment.log_bytes, _SHARE_BYTES // _SHARE_SEGMENTS) for segment in segments]
    for start, end in cut_by_weight(weights, _SHARE_BYTES):
        yield tuple(segments[start:end])


def _with_segment_before(
    segment: RemoteSegmentToRead, by_next_offset: Mapping[int, RemoteSegmentToRead]
) -> RemoteSegmentToRead:
    """Set `before` to the segment that ends where this one begins. If it is set already, set `before` of that segment.
    `by_next_offset` has segments by the first offset after them.
    """
    before = segment.before or by_next_offset.get(segment.start_offset)
    if before is None:
        return segment
    if segment.before is not None:
        before = _with_segment_before(before, by_next_offset)
    return replace(segment, before=before)


def _has_aborted_by_metadata(row: CopiedSegmentRow, flag_since: Mapping[int, int]) -> bool | None:
    """Whether the metadata says that transactions were aborted in a segment; None: it does not say."""
    if row.transaction_index_empty:
        return False
    since = flag_since.get(row.broker_id)
    return True if since is not None and since <= row.copied_at_ms else None


@dataclass(slots=True)
class BucketAudit:
    """Finds what is wrong in a bucket. `listed` has rows of `ListedSegmentRow`; it is empty before `find`."""

    engine: Engine
    plan: BucketAuditPlan
    reader: RemoteMetadataReader
    listed: pa.Table = field(default_factory=lambda: pa.table({}))

    def find(self, metadata: RemoteMetadata) -> tuple[list[RemoteFindingRow], Counts]:
        """The findings and the counts. If the plan records segments, `listed` gets their listing."""
        begin_phase("comparing")
        first_listing = self._list_partitions(self.plan.partitions(metadata))
        findings = RemoteFindingRow.of_arrow(first_listing.rows("finding"))
        self.listed = first_listing.rows("listed")
        partitions = {TopicIdPartition(finding.topic_id, finding.topic, finding.partition) for finding in findings}
        if partitions:
            begin_phase("looking again")
            second_listing = self._list_partitions(self.plan.partitions(self.reader.read(), partitions))
            keys = {finding.key for finding in findings}
            findings = RemoteFindingRow.of_arrow(second_listing.rows("finding"))
            findings = [finding for finding in findings if finding.key in keys]
            self.listed = _replace_listings(self.listed, second_listing.rows("listed"), partitions)
        findings += self.plan.topics.metadata_expiry_findings(metadata.known)
        counts = _sum_counts(first_listing)
        if self.plan.level is not AuditLevel.LISTING:
            segments = CopiedSegmentRow.of_arrow(first_listing.rows("segment"))
            findings += self._read_segments(segments, metadata)
            reads_logs = self.plan.level is AuditLevel.FULL
            objects = (item for segment in segments for item in segment.objects)
            read_bytes = sum(item["bytes"] for item in objects if reads_logs or item["suffix"] != LOG_SUFFIX)
            counts = replace(counts, read_bytes=read_bytes)
        return _first_of_repeated_findings(findings), counts

    def segments(self, metadata: RemoteMetadata, only: Collection[TopicIdPartition]) -> list[CopiedSegmentRow]:
        """The segments of some partitions that brokers would read, with their objects as they are listed now."""
        plan = replace(self.plan, level=AuditLevel.INDEXES)
        return CopiedSegmentRow.of_arrow(self._list_partitions(plan.partitions(metadata, only)).rows("segment"))

    def _list_partitions(self, partitions: Sequence[RemotePartition]) -> StagedRows:
        return self.run(audit_listings, partitions, REMOTE_FOUND, is_small=reads_little(0, len(partitions)))

    def _read_segments(self, segments: Sequence[CopiedSegmentRow], metadata: RemoteMetadata) -> list[RemoteFindingRow]:
        begin_phase("reading", done=self.engine.done, segments=len(segments))
        level = self.plan.level
        shares = [SegmentsToRead(share, level) for share in self.plan.shares(segments, metadata.flag_since)]
        is_small = reads_little(sum(share.bytes for share in shares), len(segments))
        staged = self.run(audit_bytes, shares, REMOTE_FOUND, is_small=is_small, maps=True)
        return RemoteFindingRow.of_arrow(staged.rows("finding"))

    def run(
        self, do: Any, items: Sequence[Any], schema: pa.Schema, *, is_small: bool, maps: bool = False
    ) -> StagedRows:
        """Divide items into the units of a `Work`, and have workers do it. The other arguments are fields of `Work`."""
        count = max(1, min(len(items), self.engine.cores * BINS_PER_CORE))
        units = [part for number in range(count) if (part := items[number::count])]
        work = Work(f"tiered-{uuid.uuid4().hex[:16]}", units, do, schema, [self.plan.bucket], is_small, maps)
        if not work.is_small:
            self.engine.start()
        with self.engine.stopping():
            staged = self.engine.run(work)
            interrupts.raise_if_requested()
        return staged


def _replace_listings(first: pa.Table, again: pa.Table, partitions: Collection[TopicIdPartition]) -> pa.Table:
    """The first listing, with some partitions replaced by their second listing."""
    listed_again = {(partition.topic_id, partition.partition) for partition in partitions}
    keys = zip(first["topic_id"].to_pylist(), first["partition"].to_pylist(), strict=True)
    return pa.concat_tables([first.filter(pa.array([key not in listed_again for key in keys], pa.bool_())), again])


def _first_of_repeated_findings(findings: Sequence[RemoteFindingRow]) -> list[RemoteFindingRow]:
    """The findings; of several with the same object and reason, only the first."""
    by_key = {finding.key: finding for finding in reversed(findings)}
    return list(reversed(by_key.values()))


def _sum_counts(staged: StagedRows) -> Counts:
    totals: dict[str, tuple[int, int]] = {}
    object_bytes: Counter[tuple[str, str]] = Counter()
    for row in RemoteCountRow.of_arrow(staged.rows("count")):
        number, bytes_ = totals.get(row.what, (0, 0))
        totals[row.what] = number + row.number, bytes_ + row.bytes
        if row.what == OBJECTS:
            object_bytes[row.topic, row.topic_id] += row.bytes
    return Counts(totals, object_bytes)


def record_bucket_audit(
    tables: Tables,
    recorded_as: TieredRecordRequest,
    listed: pa.Table,
    findings: Iterable[RemoteFindingRow],
    as_of: JudgedAsOf,
    repairs: Mapping[SegmentRowKey, Sequence[Mapping[str, Any]]] | None = None,
) -> int:
    """Record in one commit the segments that a bucket's audit has listed, with findings and repairs; return how many.

    `listed` has rows of `ListedSegmentRow`, `repairs` rows of `RemoteRepair`. All rows of the same run are replaced, so
    that it can be run again. A finding on a topic is recorded with the topic's first segment, if there is one.
    """
    listed = listed.sort_by([(name, "ascending") for name in ("topic", "topic_id", *_SEGMENT_KEY[1:])])
    keys = keys_of_remote_segments(listed)
    by_segment = _findings_by_segment(findings, keys)
    run_values = {
        "audit_id": recorded_as.audit_id,
        "source": recorded_as.source,
        "level": recorded_as.level,
        "metadata_ms": as_of.metadata_ms,
        "audited_at": recorded_as.context.now,
    }
    schema = REMOTE_SEGMENTS.schema()
    columns: dict[str, Any] = {
        **{name: listed[name] for name in listed.column_names},
        **{name: pa.repeat(pa.scalar(run_values[name], schema.field(name).type), len(keys)) for name in run_values},
        "findings": pa.array([by_segment.get(key, []) for key in keys], schema.field("findings").type),
        "repairs": pa.array([list((repairs or {}).get(key, ())) for key in keys], schema.field("repairs").type),
    }
    audit = pa.table({"audit_id": [recorded_as.audit_id]})
    rows = {"audit": audit, "segment": rows_of_columns(columns, len(keys), schema)}
    tables.change_rows(REMOTE_SEGMENTS, rows, updates.audited_remote, by=["audit_id"])
    return len(keys)


def keys_of_remote_segments(listed: pa.Table) -> list[SegmentRowKey]:
    """The keys of the segments that a bucket's audit has listed, by rows of `ListedSegmentRow`."""
    return list(zip(*(listed[name].to_pylist() for name in _SEGMENT_KEY), strict=True))


def _findings_by_segment(
    findings: Iterable[RemoteFindingRow], keys: Sequence[SegmentRowKey]
) -> Mapping[SegmentRowKey, list[dict[str, Any]]]:
    """The findings by segment. `keys` are the keys of all segments, in order."""
    first_of_topic: dict[str, SegmentRowKey] = {}
    for key in keys:
        first_of_topic.setdefault(key[0], key)
    by_segment: defaultdict[SegmentRowKey, list[dict[str, Any]]] = defaultdict(list)
    for finding in findings:
        segment = _segment_key_of(finding) or first_of_topic.get(finding.topic_id)
        if segment is not None:
            by_segment[segment].append({name: getattr(finding, name) for name in _FINDING_COLUMNS})
    return by_segment


def _segment_key_of(finding: RemoteFindingRow) -> SegmentRowKey | None:
    """The segment that a finding is about; None if it is about the topic."""
    if finding.segment_id is None:
        return None
    return finding.topic_id, finding.partition, finding.start_offset, finding.segment_id
