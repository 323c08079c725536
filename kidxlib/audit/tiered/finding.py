"""A finding on a remote segment, and how much of a bucket an audit reads."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kidxlib.audit.finding import Finding, Verdict
from kidxlib.catalog.findings import ListedSegmentRow, RemoteEpoch, RemoteObject
from kidxlib.catalog.rows import Int32, Row, column, kinds_of, row
from kidxlib.messages.remote_log_metadata import TopicIdPartition

#: The file of a finding that is about no single object: the metadata of a segment, or all its objects together.
METADATA: Final = "metadata"
ALL_OBJECTS: Final = "objects"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentKey:
    """The remote segment that a finding is about; `segment_id` is None if it is about the topic."""

    start_offset: int
    segment_id: str | None


@row
class RemoteFindingRow(Row):
    """A finding on a remote segment, or on one of its objects."""

    topic: str = column("the topic")
    partition: Int32 = column("number of the partition; −1: it is about the topic")
    topic_id: str = column("the topic's id, as Kafka shows it")
    start_offset: int = column("the first offset of the segment; 0 where it is about the topic")
    segment_id: str | None = column("the segment's id, as Kafka shows it; null: it is about the partition or the topic")
    file: str = column("suffix of the object; metadata: what is said of it; objects: all that it has")
    verdict: str = column("safe or broken")
    reason: str = column("a short word for why")
    position: int | None = column("the first byte of the object that is wrong or different; null: none in particular")
    detail: str | None = column("what was found, and what was expected")
    consequence: str | None = column("what that does, or why it does nothing")
    object: str | None = column("the object; null: it is about several, or about none")

    @classmethod
    def found(
        cls, partition: TopicIdPartition, segment: RemoteSegmentKey, finding: Finding, object_: str | None = None
    ) -> RemoteFindingRow:
        """The row of a finding whose verdict is neither `identical` nor `whole`."""
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=partition.topic_id,
            start_offset=segment.start_offset,
            segment_id=segment.segment_id,
            file=finding.file,
            verdict=finding.verdict.value,
            reason=finding.reason or "",
            position=finding.position,
            detail=finding.detail,
            consequence=finding.consequence,
            object=object_,
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What stays the same if the finding is found again."""
        return self.topic_id, self.partition, self.start_offset, self.segment_id, self.file, self.reason


@row
class CopiedSegmentRow(Row):
    """A copied remote segment that brokers read, and its objects."""

    topic: str = column("the topic")
    partition: Int32 = column("number of the partition")
    topic_id: str = column("the topic's id, as Kafka shows it")
    start_offset: int = column("its first offset, as all below by its metadata")
    end_offset: int = column("its last offset")
    segment_id: str = column("its id, as Kafka shows it")
    max_timestamp_ms: int = column("the largest timestamp in it, ms since the epoch")
    log_bytes: int = column("size of its log")
    leader_epochs: Sequence[RemoteEpoch] = column("the leader epochs of its records")
    broker_id: Int32 = column("the broker that has copied it")
    copied_at_ms: int = column("when copying it began, ms since the epoch")
    transaction_index_empty: bool = column("it has no transaction index, as nothing was aborted in it")
    objects: Sequence[RemoteObject] = column("those that are there")


@row
class RemoteCountRow(Row):
    """How many there are of something in a partition."""

    topic: str = column("the topic")
    topic_id: str = column("the topic's id, as Kafka shows it")
    what: str = column("the state of segments, as Kafka calls it; or what is counted")
    number: int = column("how many")
    bytes: int = column("their bytes: of segments those of their logs by the metadata")


#: What `RemoteCountRow` counts besides the segments of each state.
OBJECTS: Final = "objects"
NEWER: Final = "newer"  # objects that are not judged, as they are newer than the metadata
OTHERS: Final = "others"  # files that are no objects of segments

#: The rows that a worker gives for partitions or segments.
REMOTE_FOUND: Final = kinds_of(
    finding=RemoteFindingRow.columns(),
    segment=CopiedSegmentRow.columns(),
    listed=ListedSegmentRow.columns(),
    count=RemoteCountRow.columns(),
)


def broken(file: str, reason: str, detail: str | None, consequence: str) -> Finding:
    return Finding(file=file, verdict=Verdict.BROKEN, reason=reason, detail=detail, consequence=consequence)


def safe(file: str, reason: str, detail: str | None, consequence: str) -> Finding:
    return Finding(file=file, verdict=Verdict.SAFE, reason=reason, detail=detail, consequence=consequence)


class Level(enum.StrEnum):
    """How much of a bucket an audit reads."""

    LISTING = "listing"  # names and sizes
    INDEXES = "indexes"  # the bytes of all objects but logs, too
    FULL = "full"  # all bytes
