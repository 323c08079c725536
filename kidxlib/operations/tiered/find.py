"""Finds what is wrong in a bucket of tiered storage.

The cluster may be running. So the metadata is read first, and objects that are newer are not judged. If a partition has
a finding, the metadata is read again and the partition is listed again; only what is found again is reported.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from kidxlib.audit.tiered.finding import (
    OBJECTS,
    REMOTE_FOUND,
    CopiedSegmentRow,
    Level,
    RemoteCountRow,
    RemoteFindingRow,
)
from kidxlib.audit.tiered.listing import AsOf, RemotePartition
from kidxlib.engine.protocol import Engine
from kidxlib.engine.work import Staged, Work, reads_little
from kidxlib.errors import UsageError, describe_error
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.log.remote.metadata_topic import REMOTE_LOG_METADATA_TOPIC
from kidxlib.messages.remote_log_metadata import TopicIdPartition
from kidxlib.operations.tiered.audit_work import SegmentsToRead, audit_bytes, audit_listings
from kidxlib.operations.tiered.local_partitions import findings_on_local, partitions_in, with_remote_segments
from kidxlib.operations.tiered.remote_metadata import MetadataReader, RemoteMetadata
from kidxlib.operations.tiered.tiered_request import TieredRequest
from kidxlib.operations.tiered.what_to_audit import TieredPlan, TopicsOfTiered, units_of
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase, warn


def read_metadata(reader: MetadataReader, request: TieredRequest) -> RemoteMetadata:
    """Read the metadata, and warn if it is not complete."""
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


def plan_audit(request: TieredRequest, metadata: RemoteMetadata) -> TieredPlan:
    """List the directories of the bucket."""
    begin_phase("listing the bucket")
    listed = request.layout.list_partitions(request.bucket)
    directories = {partition: place for partition, place in listed.items() if request.topics.fullmatch(partition.topic)}
    if not directories and not metadata.segments.num_rows:
        raise UsageError(
            f"{request.bucket}: no partition's directory, and the metadata has no remote segment; "
            "expected the place that the storage plugin writes to"
        )
    as_of_ms = request.as_of_ms if request.as_of_ms is not None else metadata.last_ms or 0
    as_of = AsOf(metadata_ms=as_of_ms, stuck_ms=request.stuck_ms)
    return TieredPlan(
        layout=request.layout,
        bucket=request.bucket,
        directories=directories,
        topics=TopicsOfTiered(request),
        level=request.level,
        as_of=as_of,
        is_recorded=request.recorded_as is not None,
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is in a bucket.

    Attributes:
        by_counter: a number and its bytes, by the state of segments or another counter (`RemoteCountRow.what`).
        object_bytes: the size of all objects of each topic, by its name and id.
        read: about how many bytes of objects the audit has read.
    """

    by_counter: Mapping[str, tuple[int, int]]
    object_bytes: Mapping[tuple[str, str], int]
    read: int = 0


@dataclass(slots=True)
class TieredAudit:
    """Finds what is wrong in a bucket. `listed` has rows of `ListedSegmentRow`; it is empty before `find`."""

    engine: Engine
    plan: TieredPlan
    reader: MetadataReader
    listed: pa.Table = field(default_factory=lambda: pa.table({}))

    def find(self, metadata: RemoteMetadata) -> tuple[list[RemoteFindingRow], Counts]:
        """The findings and the counts. If the plan records segments, the listing is kept in `listed`."""
        begin_phase("comparing")
        first = self._list_partitions(self.plan.partitions(metadata))
        findings = RemoteFindingRow.of_arrow(first.rows("finding"))
        self.listed = first.rows("listed")
        partitions = {TopicIdPartition(finding.topic_id, finding.topic, finding.partition) for finding in findings}
        if partitions:
            begin_phase("looking again")
            again = self._list_partitions(self.plan.partitions(self.reader.read(), partitions))
            keys = {finding.key for finding in findings}
            findings = [finding for finding in RemoteFindingRow.of_arrow(again.rows("finding")) if finding.key in keys]
            self.listed = _replace_listings(self.listed, again.rows("listed"), partitions)
        findings += self.plan.topics.outliving_metadata(metadata.known)
        counts = _sum_counts(first)
        if self.plan.level is not Level.LISTING:
            segments = CopiedSegmentRow.of_arrow(first.rows("segment"))
            findings += self._read_segments(segments, metadata)
            reads_logs = self.plan.level is Level.FULL
            objects = (item for segment in segments for item in segment.objects)
            read = sum(item["bytes"] for item in objects if reads_logs or item["suffix"] != LOG_SUFFIX)
            counts = replace(counts, read=read)
        return _first_of_repeated_findings(findings), counts

    def segments(self, metadata: RemoteMetadata, only: Collection[TopicIdPartition]) -> list[CopiedSegmentRow]:
        """The segments of some partitions that brokers would read, with their objects as they are listed now."""
        partitions = [replace(partition, level=Level.INDEXES) for partition in self.plan.partitions(metadata, only)]
        return CopiedSegmentRow.of_arrow(self._list_partitions(partitions).rows("segment"))

    def _list_partitions(self, partitions: Sequence[RemotePartition]) -> Staged:
        return self.run(audit_listings, partitions, REMOTE_FOUND, is_small=reads_little(0, len(partitions)))

    def _read_segments(self, segments: Sequence[CopiedSegmentRow], metadata: RemoteMetadata) -> list[RemoteFindingRow]:
        begin_phase("reading", done=self.engine.done, segments=len(segments))
        level = self.plan.level
        shares = [SegmentsToRead(share, level) for share in self.plan.shares(segments, metadata.flag_since)]
        is_small = reads_little(sum(share.bytes for share in shares), len(segments))
        staged = self.run(audit_bytes, shares, REMOTE_FOUND, is_small=is_small, maps=True)
        return RemoteFindingRow.of_arrow(staged.rows("finding"))

    def run(self, do: Any, items: Sequence[Any], schema: pa.Schema, *, is_small: bool, maps: bool = False) -> Staged:
        """Let workers process items, some in each unit of `Work`, whose fields the arguments are."""
        name, units = f"tiered-{uuid.uuid4().hex[:16]}", units_of(items, self.engine.cores)
        work = Work(name, units, do, schema, [self.plan.bucket], is_small, maps)
        if not work.is_small:
            self.engine.start()
        with self.engine.stopping():
            staged = self.engine.run(work)
            interrupts.raise_if_requested()
        return staged


def findings_on_log_dirs(request: TieredRequest, reader: MetadataReader) -> list[RemoteFindingRow]:
    """Findings on what leaders that start with the metadata's log dirs would do to remote segments. Warns of log dirs
    that cannot be listed.
    """
    findings: list[RemoteFindingRow] = []
    for source in request.log_dirs:
        try:
            _, tiered = with_remote_segments(reader, partitions_in(source, request.topics))
            for local, found in findings_on_local(tiered):
                if isinstance(found, OSError):
                    not_compared = f"leader epochs in {local.directory} are not compared with remote segments"
                    warn(f"{describe_error(found)}; {not_compared}")
                    continue
                key, finding = found
                path = str(local.directory / finding.file) if finding.file == LEADER_EPOCH_CHECKPOINT else None
                findings.append(RemoteFindingRow.found(tiered[local].partition, key, finding, path))
        except (UsageError, OSError) as error:
            warn(f"{describe_error(error)}; leader epochs in {source.path} are not compared with remote segments")
    return findings


def _replace_listings(first: pa.Table, again: pa.Table, partitions: Collection[TopicIdPartition]) -> pa.Table:
    """The first listing, with some partitions replaced by their second listing."""
    listed_again = {(partition.topic_id, partition.partition) for partition in partitions}
    keys = zip(first["topic_id"].to_pylist(), first["partition"].to_pylist(), strict=True)
    return pa.concat_tables([first.filter(pa.array([key not in listed_again for key in keys], pa.bool_())), again])


def _first_of_repeated_findings(findings: Sequence[RemoteFindingRow]) -> list[RemoteFindingRow]:
    """The first finding is kept where several have the same object and reason."""
    by_key = {finding.key: finding for finding in reversed(findings)}
    return list(reversed(by_key.values()))


def _sum_counts(staged: Staged) -> Counts:
    totals: dict[str, tuple[int, int]] = {}
    object_bytes: Counter[tuple[str, str]] = Counter()
    for row in RemoteCountRow.of_arrow(staged.rows("count")):
        number, bytes_ = totals.get(row.what, (0, 0))
        totals[row.what] = number + row.number, bytes_ + row.bytes
        if row.what == OBJECTS:
            object_bytes[row.topic, row.topic_id] += row.bytes
    return Counts(totals, object_bytes)
