"""Decides which segments of a partition retention deletes, and why the others stay, as Kafka's
`UnifiedLog.deleteOldSegments` does.

The decision is a pure function. Its inputs are the facts of a partition's segments, a policy and a time; its result is
a reason for every segment. A partition is a set of columns, so that millions of segments can be planned.

Kafka deletes from the oldest segment on and stops at the first that stays. It first deletes what is below the log start
offset, then what makes the log too large, then what is too old. So the deleted segments are always the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kidxlib.retention.partition import Bounds, Flags, Longs, Segments
from kidxlib.retention.reasons import REASONS, Reason
from kidxlib.retention.topic_policy import Cleanup, TopicPolicy


@dataclass(frozen=True, slots=True)
class Decisions:
    """What becomes of a partition's n segments.

    Each array has shape (n,), by base offset. Times are int64, flags bool.

    Attributes:
        deleted: how many segments are deleted, from the first on.
        reasons: why each is deleted or stays, as int8; `named_reasons` has the reasons themselves.
        largest_timestamps: what each one's age is counted from, in ms since the epoch (`LogSegment.largestTimestamp`).
        age_from_mtime: whether that is the log's modification time.
        future_ms: by how much that is in the future; 0 if it is not.
        backwards_ms: for a segment that is old enough but stays after one that is not: by how much its largest
            timestamp is before one of an earlier segment; 0 for others.
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


def decide(segments: Segments, bounds: Bounds, policy: TopicPolicy, now_ms: int) -> Decisions:
    """Decide on a partition's segments; there is at least one."""
    next_offsets = np.append(segments.base_offsets[1:], bounds.log_end_offset)
    age_from_mtime = segments.max_timestamps < 0
    largest = np.where(age_from_mtime, segments.mtimes_ms, segments.max_timestamps)
    below_start = next_offsets <= bounds.log_start_offset
    below_start[-1] = False
    with np.errstate(over="ignore"):  # wraps as Java's longs do
        ages = now_ms - largest
        too_old = (ages > policy.retention_ms) & (policy.retention_ms >= 0)
    may_go = segments.fully_read & (next_offsets <= bounds.high_watermark)
    may_go[-1] &= segments.sizes[-1] > 0

    by_start = _leading(may_go & below_start)
    by_size = by_time = by_start
    if Cleanup.DELETE in policy.cleanup:
        sizes = segments.sizes[by_start:]
        too_many = sizes.sum() - policy.retention_bytes if policy.retention_bytes >= 0 else -1
        by_size += _leading(may_go[by_start:] & (sizes.cumsum() <= too_many))
        by_time = by_size + _leading(may_go[by_size:] & too_old[by_size:])

    reasons = _reasons_to_stay(
        segments, bounds, policy, next_offsets, below_start, too_old, age_from_mtime, largest > now_ms
    )
    reasons[:by_start] = _number(Reason.LOG_START)
    reasons[by_start:by_size] = _number(Reason.SIZE)
    reasons[by_size:by_time] = _number(Reason.TIME)
    after_kept = reasons == _number(Reason.AFTER_KEPT)
    return Decisions(
        deleted=by_time,
        reasons=reasons,
        largest_timestamps=largest,
        age_from_mtime=age_from_mtime,
        future_ms=np.maximum(largest - now_ms, 0),
        backwards_ms=np.where(after_kept, np.maximum.accumulate(largest) - largest, 0),
    )


def keep_all(segments: Segments, reason: Reason) -> Decisions:
    """The decisions that keep all segments because of their topic."""
    age_from_mtime = segments.max_timestamps < 0
    nothing = np.zeros(len(segments), np.int64)
    largest = np.where(age_from_mtime, segments.mtimes_ms, segments.max_timestamps)
    return Decisions(0, np.full(len(segments), _number(reason), np.int8), largest, age_from_mtime, nothing, nothing)


def _reasons_to_stay(
    segments: Segments,
    bounds: Bounds,
    policy: TopicPolicy,
    next_offsets: Longs,
    below_start: Flags,
    too_old: Flags,
    age_from_mtime: Flags,
    in_future: Flags,
) -> NDArray[np.int8]:
    """For each segment why it would stay; where nothing of its own keeps it, one before it does."""
    by_time = Cleanup.DELETE in policy.cleanup and policy.retention_ms >= 0
    conditions = [
        (~segments.fully_read, Reason.NOT_WELL),
        (_only_last(segments.sizes == 0), Reason.ACTIVE),
        (next_offsets > bounds.high_watermark, Reason.HIGH_WATERMARK),
        (below_start | (too_old & by_time), Reason.AFTER_KEPT),
    ]
    if by_time:
        conditions += [(in_future, Reason.FUTURE_TIMESTAMP), (age_from_mtime, Reason.NO_TIMESTAMPS)]
    return np.select(
        [condition for condition, _ in conditions],
        [np.int8(_number(reason)) for _, reason in conditions],
        default=np.int8(_number(_reason_of_policy(policy))),
    ).astype(np.int8)


def _reason_of_policy(policy: TopicPolicy) -> Reason:
    """Why a segment stays of which nothing else is to be said."""
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
    """How many are true before the first that is not."""
    return len(flags) if flags.all() else int(flags.argmin())


def _number(reason: Reason) -> int:
    return REASONS.index(reason)
