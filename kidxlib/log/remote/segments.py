"""What the metadata topic leaves of remote segments: the state of each, which of them brokers read at which offsets and
leader epochs, and what consumers get where leaders have copied some offsets twice.

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

#: By the state that a segment has, those that an update may give it beside that one (`isValidTransition`).
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
    pa.field("end_offset", pa.int64(), nullable=False),  # of its last record, perhaps of one that is gone
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
#: Offsets of a partition that no remote segment has, or that two have.
_BREAK_FIELDS: Final[list[pa.Field[Any]]] = [
    *_FIELDS[:3],
    pa.field("epoch", pa.int32(), nullable=False),  # of the segment that goes on after it
    pa.field("segment_id", pa.string(), nullable=False),  # that one
    pa.field("segment_start_offset", pa.int64(), nullable=False),
    pa.field("first_offset", pa.int64(), nullable=False),
    pa.field("last_offset", pa.int64(), nullable=False),
    pa.field("is_gap", pa.bool_(), nullable=False),  # false: two segments have them
]
LINEAGE_BREAKS: Final = pa.schema(_BREAK_FIELDS)


@dataclass(slots=True)
class _Known:
    """A segment as the records so far leave it."""

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
        starts: the first offsets of the epoch in segments whose copying has ended and that no other has replaced,
            ascending.
        ids: the segment of each of these, by that offset.
        highest_offset: the highest that was copied in this epoch; None where none was.
    """

    __slots__ = ("highest_offset", "ids", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ids: dict[int, str] = {}
        self.highest_offset: int | None = None

    def copied(self, start_offset: int, segment_id: str, end_offset: int) -> None:
        """A segment was copied. It takes the place of those that begin at or after its start and that it reaches beyond
        (`handleSegmentWithCopySegmentFinishedState`).

        Args:
            start_offset, end_offset: of the epoch in the segment, both included.
        """
        reaches = self.highest_offset is None or self.highest_offset <= end_offset
        while reaches and self.starts and self.starts[-1] >= start_offset:
            del self.ids[self.starts.pop()]
        if start_offset not in self.ids:
            insort(self.starts, start_offset)
        self.ids[start_offset] = segment_id
        if self.highest_offset is None or end_offset > self.highest_offset:
            self.highest_offset = end_offset

    def deleting(self, start_offset: int, segment_id: str) -> None:
        """A segment is being deleted (`handleSegmentWithDeleteSegmentStartedState`)."""
        if self.ids.get(start_offset) == segment_id:
            del self.ids[start_offset]
            self.starts.pop(bisect_left(self.starts, start_offset))


@dataclass(slots=True)
class _Partition:
    """A partition of a topic as the records so far leave it."""

    segments: dict[str, _Known] = field(default_factory=dict)
    epochs: defaultdict[int, _EpochLineage] = field(default_factory=lambda: defaultdict(_EpochLineage))
    is_deleted: bool = False

    def add(self, segment: RemoteSegment) -> None:
        """A segment begins to be copied (`addCopyInProgressSegment`); in any other state Kafka takes none."""
        known = self.segments.get(segment.segment.id)
        begins = known is None or known.state in (
            SegmentState.COPY_SEGMENT_STARTED,
            SegmentState.DELETE_SEGMENT_FINISHED,  # Kafka does not remember it
        )
        if begins and segment.state is SegmentState.COPY_SEGMENT_STARTED:
            self.segments[segment.segment.id] = _Known(segment, segment.state, segment.event_timestamp_ms)

    def update(self, update: RemoteSegmentUpdate) -> None:
        """A segment has another state (`updateRemoteLogSegmentMetadata`). What Kafka does not take is left out."""
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

    def read(self) -> Iterator[_Read]:
        """The segments that brokers find by an offset and its epoch, in the order of epochs and offsets."""
        for epoch, lineage in sorted(self.epochs.items()):
            for start_offset in lineage.starts:
                copied = self.segments[lineage.ids[start_offset]].copied
                end_offset = next(end for each, _, end in _epoch_ranges(copied) if each == epoch)
                if start_offset <= end_offset:  # else no record in it has this epoch
                    yield _Read(copied, epoch, start_offset, end_offset)


@dataclass(frozen=True, slots=True)
class FoldedMetadata:
    """What the records of some metadata partitions leave.

    Attributes:
        segments: rows of `REMOTE_METADATA`, those too that are deleted, in the order of partitions and offsets.
        breaks: rows of `LINEAGE_BREAKS`.
        partitions: that have records.
        records: how many were read.
        last_ms: the latest time in them, ms since the epoch; None where there are none.
    """

    segments: pa.Table
    breaks: pa.Table
    partitions: frozenset[TopicIdPartition]
    records: int
    last_ms: int | None


def fold_metadata(records: Iterable[MetadataRecord]) -> FoldedMetadata:
    """Go through the records of one metadata partition, in order: it has all that there are of a topic's partition."""
    partitions, count, last_ms = _folded(records)
    ordered = sorted(partitions.items(), key=lambda item: (item[0].topic, item[0].partition, item[0].topic_id))
    rows = [row for of, partition in ordered for row in _segment_rows(of, partition)]
    breaks = [row for of, partition in ordered for row in _break_rows(of, partition)]
    return FoldedMetadata(
        pa.Table.from_pylist(rows, schema=REMOTE_METADATA),
        pa.Table.from_pylist(breaks, schema=LINEAGE_BREAKS),
        frozenset(partitions),
        count,
        last_ms,
    )


@dataclass(frozen=True, slots=True)
class EpochRead:
    """Offsets of one leader epoch that brokers find in a remote segment."""

    segment_id: str
    epoch: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VisibleOffsets:
    """What consumers get of a remote segment.

    Attributes:
        first_offset, last_offset: both included.
        is_whole: it is all that brokers find in it.
    """

    first_offset: int
    last_offset: int
    is_whole: bool


def visible_offsets(reads: Sequence[EpochRead]) -> dict[str, VisibleOffsets]:
    """What consumers get of each segment of a partition; those of which they get nothing are left out.

    A broker asks its leader epoch cache for the epoch of an offset, and then for the last segment of that epoch that
    begins at or before the offset (`RemoteLogManager.fetchRemoteLogSegmentMetadata`). An epoch ends where a later one
    begins: what an earlier leader has copied beyond that was never committed.

    Args:
        reads: what brokers read of one partition, see `kidxlib.log.remote.segments.epochs_read`.
    """
    of_epochs: defaultdict[int, list[EpochRead]] = defaultdict(list)
    for read in reads:
        of_epochs[read.epoch].append(read)
    epochs = sorted(of_epochs)
    starts = [min(read.start_offset for read in of_epochs[epoch]) for epoch in epochs]
    # Of each epoch the first offset of all later ones.
    ends = [*list(accumulate(reversed(starts), min))[::-1][1:], None][: len(epochs)]
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for epoch, end in zip(epochs, ends, strict=True):
        ordered = sorted(of_epochs[epoch], key=lambda read: read.start_offset)
        for read, after in zip(ordered, [*ordered[1:], None], strict=True):
            limits = [limit - 1 for limit in (end, None if after is None else after.start_offset) if limit is not None]
            last = min([read.end_offset, *limits])
            if last >= read.start_offset:
                found[read.segment_id].append((read.start_offset, last))
    firsts, lasts = dict[str, int](), dict[str, int]()
    for read in reads:
        firsts[read.segment_id] = min(read.start_offset, firsts.get(read.segment_id, read.start_offset))
        lasts[read.segment_id] = max(read.end_offset, lasts.get(read.segment_id, read.end_offset))
    visible = {}
    for segment_id, pieces in found.items():
        first, last = _joined_ranges(segment_id, sorted(pieces))
        is_whole = (first, last) == (firsts[segment_id], lasts[segment_id])
        visible[segment_id] = VisibleOffsets(first, last, is_whole)
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
    """What brokers read of each partition that is not deleted, by the records of one metadata partition, in order."""
    partitions, _, _ = _folded(records)
    return {of: list(_epochs_read(partition)) for of, partition in partitions.items() if not partition.is_deleted}


def _epochs_read(partition: _Partition) -> Iterator[EpochRead]:
    for each in partition.read():
        yield EpochRead(each.copied.segment.id, each.epoch, each.start_offset, each.end_offset)


def _folded(records: Iterable[MetadataRecord]) -> tuple[dict[TopicIdPartition, _Partition], int, int | None]:
    """The partitions, how many records there are, and the latest time in them."""
    partitions: defaultdict[TopicIdPartition, _Partition] = defaultdict(_Partition)
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
    """The leader epochs of a segment, each with its first and its last offset there."""
    epochs = [*segment.leader_epochs.items(), (0, segment.end_offset + 1)]
    for (epoch, start_offset), (_, next_offset) in pairwise(epochs):
        yield epoch, start_offset, next_offset - 1


def _segment_rows(of: TopicIdPartition, partition: _Partition) -> Iterator[dict[str, Any]]:
    read = {each.copied.segment.id for each in partition.read()}
    for known in sorted(
        partition.segments.values(), key=lambda known: (known.copied.start_offset, known.copied.segment.id)
    ):
        copied, state = known.copied, known.state
        if partition.is_deleted:
            state = SegmentState.DELETE_SEGMENT_FINISHED
        yield {
            "topic": of.topic,
            "partition": of.partition,
            "topic_id": of.topic_id,
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
            "is_read": copied.segment.id in read and not partition.is_deleted,
        }


def _break_rows(of: TopicIdPartition, partition: _Partition) -> Iterator[dict[str, Any]]:
    """Where the segments that brokers read do not follow one another."""
    if partition.is_deleted:
        return
    last_offset: int | None = None
    for each in partition.read():
        if last_offset is not None and each.start_offset != last_offset + 1:
            is_gap = each.start_offset > last_offset
            yield {
                "topic": of.topic,
                "partition": of.partition,
                "topic_id": of.topic_id,
                "epoch": each.epoch,
                "segment_id": each.copied.segment.id,
                "segment_start_offset": each.copied.start_offset,
                "first_offset": last_offset + 1 if is_gap else each.start_offset,
                "last_offset": each.start_offset - 1 if is_gap else min(last_offset, each.end_offset),
                "is_gap": is_gap,
            }
        last_offset = each.end_offset if last_offset is None else max(last_offset, each.end_offset)


def read_segments(segments: pa.Table) -> list[dict[str, Any]]:
    """The rows of `REMOTE_METADATA` that are copied and that brokers read."""
    is_copied = segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_FINISHED.name
    wanted = np.array(is_copied & segments["is_read"].to_numpy(), np.bool_)
    rows: list[dict[str, Any]] = segments.filter(pa.array(wanted)).to_pylist() if wanted.any() else []
    return rows


def epochs_up_to(segments: Sequence[Mapping[str, Any]]) -> dict[str, tuple[EpochEntry, ...] | None]:
    """What `RemoteLogManager.copyLogSegment` copies with each segment, but for epochs before the first one that is
    left, of which no record is left either.

    Args:
        segments: rows of `REMOTE_METADATA` of one partition that brokers read, by start offset.

    Returns:
        By segment id. None where segments before it are missing, or two end where it begins.
    """
    ends = Counter(each["end_offset"] for each in segments)
    found: dict[str, tuple[EpochEntry, ...] | None] = {}
    at_end: dict[int, tuple[EpochEntry, ...] | None] = {}
    for number, each in enumerate(segments):
        before = () if number == 0 else at_end.get(each["start_offset"] - 1)
        epochs = None if before is None else _joined(before, each["leader_epochs"])
        found[each["segment_id"]] = epochs
        at_end[each["end_offset"]] = epochs if ends[each["end_offset"]] == 1 else None
    return found


def _joined(before: tuple[EpochEntry, ...], own: Sequence[Mapping[str, int]]) -> tuple[EpochEntry, ...] | None:
    entries = list(before)
    for each in own:
        last = entries[-1] if entries else None
        if last is not None and each["epoch"] < last.epoch:
            return None
        if last is None or each["epoch"] > last.epoch:
            entries.append(EpochEntry(each["epoch"], each["start_offset"]))
    return tuple(entries)
