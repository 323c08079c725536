"""Decides which segments of a partition retention deletes, and why the others stay, as Kafka's
`UnifiedLog.deleteOldSegments` does.

The decision is a pure function. Its inputs are the facts of a partition's segments, a policy and a time; its result is
a reason for every segment. A partition is a set of columns, so that millions of segments can be planned. What each of
several limits would delete is decided for every pair of a limit in time and a limit in size at once.

Kafka deletes from the oldest segment on and stops at the first that stays. It first deletes what is below the log start
offset, then what makes the log too large, then what is too old. So the deleted segments are always the first ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.format.topic_partition import METADATA_TOPIC
from kidxlib.retention.policy import (
    INTERNAL_TOPIC_SETTINGS,
    REASONS,
    UNLIMITED,
    Cleanup,
    Decision,
    Reason,
    TopicConfig,
    TopicPolicy,
)

#: Never: 10000-01-01, the first time that cannot be shown.
NEVER_MS: Final = 253_402_300_800_000
#: A segment that stays for one of these reasons is later deleted by time alone.
_BY_TIME: Final = tuple(
    REASONS.index(reason) for reason in (Reason.TIME_NOT_REACHED, Reason.FUTURE_TIMESTAMP, Reason.NO_TIMESTAMPS)
)

#: With these reasons a segment goes, with all others it stays.
_GOING: Final = frozenset({Reason.LOG_START, Reason.SIZE, Reason.TIME})

#: In place of a reason to stay, if no segment stays.
NONE_STAYS: Final = -1

Longs: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions on a partition's n segments.

    Each array has shape (n,), by base offset. Times are int64, flags bool.

    Attributes:
        deleted: how many segments are deleted, from the first on.
        reasons: why each segment is deleted or stays, as int8; `named_reasons` has the reasons themselves.
        largest_timestamps: the time from which a segment's age counts, in ms since the epoch
            (`LogSegment.largestTimestamp`).
        age_from_mtime: whether that is the log's modification time.
        future_ms: by how much that time is in the future; 0: it is not.
        backwards_ms: for a segment that is old enough but stays after one that is not: by how much its largest
            timestamp is before an earlier segment's; 0 for others.
    """

    deleted: int
    reasons: NDArray[np.int8]
    largest_timestamps: Longs
    age_from_mtime: Flags
    future_ms: Longs
    backwards_ms: Longs

    @property
    def whole_partition(self) -> bool:
        """Whether all segments are deleted. A broker then rolls first: an empty active segment replaces the others."""
        return self.deleted == len(self.reasons)

    @property
    def named_reasons(self) -> tuple[Reason, ...]:
        """The reason of each segment, by base offset."""
        return tuple(REASONS[number] for number in self.reasons.tolist())

    def due_ms(self, retention_ms: int) -> Longs:
        """When each segment will be deleted by time if the topic's configuration stays, in ms since the epoch: once it
        and all before it are old enough (`UnifiedLog.deleteRetentionMsBreachedSegments`). −1: it is deleted now, never,
        or not by time, or that is so for one before it.
        """
        limit = min(retention_ms, NEVER_MS)
        by_time = np.where(self.largest_timestamps < NEVER_MS - limit, self.largest_timestamps + limit + 1, NEVER_MS)
        own = np.where(np.isin(self.reasons, _BY_TIME), by_time, NEVER_MS)
        own[self.reasons == _number(Reason.AFTER_KEPT)] = 0
        own[: self.deleted] = -1
        due = np.maximum.accumulate(own)
        due[due >= NEVER_MS] = -1
        return due


@dataclass(frozen=True, slots=True)
class SegmentColumns:
    """A partition's segments by base offset, as columns.

    Attributes:
        sizes: bytes of the logs, as a broker has them.
        max_timestamps: the largest timestamps, in ms since the epoch; below 0 if there is none.
        mtimes_ms: modification times of the logs, in ms since the epoch.
        fully_read: the facts are those of the whole segment. If they are not, it stays, and all segments after it.
    """

    base_offsets: Longs
    sizes: Longs
    max_timestamps: Longs
    mtimes_ms: Longs
    fully_read: Flags

    def __len__(self) -> int:
        return len(self.base_offsets)

    def part(self, start: int, end: int) -> SegmentColumns:
        """The segments that retention decides on, from one position to before another, as views of the same arrays."""
        positions = slice(start, end)
        return SegmentColumns(
            base_offsets=self.base_offsets[positions],
            sizes=self.sizes[positions],
            max_timestamps=self.max_timestamps[positions],
            mtimes_ms=self.mtimes_ms[positions],
            fully_read=self.fully_read[positions],
        )


@dataclass(frozen=True, slots=True)
class RetentionBounds:
    """The log start offset and the high watermark of a partition on a running broker."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int

    @classmethod
    def at_start(
        cls, first_base_offset: int, log_end_offset: int, *, log_start_offset: int | None, high_watermark: int | None
    ) -> RetentionBounds:
        """The bounds that a starting broker takes from its checkpoints (`LogLoader.load`,
        `UnifiedLog.updateHighWatermark`). An offset that is unknown (None) is no limit.
        """
        start = max(first_base_offset, log_start_offset or 0)
        known = log_end_offset if high_watermark is None else high_watermark
        return cls(start, min(max(known, start), log_end_offset), log_end_offset)

    def deleted_up_to(self, offset: int) -> RetentionBounds:
        """The bounds after a request to delete the records below `offset`, which the high watermark limits."""
        start = max(self.log_start_offset, min(offset, self.high_watermark))
        return RetentionBounds(start, self.high_watermark, self.log_end_offset)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Facts about a partition's segments at a time that do not depend on the limits. Arrays as in `Decisions`.

    Attributes:
        may_go: only the limits, or an earlier segment that stays, keep the segment.
        below_start: all its records are below the log start offset.
        by_start: how many segments are deleted for that, from the first on.
    """

    segments: SegmentColumns
    now_ms: int
    largest_timestamps: Longs
    age_from_mtime: Flags
    next_offsets: Longs
    below_start: Flags
    above_high_watermark: Flags
    may_go: Flags
    by_start: int

    @classmethod
    def of_partition(cls, segments: SegmentColumns, bounds: RetentionBounds, now_ms: int) -> Candidates:
        """The candidates of a partition, which has at least one segment."""
        next_offsets = np.append(segments.base_offsets[1:], bounds.log_end_offset)
        age_from_mtime = segments.max_timestamps < 0
        below_start = next_offsets <= bounds.log_start_offset
        below_start[-1] = False
        above_high_watermark = next_offsets > bounds.high_watermark
        may_go = segments.fully_read & ~above_high_watermark
        may_go[-1] &= segments.sizes[-1] > 0
        return cls(
            segments=segments,
            now_ms=now_ms,
            largest_timestamps=np.where(age_from_mtime, segments.mtimes_ms, segments.max_timestamps),
            age_from_mtime=age_from_mtime,
            next_offsets=next_offsets,
            below_start=below_start,
            above_high_watermark=above_high_watermark,
            may_go=may_go,
            by_start=_leading(may_go & below_start),
        )

    def too_old(self, retention_ms: int) -> Flags:
        """Which segments are older than `retention.ms`; none if there is no limit."""
        with np.errstate(over="ignore"):  # wraps as Java's longs do
            ages = self.now_ms - self.largest_timestamps
            flags: Flags = (ages > retention_ms) & (retention_ms >= 0)
        return flags

    def by_size(self, retention_bytes: int) -> int:
        """How many segments are deleted because of the log's size or the log start offset, from the first on."""
        sizes = self.segments.sizes[self.by_start :]
        too_many = sizes.sum() - retention_bytes if retention_bytes >= 0 else -1
        return self.by_start + _leading(self.may_go[self.by_start :] & (sizes.cumsum() <= too_many))

    def reasons_to_stay(self, policy: TopicPolicy, too_old: Flags) -> NDArray[np.int8]:
        """For each segment why it would stay: a reason of its own, or else an earlier segment that stays."""
        by_time = Cleanup.DELETE in policy.cleanup and policy.retention_ms >= 0
        conditions = [
            (~self.segments.fully_read, Reason.NOT_WELL),
            (_only_last(self.segments.sizes == 0), Reason.ACTIVE),
            (self.above_high_watermark, Reason.HIGH_WATERMARK),
            (self.below_start | (too_old & by_time), Reason.AFTER_KEPT),
        ]
        if by_time:
            conditions += [
                (self.largest_timestamps > self.now_ms, Reason.FUTURE_TIMESTAMP),
                (self.age_from_mtime, Reason.NO_TIMESTAMPS),
            ]
        return np.select(
            [condition for condition, _ in conditions],
            [np.int8(_number(reason)) for _, reason in conditions],
            default=np.int8(_number(_reason_of_policy(policy))),
        ).astype(np.int8)


def decide(segments: SegmentColumns, bounds: RetentionBounds, policy: TopicPolicy, now_ms: int) -> Decisions:
    """Decide on a partition's segments, at least one."""
    candidates = Candidates.of_partition(segments, bounds, now_ms)
    too_old = candidates.too_old(policy.retention_ms)
    by_size = by_time = candidates.by_start
    if Cleanup.DELETE in policy.cleanup:
        by_size = candidates.by_size(policy.retention_bytes)
        by_time = by_size + _leading((candidates.may_go & too_old)[by_size:])

    reasons = candidates.reasons_to_stay(policy, too_old)
    reasons[: candidates.by_start] = _number(Reason.LOG_START)
    reasons[candidates.by_start : by_size] = _number(Reason.SIZE)
    reasons[by_size:by_time] = _number(Reason.TIME)
    after_kept = reasons == _number(Reason.AFTER_KEPT)
    largest = candidates.largest_timestamps
    return Decisions(
        deleted=by_time,
        reasons=reasons,
        largest_timestamps=largest,
        age_from_mtime=candidates.age_from_mtime,
        future_ms=np.maximum(largest - now_ms, 0),
        backwards_ms=np.where(after_kept, np.maximum.accumulate(largest) - largest, 0),
    )


def kept_for_its_topic(
    topic: str, config: TopicConfig, *, include_internal: bool, what_if: bool, looks_compacted: bool
) -> Reason | None:
    """Why none of a topic's segments is deleted, whatever its limits; None if they may be. A what-if uses Kafka's own
    defaults for values that nobody set. A topic looks compacted if its segments lack offsets.
    """
    # A broker removes from the controller's log what snapshots cover, and asks no policy.
    if topic == METADATA_TOPIC or config.policy.remote_storage:
        return Reason.NOT_MODELLED
    if topic in INTERNAL_TOPIC_SETTINGS and not include_internal:
        return Reason.INTERNAL_TOPIC
    if config.unknown and not what_if:
        return Reason.POLICY_UNKNOWN
    return Reason.LOOKS_COMPACTED if looks_compacted and config.assumes_delete else None


def keep_all(segments: SegmentColumns, reason: Reason) -> Decisions:
    """The decisions that keep all segments because of their topic."""
    age_from_mtime = segments.max_timestamps < 0
    nothing = np.zeros(len(segments), np.int64)
    largest = np.where(age_from_mtime, segments.mtimes_ms, segments.max_timestamps)
    return Decisions(0, np.full(len(segments), _number(reason), np.int8), largest, age_from_mtime, nothing, nothing)


def _reason_of_policy(policy: TopicPolicy) -> Reason:
    """Why a segment stays that has no other reason."""
    if Cleanup.DELETE not in policy.cleanup:
        return Reason.COMPACTED if policy.cleanup else Reason.NO_POLICY
    if policy.retention_ms >= 0:
        return Reason.TIME_NOT_REACHED
    return Reason.SIZE_NOT_REACHED if policy.retention_bytes >= 0 else Reason.NO_LIMIT


def _only_last(flags: Flags) -> Flags:
    last = np.zeros_like(flags)
    last[-1] = flags[-1]
    return last


def _leading(flags: Flags) -> int:
    """How many flags are true before the first false one."""
    return len(flags) if flags.all() else int(flags.argmin())


def _number(reason: Reason) -> int:
    return REASONS.index(reason)


def decision_of(reason: Reason) -> Decision:
    """What retention does with a segment for this reason."""
    if reason in _GOING:
        return Decision.DELETE
    return Decision.UNDECIDED if reason is Reason.POLICY_UNKNOWN else Decision.KEEP


@dataclass(frozen=True, slots=True)
class Ladder:
    """Limits, every value of `retention.ms` with every value of `retention.bytes`; −1: no limit."""

    times_ms: Sequence[int]
    sizes: Sequence[int]


def decide_for_limits(candidates: Candidates, policy: TopicPolicy, ladder: Ladder) -> Longs:
    """How many of a partition's segments each pair of limits deletes, from the first on; of shape (times, sizes). The
    limits of the policy do not count.
    """
    deleted = np.full((len(ladder.times_ms), len(ladder.sizes)), candidates.by_start, np.int64)
    if Cleanup.DELETE not in policy.cleanup:
        return deleted
    by_size = np.array([candidates.by_size(size) for size in ladder.sizes])
    for row, time_ms in enumerate(ladder.times_ms):
        # Deletion by time continues where deletion by size ended, up to the first segment that stays.
        goes = candidates.may_go & candidates.too_old(time_ms)
        staying = np.append(np.flatnonzero(~goes), len(goes))
        deleted[row] = staying[np.searchsorted(staying, by_size)]
    return deleted


def reasons_of_first(candidates: Candidates, policy: TopicPolicy, ladder: Ladder, deleted: Longs) -> NDArray[np.int8]:
    """The reason of the first segment that stays, as a number in `REASONS`; `NONE_STAYS` if all are deleted. `deleted`
    is the result of `decide_for_limits`; the reasons have its shape.
    """
    stays = np.empty(deleted.shape, np.int8)
    unlimited = np.array([size == UNLIMITED for size in ladder.sizes])
    for row, time_ms in enumerate(ladder.times_ms):
        too_old = candidates.too_old(time_ms)
        limited = replace(policy, retention_ms=time_ms, retention_bytes=0)
        stays[row] = _reason_at(candidates.reasons_to_stay(limited, too_old), deleted[row])
        if time_ms == UNLIMITED and unlimited.any():
            neither = candidates.reasons_to_stay(replace(limited, retention_bytes=UNLIMITED), too_old)
            stays[row, unlimited] = _reason_at(neither, deleted[row])[unlimited]
    return stays


def _reason_at(reasons: NDArray[np.int8], deleted: Longs) -> NDArray[np.int8]:
    return np.append(reasons, np.int8(NONE_STAYS))[deleted]
