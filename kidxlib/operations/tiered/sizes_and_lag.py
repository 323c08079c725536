"""The numbers of an audit of tiered storage: the size of topics in the bucket and in log dirs, segments that are still
to be copied, partitions whose copying has stopped, and what other retention settings would free, by the rules of
`kidxlib.retention.decide`.

In the bucket, a leader deletes the first segments if they are too old, or if the partition is too large, counting
segments that are not copied yet (`RLMExpirationTask.cleanupExpiredRemoteLogSegments`). In log dirs, `local.retention`
deletes the first segments that are copied; segments before the start of the bucket go, too
(`UnifiedLog.deleteOldSegments`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from kidxlib.audit.tiered.remote_finding import (
    METADATA,
    STALLED,
    STALLS,
    RemoteFindingRow,
    RemoteSegmentKey,
    broken_remote,
)
from kidxlib.catalog.matching import numbers_in
from kidxlib.errors import UsageError
from kidxlib.format import layouts
from kidxlib.format.kafka_release import KAFKA_4_4, KafkaRelease
from kidxlib.format.segment_files import OFFSET_MAX, TIME_INDEX_SUFFIX, segment_file
from kidxlib.indexing.plan import add_segments, find_partitions
from kidxlib.indexing.source import IndexPlace, Source
from kidxlib.log.remote.segments import REMOTE_METADATA
from kidxlib.messages.remote_log_metadata import SegmentState, TopicIdPartition
from kidxlib.operations.tiered.bucket_audit import BucketAuditPlan, BucketAuditTopics, Counts
from kidxlib.operations.tiered.remote_metadata import RemoteMetadata, split_by_partition
from kidxlib.operations.tiered.tiered_request import (
    LOCAL_RETENTION_BYTES,
    LOCAL_RETENTION_MS,
    RETENTION_BYTES,
    RETENTION_MS,
    SETTINGS,
    TieredRequest,
)
from kidxlib.recovery.options import OptionsOfTopic, RecoverOptions
from kidxlib.retention.decide import Longs, RetentionBounds, SegmentColumns, decide
from kidxlib.retention.policy import UNLIMITED, TopicPolicy
from kidxlib.storage.location import Directory, Location
from kidxlib.storage.small_files import read_end
from kidxlib.terminal.console import warn
from kidxlib.text.times import NS_PER_MS, show_time
from kidxlib.text.words import counted

#: The value of a local limit that stands for the limit without `local.`.
_SAME_AS_TOTAL_LIMIT: Final = -2
#: The name and the id of a topic.
TopicId = tuple[str, str]
#: The highest copied offset of a partition without a copied segment.
_NOTHING_COPIED: Final = -1
_NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class MeasuredLog:
    """A partition's log in one log dir, measured by a listing. It has at least one segment.

    Attributes:
        segments: the segments in the order of base offsets; their largest timestamps are not set.
    """

    partition: TopicIdPartition
    directory: Location
    segments: SegmentColumns

    @property
    def end(self) -> tuple[int, int]:
        """Where the log in this log dir ends, to compare it with copies in others: the one that goes further is the
        leader's, or as good.
        """
        return int(self.segments.base_offsets[-1]), int(self.segments.sizes[-1])

    @property
    def bytes(self) -> int:
        """The size of the log in its log dir."""
        return int(self.segments.sizes.sum())

    def largest_timestamps(self, numbers: Iterable[int]) -> Longs:
        """The last timestamps in the time indexes of some segments, ms since the epoch; −1 if a timestamp is not known:
        that of the last segment, and all in an object store, where each would take a request.
        """
        return np.array([self._largest_timestamp(number) for number in numbers], np.int64)

    def _largest_timestamp(self, number: int) -> int:
        base_offset = int(self.segments.base_offsets[number])
        if number == len(self.segments) - 1 or not isinstance(self.directory, Path):
            return _NO_TIME
        name = segment_file(base_offset, TIME_INDEX_SUFFIX)
        end = read_end(Directory(str(self.directory), ""), name, layouts.TIME_INDEX_ENTRY.itemsize)
        if end is None or len(end) != layouts.TIME_INDEX_ENTRY.itemsize:
            return _NO_TIME
        timestamp = int(np.frombuffer(end, layouts.TIME_INDEX_ENTRY)["timestamp"][0])
        return timestamp if timestamp > 0 else _NO_TIME  # zeros: the index is still preallocated


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLag:
    """The segments of a partition that are full and not in the bucket yet. Times are ms since the epoch.

    Attributes:
        bytes: the size of the segments' logs (`RemoteCopyLagBytes`).
        first_offset: the first offset of the oldest segment.
        since_ms: the time of the oldest segment's last record; if that is not known, or the log was written earlier,
            the time of that write.
        written_ms: when the log of the oldest segment was last written.
        copied_ms: when the partition's last segment was copied; None if none was.
    """

    partition: TopicIdPartition
    segments: int
    bytes: int
    first_offset: int
    since_ms: int
    written_ms: int
    copied_ms: int | None

    def waiting_ms(self, as_of_ms: int) -> int:
        """The lag as a time: for how many ms at least nothing was copied, since the oldest segment was full, and since
        the last copy.
        """
        return as_of_ms - max(self.since_ms, self.written_ms, self.copied_ms or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizes:
    """How much room a topic takes.

    Attributes:
        segments, log_bytes: the number of copied segments and the size of their logs, by the metadata.
        object_bytes: the size of all objects in the directories of the topic's partitions.
        partitions_with_log: how many partitions have a log in a log dir.
        local_bytes: the size of these logs in all given log dirs; None if there is no log, so that the lag is not
            known.
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
        """How many bytes are still to be copied; None if that is not known."""
        return None if self.local_bytes is None else sum(lag.bytes for lag in self.lags)


@dataclass(frozen=True, slots=True)
class _Amount:
    """A number of segments, and the size of their logs."""

    segments: int = 0
    bytes: int = 0

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(self.segments + other.segments, self.bytes + other.bytes)

    def __sub__(self, other: _Amount) -> _Amount:
        return _Amount(self.segments - other.segments, self.bytes - other.bytes)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What retention deletes in the bucket and in log dirs."""

    remote: _Amount = _Amount()
    local: _Amount = _Amount()

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(self.remote + other.remote, self.local + other.local)

    def __sub__(self, other: Deleted) -> Deleted:
        return Deleted(self.remote - other.remote, self.local - other.local)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedOfTieredTopic:
    """What other settings would free of a topic in the bucket and in log dirs.

    Attributes:
        due: what the topic's own settings delete.
        then: what the other settings delete.
        unknown: settings that are not known; they count as no limit.
    """

    topic: str
    topic_id: str
    due: Deleted
    then: Deleted
    unknown: Sequence[str]

    @property
    def freed(self) -> Deleted:
        """How much more the other settings delete in the bucket and in log dirs; negative if they delete less."""
        return self.then - self.due


@dataclass(frozen=True, slots=True)
class BucketNumbers:
    """The numbers of topics in the bucket and in log dirs.

    Attributes:
        as_of_ms: the time from which ages are counted, ms since the epoch.
        log_dirs: the log dirs that were listed.
        topics, what_if: in the order of names; `what_if` is empty if no other settings were given.
    """

    as_of_ms: int
    log_dirs: Sequence[Location] = ()
    topics: Sequence[TopicSizes] = ()
    what_if: Sequence[FreedOfTieredTopic] = ()

    @property
    def lags(self) -> list[CopyLag]:
        """The lags of all partitions that have one, the longest first."""
        lags = (lag for topic in self.topics for lag in topic.lags)
        return sorted(lags, key=lambda lag: (lag.since_ms, lag.partition.topic, lag.partition.partition))


def bucket_numbers(
    request: TieredRequest, plan: BucketAuditPlan, metadata: RemoteMetadata, counts: Counts
) -> BucketNumbers:
    """List the log dirs of the metadata, and compute the numbers of topics."""
    in_metadata = metadata.segments.select(["topic", "topic_id"]).group_by(["topic", "topic_id"]).aggregate([])
    topics: set[TopicId] = {(row["topic"], row["topic_id"]) for row in in_metadata.to_pylist()} | {
        *plan.topics.copied_topics()
    }
    log_dirs = request.log_dirs
    logs = local_logs(log_dirs, topics)
    sides = _Sides.from_rows(metadata.segments, logs, plan.as_of.metadata_ms, is_given=request.as_of_ms is not None)
    copied = [topic for topic in topics if plan.topics.is_copied(*topic) is not False]
    settings = {
        topic: {name: value for name in SETTINGS if (value := plan.topics.setting(*topic, name)) is not None}
        for topic in topics
    }
    return BucketNumbers(
        as_of_ms=sides.as_of_ms,
        log_dirs=[source.path for source in log_dirs],
        topics=_topic_sizes(sides, counts.object_bytes, copied),
        what_if=freed_by_settings(sides, settings, request.what_if, request.kafka.release) if request.what_if else (),
    )


def findings_on_lag(numbers: BucketNumbers, topics: BucketAuditTopics, stuck_ms: int) -> Iterator[RemoteFindingRow]:
    """A finding on each partition whose lag is too long: its full segments wait for longer than its topic allows and
    `stuck_ms` besides.
    """
    for lag in numbers.lags:
        copying = topics.copying(lag.partition.topic, lag.partition.topic_id)
        waiting_ms = lag.waiting_ms(numbers.as_of_ms)
        allowed = copying.why_stalled(waiting_ms, lag.bytes, stuck_ms)
        if allowed is None:
            continue
        last = (
            "none was ever copied" if lag.copied_ms is None else f"the last one was copied {show_time(lag.copied_ms)}"
        )
        detail = (
            f"{counted(lag.segments, 'full segment')} of {lag.bytes:,} bytes wait in a log dir, for "
            f"{timedelta(milliseconds=waiting_ms)}; {last}; {allowed}"
        )
        key = RemoteSegmentKey(start_offset=lag.first_offset, segment_id=None)
        yield RemoteFindingRow.found(lag.partition, key, broken_remote(METADATA, STALLED, detail, STALLS))


def local_logs(sources: Iterable[Source], topic_ids: Collection[tuple[str, str]]) -> list[MeasuredLog]:
    """List the logs in log dirs of topics that are given by name and id. Sources are log dirs, or directories of single
    partitions.
    """
    if not topic_ids:
        return []
    topics = re.compile("|".join(sorted(re.escape(topic) for topic, _ in topic_ids)))
    wanted = set(topic_ids)
    return [
        log
        for source in {str(source.path): source for source in sources}.values()
        for log in _local_logs_in(source, topics)
        if (log.partition.topic, log.partition.topic_id) in wanted
    ]


def _local_logs_in(source: Source, topics: re.Pattern[str]) -> Iterator[MeasuredLog]:
    try:
        plan = find_partitions(
            [source], topics, IndexPlace(index_dir=None, by_source=False), lambda _: OptionsOfTopic(RecoverOptions())
        )
    except UsageError as error:
        warn(f"{error}; its logs are not counted")
        return
    add_segments(plan)
    for unlistable in plan.unlistable.values():
        warn(f"{unlistable.directory}: {unlistable.reason}; its log is not counted")
    for listed, rows in plan.by_partition():
        place = listed.directory.topic_partition
        sizes, is_seen = numbers_in(rows["log_bytes"])
        if not is_seen.any():
            continue
        segments = SegmentColumns(
            base_offsets=rows["base_offset"].to_numpy()[is_seen],
            sizes=sizes[is_seen],
            max_timestamps=np.full(int(is_seen.sum()), _NO_TIME, np.int64),
            mtimes_ms=numbers_in(rows["log_mtime_ns"])[0][is_seen] // NS_PER_MS,
            fully_read=np.ones(int(is_seen.sum()), np.bool_),
        )
        partition = TopicIdPartition(listed.topic_id or "", place.topic, place.partition)
        yield MeasuredLog(partition, listed.directory.path, segments)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Partitions in the bucket and in log dirs.

    Attributes:
        remote: the rows of `REMOTE_METADATA` of copied segments that brokers read, in the order of start offsets.
        as_of_ms: the time of the newest record or file, or a time that was asked for; ms since the epoch.
    """

    remote: Mapping[TopicIdPartition, pa.Table]
    logs: Mapping[TopicIdPartition, Sequence[MeasuredLog]]
    as_of_ms: int

    @classmethod
    def from_rows(cls, segments: pa.Table, logs: Iterable[MeasuredLog], as_of_ms: int, *, is_given: bool) -> _Sides:
        """From rows of `REMOTE_METADATA`, logs, and the time of the metadata; `is_given` if that time was asked for."""
        is_read = segments["is_read"].to_numpy() & (
            segments["state"].to_numpy() == SegmentState.COPY_SEGMENT_FINISHED.name
        )
        by_log: defaultdict[TopicIdPartition, list[MeasuredLog]] = defaultdict(list)
        for log in logs:
            by_log[log.partition].append(log)
        written = [int(log.segments.mtimes_ms.max()) for of_partition in by_log.values() for log in of_partition]
        latest = as_of_ms if is_given else max([as_of_ms, *written])
        return cls(split_by_partition(segments.filter(pa.array(is_read)), "start_offset"), by_log, latest)

    def remote_of(self, partition: TopicIdPartition) -> pa.Table:
        return self.remote.get(partition, REMOTE_METADATA.empty_table())

    def furthest(self, partition: TopicIdPartition) -> MeasuredLog | None:
        """The log of a partition that goes furthest (`MeasuredLog.end`); None if no log dir has one."""
        return max(self.logs.get(partition, ()), key=lambda log: log.end, default=None)

    @property
    def partitions(self) -> list[TopicIdPartition]:
        return sorted(
            {*self.remote, *self.logs},
            key=lambda partition: (partition.topic, partition.topic_id, partition.partition),
        )


def _last_copied_offset(remote: pa.Table) -> int:
    """The last offset in the bucket."""
    return int(remote["end_offset"].to_numpy().max()) if remote.num_rows else _NOTHING_COPIED


def _topic_sizes(sides: _Sides, object_bytes: Mapping[TopicId, int], copied: Iterable[TopicId]) -> list[TopicSizes]:
    """The sizes of each topic, in the order of names. `object_bytes` are by the listing, and `copied` the topics that
    brokers copy, as far as is known.
    """
    are_copied = set(copied)
    by_topic: defaultdict[TopicId, list[TopicIdPartition]] = defaultdict(list)
    for partition in sides.partitions:
        by_topic[partition.topic, partition.topic_id].append(partition)
    topics = []
    for topic in sorted({*by_topic, *object_bytes}):
        partitions = by_topic.get(topic, [])
        lags = (_copy_lag(sides, partition) for partition in partitions if topic in are_copied)
        remote = [sides.remote_of(partition) for partition in partitions]
        log_sizes = [log.bytes for partition in partitions for log in sides.logs.get(partition, ())]
        topics.append(
            TopicSizes(
                topic=topic[0],
                topic_id=topic[1],
                segments=sum(rows.num_rows for rows in remote),
                log_bytes=sum(int(rows["log_bytes"].to_numpy().sum()) for rows in remote),
                object_bytes=object_bytes.get(topic, 0),
                partitions=len(partitions),
                partitions_with_log=sum(partition in sides.logs for partition in partitions),
                local_bytes=sum(log_sizes) if log_sizes else None,
                lags=[lag for lag in lags if lag is not None],
            )
        )
    return topics


def _copy_lag(sides: _Sides, partition: TopicIdPartition) -> CopyLag | None:
    """The lag of a partition; None if all segments but the last, to which the leader writes, are copied."""
    log = sides.furthest(partition)
    if log is None:
        return None
    remote = sides.remote_of(partition)
    waiting = np.flatnonzero(log.segments.base_offsets[:-1] > _last_copied_offset(remote))
    if not len(waiting):
        return None
    first = int(waiting[0])
    [largest] = log.largest_timestamps([first]).tolist()
    written_ms = int(log.segments.mtimes_ms[first])
    return CopyLag(
        partition=partition,
        segments=len(waiting),
        bytes=int(log.segments.sizes[waiting].sum()),
        first_offset=int(log.segments.base_offsets[first]),
        since_ms=largest if 0 <= largest <= written_ms else written_ms,
        written_ms=written_ms,
        copied_ms=int(remote["state_since_ms"].to_numpy().max()) if remote.num_rows else None,
    )


def freed_by_settings(
    sides: _Sides,
    own: Mapping[TopicId, Mapping[str, int]],
    others: Mapping[str, int],
    release: KafkaRelease,
) -> list[FreedOfTieredTopic]:
    """What other settings (`others`) in place of the topics' own would free of each topic in the bucket and in log
    dirs, in the order of names. Settings have Kafka's names. `release` is the brokers' Kafka.
    """
    topics: dict[TopicId, FreedOfTieredTopic] = {}
    for partition in sides.partitions:
        topic = partition.topic, partition.topic_id
        settings = own.get(topic, {})
        due, then = (
            _deleted_by_retention(sides, partition, those, release) for those in (settings, {**settings, **others})
        )
        so_far = topics.get(topic)
        if so_far is not None:
            due, then = so_far.due + due, so_far.then + then
        unknown = [name for name in SETTINGS if name not in settings and name not in others]
        topics[topic] = FreedOfTieredTopic(topic=topic[0], topic_id=topic[1], due=due, then=then, unknown=unknown)
    return list(topics.values())


def _deleted_by_retention(
    sides: _Sides, partition: TopicIdPartition, settings: Mapping[str, int], release: KafkaRelease
) -> Deleted:
    rows = sides.remote_of(partition)
    remote, copied_to = _segments_for_retention(rows), _last_copied_offset(rows) + 1
    ms, bytes_ = settings.get(RETENTION_MS, UNLIMITED), settings.get(RETENTION_BYTES, UNLIMITED)
    gone = 0
    if len(remote):
        whole, end = _with_local_segments(remote, sides.furthest(partition), copied_to, release)
        policy = TopicPolicy(retention_ms=ms, retention_bytes=bytes_)
        bounds = RetentionBounds(0, end, OFFSET_MAX if len(whole) > len(remote) else end)
        # One ms later, as a leader also deletes a segment that is exactly as old as the limit.
        decisions = decide(whole, bounds, policy, sides.as_of_ms + 1)
        gone = min(decisions.deleted, len(remote))
    start = copied_to if gone == len(remote) else int(remote.base_offsets[gone])
    local_ms, local_bytes = settings.get(LOCAL_RETENTION_MS, UNLIMITED), settings.get(LOCAL_RETENTION_BYTES, UNLIMITED)
    local = TopicPolicy(
        retention_ms=ms if local_ms == _SAME_AS_TOTAL_LIMIT else local_ms,
        retention_bytes=bytes_ if local_bytes == _SAME_AS_TOTAL_LIMIT else local_bytes,
    )
    in_log_dirs = _Amount()
    for log in sides.logs.get(partition, ()):
        segments = replace(log.segments, max_timestamps=log.largest_timestamps(range(len(log.segments))))
        decisions = decide(segments, RetentionBounds(start, copied_to, OFFSET_MAX), local, sides.as_of_ms)
        in_log_dirs += _amount_of_first_segments(segments, decisions.deleted)
    return Deleted(_amount_of_first_segments(remote, gone), in_log_dirs)


def _segments_for_retention(rows: pa.Table) -> SegmentColumns:
    return SegmentColumns(
        base_offsets=rows["start_offset"].to_numpy(),
        sizes=rows["log_bytes"].to_numpy(),
        max_timestamps=rows["max_timestamp_ms"].to_numpy(),
        mtimes_ms=rows["copied_at_ms"].to_numpy(),
        fully_read=np.ones(rows.num_rows, np.bool_),
    )


def _with_local_segments(
    remote: SegmentColumns, log: MeasuredLog | None, copied_to: int, release: KafkaRelease
) -> tuple[SegmentColumns, int]:
    """The remote segments and then the local ones that are not copied; and the offset up to which all is copied.

    Up to 4.3 a segment that begins at the last copied offset counts as not copied: one of a single offset counts twice
    (`UnifiedLog.onlyLocalLogSegmentsSize`).
    """
    first = copied_to if release >= KAFKA_4_4 else copied_to - 1
    is_local = np.zeros(0, np.bool_) if log is None else log.segments.base_offsets >= first
    if log is None or not is_local.any():
        return remote, copied_to
    only_local = log.segments.part(int(np.argmax(is_local)), len(log.segments))
    pairs = ((getattr(remote, name), getattr(only_local, name)) for name in SegmentColumns.__slots__)
    return SegmentColumns(*(np.concatenate(pair) for pair in pairs)), max(int(only_local.base_offsets[0]), copied_to)


def _amount_of_first_segments(segments: SegmentColumns, count: int) -> _Amount:
    return _Amount(count, int(segments.sizes[:count].sum()))
