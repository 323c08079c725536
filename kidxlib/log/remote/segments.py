"""Remote segments after all records of the metadata topic: the state of each, which segments brokers read at which
offsets and leader epochs, and what consumers get if leaders have copied offsets twice.

Source: `RemoteLogMetadataCache`, `RemotePartitionMetadataStore`, `RemoteLogLeaderEpochState`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.log.remote.metadata_topic import MetadataRecord
from kidxlib.messages.remote_log_metadata import (
    PartitionDeleteState,
    RemotePartitionDelete,
    RemoteSegment,
    RemoteSegmentUpdate,
    SegmentState,
    TopicIdPartition,
)

#: The states that may follow each state (`isValidTransition`), besides the same state again.
_NEXT: Final = {
    SegmentState.COPY_SEGMENT_STARTED: (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_FINISHED,),
    SegmentState.DELETE_SEGMENT_FINISHED: (),
}

_EPOCHS: Final = pa.list_(pa.struct([pa.field("epoch", pa.int32()), pa.field("start_offset", pa.int64())]))
#: Remote segments as their metadata has them.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("topic_id", pa.string(), nullable=False),
    pa.field("start_offset", pa.int64(), nullable=False),
    pa.field("end_offset", pa.int64(), nullable=False),  # of the last record, which the cleaner may have removed
    pa.field("segment_id", pa.string(), nullable=False),
    pa.field("state", pa.string(), nullable=False),  # as Kafka calls it
    pa.field("state_since_ms", pa.int64(), nullable=False),  # when that was written
    pa.field("broker_id", pa.int32(), nullable=False),  # who copied it
    pa.field("copied_at_ms", pa.int64(), nullable=False),  # when copying began
    pa.field("max_timestamp_ms", pa.int64(), nullable=False),
    pa.field("log_bytes", pa.int64(), nullable=False),
    pa.field("leader_epochs", _EPOCHS, nullable=False),
    pa.field("transaction_index_empty", pa.bool_(), nullable=False),
    pa.field("is_read", pa.bool_(), nullable=False),  # brokers find it by one of its epochs
]
REMOTE_METADATA: Final = pa.schema(_FIELDS)
#: Offsets of a partition that no remote segment has, or that two segments have.
_BREAK_FIELDS: Final[list[pa.Field[Any]]] = [
    *_FIELDS[:3],
    pa.field("epoch", pa.int32(), nullable=False),  # of the segment after the break
    pa.field("segment_id", pa.string(), nullable=False),  # of the segment after the break
    pa.field("segment_start_offset", pa.int64(), nullable=False),
    pa.field("first_offset", pa.int64(), nullable=False),
    pa.field("last_offset", pa.int64(), nullable=False),
    pa.field("is_gap", pa.bool_(), nullable=False),  # false: two segments have these offsets
]
LINEAGE_BREAKS: Final = pa.schema(_BREAK_FIELDS)


@dataclass(slots=True)
class _SegmentSoFar:
    """A segment after the records so far."""

    copied: RemoteSegment
    state: SegmentState
    since_ms: int


@dataclass(frozen=True, slots=True)
class _Read:
    """A segment that brokers read, and the offsets of one of its epochs."""

    copied: RemoteSegment
    epoch: int
    start_offset: int
    end_offset: int


class _EpochLineage:
    """The segments of one leader epoch of a partition.

    Attributes:
        starts: the epoch's first offset in each copied segment that no other segment has replaced, ascending.
        ids: the segment id for each of `starts`.
        highest_offset: the highest copied offset of this epoch; None if there is none.
    """

    __slots__ = ("highest_offset", "ids", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ids: dict[int, str] = {}
        self.highest_offset: int | None = None

    def copied(self, start_offset: int, segment_id: str, end_offset: int) -> None:
        """Add a copied segment. If it reaches to the highest offset, it replaces all segments that begin at or after
        its start (`handleSegmentWithCopySegmentFinishedState`).

        Args:
            start_offset, end_offset: the epoch's offsets in the segment, both inclusive.
        """
        replaces = self.highest_offset is None or self.highest_offset <= end_offset
        while replaces and self.starts and self.starts[-1] >= start_offset:
            del self.ids[self.starts.pop()]
        if start_offset not in self.ids:
            insort(self.starts, start_offset)
        self.ids[start_offset] = segment_id
        if self.highest_offset is None or end_offset > self.highest_offset:
            self.highest_offset = end_offset

    def deleting(self, start_offset: int, segment_id: str) -> None:
        """Remove a segment that is being deleted (`handleSegmentWithDeleteSegmentStartedState`)."""
        if self.ids.get(start_offset) == segment_id:
            del self.ids[start_offset]
            self.starts.pop(bisect_left(self.starts, start_offset))


@dataclass(slots=True)
class _RemoteSegmentsOfPartition:
    """A topic's partition after the records so far."""

    segments: dict[str, _SegmentSoFar] = field(default_factory=dict)
    epochs: defaultdict[int, _EpochLineage] = field(default_factory=lambda: defaultdict(_EpochLineage))
    is_deleted: bool = False

    def add(self, segment: RemoteSegment) -> None:
        """Add a segment whose copying begins (`addCopyInProgressSegment`). Kafka adds no segment in another state."""
        known = self.segments.get(segment.segment.id)
        begins = known is None or known.state in (
            SegmentState.COPY_SEGMENT_STARTED,
            SegmentState.DELETE_SEGMENT_FINISHED,  # Kafka has forgotten the segment
        )
        if begins and segment.state is SegmentState.COPY_SEGMENT_STARTED:
            self.segments[segment.segment.id] = _SegmentSoFar(segment, segment.state, segment.event_timestamp_ms)

    def update(self, update: RemoteSegmentUpdate) -> None:
        """Change a segment's state (`updateRemoteLogSegmentMetadata`). Updates that Kafka refuses are ignored."""
        known = self.segments.get(update.segment.id)
        if known is None or update.state is SegmentState.COPY_SEGMENT_STARTED:
            return
        if known.state is not update.state and update.state not in _NEXT[known.state]:
            return
        for epoch, start_offset, end_offset in _epoch_ranges(known.copied):
            if update.state is SegmentState.COPY_SEGMENT_FINISHED:
                self.epochs[epoch].copied(start_offset, update.segment.id, end_offset)
            elif update.state is SegmentState.DELETE_SEGMENT_STARTED:
                self.epochs[epoch].deleting(start_offset, update.segment.id)
        known.state, known.since_ms = update.state, update.event_timestamp_ms

    def readable(self) -> Iterator[_Read]:
        """The segments that brokers find by an offset and its epoch, in the order of epochs and offsets."""
        for epoch, lineage in sorted(self.epochs.items()):
            for start_offset in lineage.starts:
                copied = self.segments[lineage.ids[start_offset]].copied
                end_offset = next(end for own_epoch, _, end in _epoch_ranges(copied) if own_epoch == epoch)
                if start_offset <= end_offset:  # else no record of the segment has this epoch
                    yield _Read(copied, epoch, start_offset, end_offset)


@dataclass(frozen=True, slots=True)
class FoldedMetadata:
    """Remote segments after all records of some metadata partitions.

    Attributes:
        segments: rows of `REMOTE_METADATA`, also for deleted segments, by partition and offset.
        breaks: rows of `LINEAGE_BREAKS`.
        partitions: the partitions with records.
        records: how many records were read.
        last_ms: the latest record's time, in ms since the epoch; None: there are no records.
    """

    segments: pa.Table
    breaks: pa.Table
    partitions: frozenset[TopicIdPartition]
    records: int
    last_ms: int | None


def fold_remote_segments(records: Iterable[MetadataRecord]) -> FoldedMetadata:
    """Apply the records of one metadata partition, in order. It has all records of each of its topic partitions."""
    partitions, count, last_ms = _folded(records)
    ordered = sorted(partitions.items(), key=lambda item: (item[0].topic, item[0].partition, item[0].topic_id))
    rows = [row for topic_id_partition, partition in ordered for row in _segment_rows(topic_id_partition, partition)]
    breaks = [row for topic_id_partition, partition in ordered for row in _break_rows(topic_id_partition, partition)]
    return FoldedMetadata(
        pa.Table.from_pylist(rows, schema=REMOTE_METADATA),
        pa.Table.from_pylist(breaks, schema=LINEAGE_BREAKS),
        frozenset(partitions),
        count,
        last_ms,
    )


@dataclass(frozen=True, slots=True)
class EpochRead:
    """Offsets of one leader epoch that brokers find in a remote segment.

    Attributes:
        of_segment: the first and the last offset of the segment.
    """

    segment_id: str
    epoch: int
    start_offset: int
    end_offset: int
    of_segment: tuple[int, int]


@dataclass(frozen=True, slots=True)
class VisibleOffsets:
    """What consumers get of a remote segment.

    Attributes:
        first_offset, last_offset: both inclusive.
        is_whole: these are all offsets of the segment.
    """

    first_offset: int
    last_offset: int
    is_whole: bool


def visible_offsets(reads: Sequence[EpochRead]) -> dict[str, VisibleOffsets]:
    """What consumers get of each remote segment of a partition, without segments of which they get nothing.

    A broker looks up the epoch of an offset in its leader epoch cache, and then the last segment of that epoch that
    begins at or before the offset (`RemoteLogManager.fetchRemoteLogSegmentMetadata`). An epoch ends where a later one
    begins: later offsets that the earlier leader has copied were never committed.

    Args:
        reads: one partition's, from `epochs_read`.
    """
    of_epochs: defaultdict[int, list[EpochRead]] = defaultdict(list)
    for read in reads:
        of_epochs[read.epoch].append(read)
    epochs = sorted(of_epochs)
    starts = [min(read.start_offset for read in of_epochs[epoch]) for epoch in epochs]
    # For each epoch the least first offset of all later epochs.
    ends = [*list(accumulate(reversed(starts), min))[::-1][1:], None][: len(epochs)]
    ranges: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for epoch, end in zip(epochs, ends, strict=True):
        ordered = sorted(of_epochs[epoch], key=lambda read: read.start_offset)
        for read, after in zip(ordered, [*ordered[1:], None], strict=True):
            limits = [limit - 1 for limit in (end, None if after is None else after.start_offset) if limit is not None]
            last = min([read.end_offset, *limits])
            if last >= read.start_offset:
                ranges[read.segment_id].append((read.start_offset, last))
    of_segments = {read.segment_id: read.of_segment for read in reads}
    visible = {}
    for segment_id, pieces in ranges.items():
        first, last = _joined_ranges(segment_id, sorted(pieces))
        visible[segment_id] = VisibleOffsets(first, last, is_whole=(first, last) == of_segments[segment_id])
    return visible


def _joined_ranges(segment_id: str, pieces: list[tuple[int, int]]) -> tuple[int, int]:
    for (_, last), (first, _) in pairwise(pieces):
        if first != last + 1:
            raise RemoteLogMetadataError(
                f"remote segment {segment_id}: consumers get offsets up to {last} of it and from {first} on, and those "
                "between of another; kidx reads no such segment"
            )
    return pieces[0][0], pieces[-1][1]


def epochs_read(records: Iterable[MetadataRecord]) -> dict[TopicIdPartition, list[EpochRead]]:
    """What brokers read of each partition that is not deleted, from the records of one metadata partition, in order."""
    partitions, _, _ = _folded(records)
    return {
        topic_id_partition: list(_epochs_read(partition))
        for topic_id_partition, partition in partitions.items()
        if not partition.is_deleted
    }


def _epochs_read(partition: _RemoteSegmentsOfPartition) -> Iterator[EpochRead]:
    for read in partition.readable():
        copied = read.copied
        of_segment = copied.start_offset, copied.end_offset
        yield EpochRead(copied.segment.id, read.epoch, read.start_offset, read.end_offset, of_segment)


def _folded(
    records: Iterable[MetadataRecord],
) -> tuple[dict[TopicIdPartition, _RemoteSegmentsOfPartition], int, int | None]:
    """The partitions, the number of records, and the latest record's time."""
    partitions: defaultdict[TopicIdPartition, _RemoteSegmentsOfPartition] = defaultdict(_RemoteSegmentsOfPartition)
    count, last_ms = 0, None
    for record in records:
        count += 1
        last_ms = max(record.timestamp_ms, record.timestamp_ms if last_ms is None else last_ms)
        match record.metadata:
            case RemoteSegment() as segment:
                partitions[segment.segment.partition].add(segment)
            case RemoteSegmentUpdate() as update:
                partitions[update.segment.partition].update(update)
            case RemotePartitionDelete() as deleted:
                is_deleted = deleted.state is PartitionDeleteState.DELETE_PARTITION_FINISHED
                partitions[deleted.partition].is_deleted = is_deleted
    return partitions, count, last_ms


def _epoch_ranges(segment: RemoteSegment) -> Iterator[tuple[int, int, int]]:
    """The leader epochs of a segment, each with its first and its last offset in the segment."""
    epochs = [*segment.leader_epochs.items(), (0, segment.end_offset + 1)]
    for (epoch, start_offset), (_, next_offset) in pairwise(epochs):
        yield epoch, start_offset, next_offset - 1


def _segment_rows(
    topic_id_partition: TopicIdPartition, partition: _RemoteSegmentsOfPartition
) -> Iterator[dict[str, Any]]:
    read_ids = {read.copied.segment.id for read in partition.readable()}
    for known in sorted(
        partition.segments.values(), key=lambda known: (known.copied.start_offset, known.copied.segment.id)
    ):
        copied, state = known.copied, known.state
        if partition.is_deleted:
            state = SegmentState.DELETE_SEGMENT_FINISHED
        yield {
            "topic": topic_id_partition.topic,
            "partition": topic_id_partition.partition,
            "topic_id": topic_id_partition.topic_id,
            "start_offset": copied.start_offset,
            "end_offset": copied.end_offset,
            "segment_id": copied.segment.id,
            "state": state.name,
            "state_since_ms": known.since_ms,
            "broker_id": copied.broker_id,
            "copied_at_ms": copied.event_timestamp_ms,
            "max_timestamp_ms": copied.max_timestamp_ms,
            "log_bytes": copied.segment_bytes,
            "leader_epochs": [
                {"epoch": epoch, "start_offset": start_offset} for epoch, start_offset in copied.leader_epochs.items()
            ],
            "transaction_index_empty": copied.transaction_index_empty,
            "is_read": copied.segment.id in read_ids and not partition.is_deleted,
        }


def _break_rows(
    topic_id_partition: TopicIdPartition, partition: _RemoteSegmentsOfPartition
) -> Iterator[dict[str, Any]]:
    """Where the segments that brokers read do not follow one another."""
    if partition.is_deleted:
        return
    last_offset: int | None = None
    for read in partition.readable():
        if last_offset is not None and read.start_offset != last_offset + 1:
            is_gap = read.start_offset > last_offset
            yield {
                "topic": topic_id_partition.topic,
                "partition": topic_id_partition.partition,
                "topic_id": topic_id_partition.topic_id,
                "epoch": read.epoch,
                "segment_id": read.copied.segment.id,
                "segment_start_offset": read.copied.start_offset,
                "first_offset": last_offset + 1 if is_gap else read.start_offset,
                "last_offset": read.start_offset - 1 if is_gap else min(last_offset, read.end_offset),
                "is_gap": is_gap,
            }
        last_offset = read.end_offset if last_offset is None else max(last_offset, read.end_offset)


def readable_segments(segments: pa.Table) -> list[dict[str, Any]]:
    """The remote segments that brokers read: the rows of `REMOTE_METADATA` that are copied, and found by an epoch."""
    is_copied = segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_FINISHED.name
    wanted = np.array(is_copied & segments["is_read"].to_numpy(), np.bool_)
    rows: list[dict[str, Any]] = segments.filter(pa.array(wanted)).to_pylist() if wanted.any() else []
    return rows


def epochs_up_to(segments: Sequence[Mapping[str, Any]]) -> dict[str, tuple[EpochEntry, ...] | None]:
    """The leader epochs that a broker copies with each remote segment (`RemoteLogManager.copyLogSegment`), without
    those before the first remaining segment's, which have no records any more.

    Args:
        segments: one partition's rows of `REMOTE_METADATA` that brokers read, by start offset.

    Returns:
        By segment id. None if segments before it are missing, or two end where it begins.
    """
    ends = Counter(segment["end_offset"] for segment in segments)
    epochs_of: dict[str, tuple[EpochEntry, ...] | None] = {}
    at_end: dict[int, tuple[EpochEntry, ...] | None] = {}
    for number, segment in enumerate(segments):
        before = () if number == 0 else at_end.get(segment["start_offset"] - 1)
        epochs = None if before is None else _joined(before, segment["leader_epochs"])
        epochs_of[segment["segment_id"]] = epochs
        at_end[segment["end_offset"]] = epochs if ends[segment["end_offset"]] == 1 else None
    return epochs_of


def _joined(before: tuple[EpochEntry, ...], own: Sequence[Mapping[str, int]]) -> tuple[EpochEntry, ...] | None:
    entries = list(before)
    for entry in own:
        last = entries[-1] if entries else None
        if last is not None and entry["epoch"] < last.epoch:
            return None
        if last is None or entry["epoch"] > last.epoch:
            entries.append(EpochEntry(entry["epoch"], entry["start_offset"]))
    return tuple(entries)
