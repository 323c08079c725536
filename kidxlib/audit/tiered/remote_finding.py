"""A finding on a remote segment, its reasons and consequences, and what to do about it; how much of a bucket an audit
reads; and the rows that it gives.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from kidxlib.audit.finding import OTHER_VERSION, Finding, Verdict
from kidxlib.catalog.findings import ListedSegmentRow, RemoteEpoch, RemoteObject
from kidxlib.catalog.rows import Int32, Row, column, kinds_of, row
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from kidxlib.format.kafka_release import KAFKA_4_4
from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from kidxlib.log.remote.layout import EPOCHS_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX
from kidxlib.messages.remote_log_metadata import TopicIdPartition

#: The file of a finding that is about no single object: the metadata of a segment, or all its objects together.
METADATA: Final = "metadata"
ALL_OBJECTS: Final = "objects"

#: The metadata was deleted before the data.
EXPIRED: Final = "metadata-expired"
#: Copying stands still, and the consequence.
STALLED: Final = "stalled"
STALLS: Final = (
    "the partition's copying stands still: its full segments pile up in log dirs, as local retention deletes none that "
    "is not copied"
)

#: A leader that starts with the leader epochs deletes segments from the bucket, or does not find them there.
DELETES: Final = "deletes-remote-segments"
HIDES: Final = "hides-remote-segments"

#: What `RemoteCountRow` counts besides the segments of each state.
OBJECTS: Final = "objects"
NEWER: Final = "newer"  # objects that are not judged, as they are newer than the metadata
OTHERS: Final = "others"  # files that are no objects of segments
FETCHES_FAIL: Final = (
    "a broker loads the three indexes of a segment together: fetches of offsets {start} to {end} fail, and consumers "
    "stop there"
)
REPLICAS_FAIL: Final = (
    "a replica that has nothing and begins after this segment cannot be built: it stays out of sync as long as the "
    "leader's own log begins there"
)
#: The consequence of a missing object, by its suffix.
CONSEQUENCES_OF_MISSING: Final[Mapping[str, str]] = {
    LOG_SUFFIX: "fetches of offsets {start} to {end} fail, and consumers stop there",
    OFFSET_INDEX_SUFFIX: FETCHES_FAIL,
    TIME_INDEX_SUFFIX: FETCHES_FAIL,
    SNAPSHOT_SUFFIX: REPLICAS_FAIL,
    EPOCHS_SUFFIX: REPLICAS_FAIL,
    INDEXES_SUFFIX: FETCHES_FAIL,
    MANIFEST_SUFFIX: "the plugin finds nothing of the segment without it: fetches of offsets {start} to {end} fail, "
    "and consumers stop there",
}
#: The consequence of a transaction index that is missing, empty or not in the metadata: a broker takes it for empty.
SILENT: Final = (
    "consumers of committed records get those of transactions that were aborted in offsets {start} to {end}, and no "
    "broker says so"
)


class AuditLevel(enum.StrEnum):
    """How much of a bucket an audit reads."""

    LISTING = "listing"  # names and sizes
    INDEXES = "indexes"  # the bytes of all objects but logs, too
    FULL = "full"  # all bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegmentKey:
    """The remote segment that a finding is about; `segment_id` is None if it is about the topic."""

    start_offset: int
    segment_id: str | None

    @classmethod
    def of(cls, segment: Mapping[str, Any]) -> Self:
        return cls(start_offset=segment["start_offset"], segment_id=segment["segment_id"])


#: A finding, and the segment that it is about.
FindingOnSegment: TypeAlias = tuple[RemoteSegmentKey, Finding]


def broken_remote(file: str, reason: str, detail: str | None, consequence: str) -> Finding:
    """A finding on a remote segment, with the verdict `broken`."""
    return Finding(file=file, verdict=Verdict.BROKEN, reason=reason, detail=detail, consequence=consequence)


def safe_remote(file: str, reason: str, detail: str | None, consequence: str) -> Finding:
    """A finding on a remote segment, with the verdict `safe`."""
    return Finding(file=file, verdict=Verdict.SAFE, reason=reason, detail=detail, consequence=consequence)


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
        """What identifies a finding on a remote segment, when an audit finds it again."""
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
    """How many there are of something in a partition: segments of a state, `OBJECTS`, `NEWER` or `OTHERS`."""

    topic: str = column("the topic")
    topic_id: str = column("the topic's id, as Kafka shows it")
    what: str = column("the state of segments, as Kafka calls it; or what is counted")
    number: int = column("how many")
    bytes: int = column("their bytes: of segments those of their logs by the metadata")


#: The rows that a worker gives for partitions or segments.
REMOTE_FOUND: Final = kinds_of(
    finding=RemoteFindingRow.columns(),
    segment=CopiedSegmentRow.columns(),
    listed=ListedSegmentRow.columns(),
    count=RemoteCountRow.columns(),
)

_MAKE_ANEW: Final = "make it anew with kidx repair-tiered … --apply, as docs/tiered.md shows"

_MAKE_INDEX_ANEW: Final = (
    f"{_MAKE_ANEW}; then remove the segment's files from "
    "remote-log-index-cache of each broker, which goes on with what it has there"
)
_BRING_LOG_BACK: Final = (
    "bring the object back: from an older version of it in the bucket, a copy of the bucket, or the log dir of a "
    "replica that still has these offsets"
)
_METADATA_IS_WRONG: Final = (
    "nothing mends metadata from outside, and no record may be written to the topic: copy the records of these offsets "
    "into another topic, or let retention reach them"
)
_LOOK_FOR_CAUSE_OF_MANY: Final = (
    "look whether the leader's log says why; where nothing changes, delete the objects by the plugin's own means: kidx "
    "deletes nothing"
)
_DELETE_OBJECTS: Final = "delete the objects by the store's own means: kidx deletes nothing"
_WAIT_FOR_RETENTION: Final = "nothing, as long as the bytes are not too many: retention deletes them"
_MEND_EPOCHS: Final = (
    "let no broker start with this log dir, and stop the one that runs; kidx recover --mend writes the file "
    "again, and another replica's copy of the partition has it"
)
_KEEP_REMOTE_METADATA: Final = (
    "give __remote_log_metadata retention.ms=-1; no record may be written to it: kidx export reads these segments with "
    "--tiered-metadata of a copy that still has their records, or without any metadata"
)


_REMEDIES_BY_REASON: Final = {
    (
        METADATA,
        "gap",
    ): "look for these offsets in log dirs of replicas and in copies of the bucket",
    (LEADER_EPOCH_CHECKPOINT, DELETES): _MEND_EPOCHS,
    (LEADER_EPOCH_CHECKPOINT, HIDES): _MEND_EPOCHS,
    (METADATA, "overlap"): _WAIT_FOR_RETENTION,
    (METADATA, "unreferenced"): _WAIT_FOR_RETENTION,
    (METADATA, "copy-not-finished"): _LOOK_FOR_CAUSE_OF_MANY,
    (METADATA, "delete-not-finished"): _LOOK_FOR_CAUSE_OF_MANY,
    (METADATA, EXPIRED): _KEEP_REMOTE_METADATA,
    (ALL_OBJECTS, EXPIRED): _KEEP_REMOTE_METADATA,
    (METADATA, STALLED): "look in the leader's log for RLMCopyTask: it says why; full disks follow",
    (METADATA, "retention-overdue"): "look for a leader of the partition, and in its log for RLMExpirationTask",
    (METADATA, "metadata-expires-first"): "give __remote_log_metadata retention.ms=-1, before its records go",
    (METADATA, "timestamps-disagree"): "ask --level full which of the two is wrong",
    (ALL_OBJECTS, "missing"): _BRING_LOG_BACK,
    (MANIFEST_SUFFIX, "not-read"): "nothing: kidx has no keys, and reads no objects that the plugin has changed",
    (ALL_OBJECTS, "orphan"): f"make sure that no other cluster uses this bucket; then {_DELETE_OBJECTS}",
    (ALL_OBJECTS, "left-after-delete"): _DELETE_OBJECTS,
    (
        TRANSACTION_INDEX_SUFFIX,
        OTHER_VERSION,
    ): f"before an upgrade, with --kafka-version {KAFKA_4_4}, {_MAKE_INDEX_ANEW}",
    (TRANSACTION_INDEX_SUFFIX, "perhaps-missing"): "ask --level full, which reads the logs",
    (TRANSACTION_INDEX_SUFFIX, "never-asked-for"): _METADATA_IS_WRONG,
    (TRANSACTION_INDEX_SUFFIX, "not-in-metadata"): _METADATA_IS_WRONG,
}


_REMEDIES_BY_FILE: Final = {
    LOG_SUFFIX: _BRING_LOG_BACK,
    METADATA: _METADATA_IS_WRONG,
    INDEXES_SUFFIX: _BRING_LOG_BACK,
    MANIFEST_SUFFIX: _BRING_LOG_BACK,
    SNAPSHOT_SUFFIX: f"{_MAKE_ANEW}; else bring it back from a copy of the bucket or of the log dir that it was copied "
    "from",
    EPOCHS_SUFFIX: f"{_MAKE_ANEW}; else bring it back from a copy of the bucket, or write it anew from a replica's "
    "leader-epoch-checkpoint: its entries that begin before the end of the segment",
}


def remote_remedy(file: str, reason: str) -> str:
    """What to do about a finding on a remote segment."""
    return _REMEDIES_BY_REASON.get((file, reason)) or _REMEDIES_BY_FILE.get(file, _MAKE_INDEX_ANEW)
