"""What tiered topics take in the bucket and in log dirs, and what of them is still to be copied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kidxlib.log.remote.segments import REMOTE_METADATA
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.audit.tiered.numbers.local_logs import LocalLog
from kidxlib.operations.audit.tiered.plan import by_partition

#: Name and id of a topic.
TopicId = tuple[str, str]
#: The highest offset of a partition of which nothing is copied.
NOTHING_COPIED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """Segments of a partition that are full and not in the bucket yet.

    Attributes:
        bytes: of their logs (`RemoteCopyLagBytes`).
        first_offset: of the oldest.
        since_ms: the time of its last record, or, where that is later or not known, when its log was last written; ms
            since the epoch.
        copied_ms: when the partition's last segment was copied; None where none was.
        written_ms: when the log of the oldest was last written.
    """

    partition: TopicIdPartition
    segments: int
    bytes: int
    first_offset: int
    since_ms: int
    written_ms: int
    copied_ms: int | None

    def waiting_ms(self, as_of_ms: int) -> int:
        """For how long nothing of it has been copied, at least: as long as it is full, and since the last copy."""
        return as_of_ms - max(self.since_ms, self.written_ms, self.copied_ms or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizes:
    """What a topic takes.

    Attributes:
        segments, log_bytes: that are copied, and the bytes of their logs, by the metadata.
        object_bytes: of all objects in the directories of its partitions.
        partitions: that are known at all, and of how many of these a log dir has the log.
        local_bytes: of these logs, in all log dirs that were given; None where there is none, so that nobody knows
            what is still to be copied.
        lags: of its partitions that have some.
    """

    topic: str
    topic_id: str
    segments: int
    log_bytes: int
    object_bytes: int
    partitions: int
    partitions_with_log: int
    local_bytes: int | None
    lags: Sequence[CopyLag]

    @property
    def lag_bytes(self) -> int | None:
        """Bytes that are still to be copied; None where nobody knows."""
        return None if self.local_bytes is None else sum(lag.bytes for lag in self.lags)


@dataclass(frozen=True, slots=True)
class Sides:
    """Partitions on both sides.

    Attributes:
        remote: rows of `REMOTE_METADATA` that are copied and that brokers read, by start offset.
        logs: those that log dirs have.
        as_of_ms: the time of the latest of all of it, ms since the epoch; or another one that was asked for.
    """

    remote: Mapping[TopicIdPartition, pa.Table]
    logs: Mapping[TopicIdPartition, Sequence[LocalLog]]
    as_of_ms: int

    @classmethod
    def of(cls, segments: pa.Table, logs: Iterable[LocalLog], as_of_ms: int, *, is_given: bool) -> Sides:
        """
        Args:
            segments: rows of `REMOTE_METADATA`.
            as_of_ms: the time of the metadata.
            is_given: that time was asked for.
        """
        is_read = segments["is_read"].to_numpy() & (
            segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_FINISHED.name
        )
        by_log: defaultdict[TopicIdPartition, list[LocalLog]] = defaultdict(list)
        for log in logs:
            by_log[log.partition].append(log)
        written = [int(log.segments.mtimes_ms.max()) for of_partition in by_log.values() for log in of_partition]
        latest = as_of_ms if is_given else max([as_of_ms, *written])
        return cls(by_partition(segments.filter(pa.array(is_read)), "start_offset"), by_log, latest)

    def remote_of(self, partition: TopicIdPartition) -> pa.Table:
        return self.remote.get(partition, REMOTE_METADATA.empty_table())

    def furthest(self, partition: TopicIdPartition) -> LocalLog | None:
        """The log of a partition that goes furthest."""
        return max(self.logs.get(partition, ()), key=lambda log: log.end, default=None)

    @property
    def partitions(self) -> list[TopicIdPartition]:
        found = {*self.remote, *self.logs}
        return sorted(found, key=lambda each: (each.topic, each.topic_id, each.partition))


def highest_copied(remote: pa.Table) -> int:
    """The last offset that is in the bucket."""
    return int(remote["end_offset"].to_numpy().max()) if remote.num_rows else NOTHING_COPIED


def sizes_of(sides: Sides, object_bytes: Mapping[TopicId, int], copied: Iterable[TopicId]) -> list[TopicSizes]:
    """What each topic takes, in the order of names.

    Args:
        object_bytes: as the bucket lists them.
        copied: topics of which nobody says that they are copied no longer.
    """
    are_copied = set(copied)
    partitions: defaultdict[TopicId, list[TopicIdPartition]] = defaultdict(list)
    for each in sides.partitions:
        partitions[each.topic, each.topic_id].append(each)
    found = []
    for topic in sorted({*partitions, *object_bytes}):
        of_topic = partitions.get(topic, [])
        lags = (_lag(sides, each) for each in of_topic if topic in are_copied)
        remote = [sides.remote_of(each) for each in of_topic]
        found.append(
            TopicSizes(
                topic=topic[0],
                topic_id=topic[1],
                segments=sum(rows.num_rows for rows in remote),
                log_bytes=sum(_sum(rows["log_bytes"]) for rows in remote),
                object_bytes=object_bytes.get(topic, 0),
                partitions=len(of_topic),
                partitions_with_log=sum(each in sides.logs for each in of_topic),
                local_bytes=_bytes_of_logs(sides, of_topic),
                lags=[lag for lag in lags if lag is not None],
            )
        )
    return found


def _bytes_of_logs(sides: Sides, partitions: Iterable[TopicIdPartition]) -> int | None:
    found = [log.bytes for each in partitions for log in sides.logs.get(each, ())]
    return sum(found) if found else None


def _lag(sides: Sides, partition: TopicIdPartition) -> CopyLag | None:
    """None where all is copied but the last segment, to which the leader still writes."""
    log = sides.furthest(partition)
    if log is None:
        return None
    highest = highest_copied(sides.remote_of(partition))
    waiting = np.flatnonzero(log.segments.base_offsets[:-1] > highest)
    if not len(waiting):
        return None
    first = int(waiting[0])
    [largest] = log.largest_timestamps([first]).tolist()
    written_ms, remote = int(log.segments.mtimes_ms[first]), sides.remote_of(partition)
    return CopyLag(
        partition=partition,
        segments=len(waiting),
        bytes=int(log.segments.sizes[waiting].sum()),
        first_offset=int(log.segments.base_offsets[first]),
        since_ms=largest if 0 <= largest <= written_ms else written_ms,
        written_ms=written_ms,
        copied_ms=int(remote["state_since_ms"].to_numpy().max()) if remote.num_rows else None,
    )


def _sum(column: Any) -> int:
    return int(column.to_numpy().sum())
