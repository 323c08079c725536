"""Which segments of a partition go by retention, and why the others stay. Kafka's `UnifiedLog.deleteOldSegments`.

A pure decision: what is known of a partition's segments, a policy and a time go in, a reason for every segment comes
out. A partition is a set of columns, so that millions of segments can be planned.

Kafka deletes from the oldest segment on and stops at the first that stays: first what lies below the log start offset,
then what makes the log too large, then what is too old. So the segments that go are always the first ones.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Kafka's own defaults of `retention.ms` and `retention.bytes`.
RETENTION_MS_DEFAULT: Final = 7 * 24 * 60 * 60 * 1000
RETENTION_BYTES_DEFAULT: Final = -1
#: In a policy: no limit.
UNLIMITED: Final = -1
#: What of a topic's configuration a deletion rests on, by Kafka's names.
RESTED_ON: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable")

Longs: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


class Decision(enum.StrEnum):
    """What becomes of a segment."""

    DELETE = "delete"
    KEEP = "keep"
    UNDECIDED = "undecided"  # nobody said what it would rest on


class Reason(enum.StrEnum):
    """Why a segment goes or stays."""

    # it goes
    LOG_START = "log-start"
    SIZE = "size"
    TIME = "time"
    # it stays
    ACTIVE = "active"
    HIGH_WATERMARK = "high-watermark"
    BEHIND = "behind"
    TIME_NOT_REACHED = "time-not-reached"
    FUTURE_TIMESTAMP = "future-timestamp"
    NO_TIMESTAMPS = "no-timestamps"
    SIZE_NOT_REACHED = "size-not-reached"
    NO_LIMIT = "no-limit"
    COMPACTED = "compacted"
    NO_POLICY = "no-policy"
    NOT_WELL = "not-well"
    LOOKS_COMPACTED = "looks-compacted"
    INTERNAL_TOPIC = "internal-topic"
    NOT_MODELLED = "not modelled"
    # it is not decided on
    POLICY_UNKNOWN = "policy-unknown"


#: By the numbers that stand for them in columns.
REASONS: Final = tuple(Reason)
#: With these a segment goes, with all others it stays.
GOING: Final = frozenset({Reason.LOG_START, Reason.SIZE, Reason.TIME})


def decision_of(reason: Reason) -> Decision:
    """What a reason is one for."""
    if reason in GOING:
        return Decision.DELETE
    return Decision.UNDECIDED if reason is Reason.POLICY_UNKNOWN else Decision.KEEP


class Surprise(enum.StrEnum):
    """What a person would not expect of a decision."""

    WHOLE_PARTITION = "whole-partition"
    LOOKS_COMPACTED = "looks-compacted"
    FUTURE_TIMESTAMP = "future-timestamp"
    TIMESTAMPS_BACKWARDS = "timestamps-backwards"
    TIME_INDEX_PADDED = "time-index-padded"
    TIME_INDEX_CUT_SHORT = "time-index-cut-short"


class Cleanup(enum.StrEnum):
    """A value of `cleanup.policy`; a topic may have both, or none."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """What a topic's configuration says, by Kafka's names.

    Attributes:
        retention_ms, retention_bytes: −1 for no limit.
        log_start_offsets: by partition, up to where records were deleted, or are to be.
        remote_storage: the topic is tiered, which is not modelled.
    """

    retention_ms: int = RETENTION_MS_DEFAULT
    retention_bytes: int = RETENTION_BYTES_DEFAULT
    cleanup: frozenset[Cleanup] = frozenset({Cleanup.DELETE})
    log_start_offsets: tuple[tuple[int, int], ...] = ()
    remote_storage: bool = False

    @property
    def cleanup_text(self) -> str:
        """`cleanup.policy` as Kafka writes it."""
        return ",".join(sorted(value.value for value in self.cleanup))

    def log_start_asked_for(self, partition: int) -> int | None:
        """Up to where records of a partition are to be deleted, where anything was asked for."""
        return dict(self.log_start_offsets).get(partition)


@dataclass(frozen=True, slots=True)
class Segments:
    """A partition's segments by base offset, a column each.

    Attributes:
        sizes: bytes of the logs, as a broker has them.
        max_timestamps: the largest, in ms since the epoch; below 0 where there is none.
        mtimes_ms: modification times of the logs, in ms since the epoch.
        well: what is known of it is known of the whole segment. One that is not so stays, and all behind it.
    """

    base_offsets: Longs
    sizes: Longs
    max_timestamps: Longs
    mtimes_ms: Longs
    well: Flags

    def __len__(self) -> int:
        return len(self.base_offsets)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition starts and ends, as a running broker has it."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int

    @classmethod
    def at_start(
        cls, first_base_offset: int, log_end_offset: int, *, log_start_offset: int | None, high_watermark: int | None
    ) -> Bounds:
        """What a broker makes of its checkpoints when it starts (`LogLoader.load`, `UnifiedLog.updateHighWatermark`).

        Args:
            log_start_offset, high_watermark: None where they are not known, and so no limits.
        """
        start = max(first_base_offset, log_start_offset or 0)
        known = log_end_offset if high_watermark is None else high_watermark
        return cls(start, min(max(known, start), log_end_offset), log_end_offset)

    def deleted_up_to(self, offset: int) -> Bounds:
        """After a request to delete the records below `offset`; nothing above the high watermark can be asked for."""
        start = max(self.log_start_offset, min(offset, self.high_watermark))
        return Bounds(start, self.high_watermark, self.log_end_offset)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What becomes of a partition's segments.

    Attributes:
        deleted: how many go: the first ones.
        reasons: of each, as its number in `REASONS`.
        largest_timestamps: what each one's age is counted from, in ms since the epoch (`LogSegment.largestTimestamp`).
        of_mtime: where that is the log's modification time.
        future_ms: by how much that lies in the future; 0 where it does not.
        backwards_ms: of a segment that is old enough and stays behind one that is not: by how much its largest
            timestamp lies before one of an earlier segment; 0 of others.
    """

    deleted: int
    reasons: NDArray[np.int8]
    largest_timestamps: Longs
    of_mtime: Flags
    future_ms: Longs
    backwards_ms: Longs

    @property
    def whole_partition(self) -> bool:
        """Whether nothing stays. A broker then rolls first: an empty active segment takes the place of the others."""
        return self.deleted == len(self.reasons)


def decide(segments: Segments, bounds: Bounds, policy: TopicPolicy, now_ms: int) -> Decisions:
    """Decide on a partition's segments, of which there is one at least."""
    next_offsets = np.append(segments.base_offsets[1:], bounds.log_end_offset)
    of_mtime = segments.max_timestamps < 0
    largest = np.where(of_mtime, segments.mtimes_ms, segments.max_timestamps)
    below_start = next_offsets <= bounds.log_start_offset
    below_start[-1] = False
    with np.errstate(over="ignore"):  # wraps as Java's longs do
        ages = now_ms - largest
        too_old = (ages > policy.retention_ms) & (policy.retention_ms >= 0)
    may_go = segments.well & (next_offsets <= bounds.high_watermark)
    may_go[-1] &= segments.sizes[-1] > 0

    by_start = _leading(may_go & below_start)
    by_size = by_time = by_start
    if Cleanup.DELETE in policy.cleanup:
        sizes = segments.sizes[by_start:]
        too_many = sizes.sum() - policy.retention_bytes if policy.retention_bytes >= 0 else -1
        by_size += _leading(may_go[by_start:] & (sizes.cumsum() <= too_many))
        by_time = by_size + _leading(may_go[by_size:] & too_old[by_size:])

    reasons = _reasons_to_stay(segments, bounds, policy, next_offsets, below_start, too_old, of_mtime, largest > now_ms)
    reasons[:by_start] = _number(Reason.LOG_START)
    reasons[by_start:by_size] = _number(Reason.SIZE)
    reasons[by_size:by_time] = _number(Reason.TIME)
    behind = reasons == _number(Reason.BEHIND)
    return Decisions(
        deleted=by_time,
        reasons=reasons,
        largest_timestamps=largest,
        of_mtime=of_mtime,
        future_ms=np.maximum(largest - now_ms, 0),
        backwards_ms=np.where(behind, np.maximum.accumulate(largest) - largest, 0),
    )


def keep_all(segments: Segments, reason: Reason) -> Decisions:
    """Segments that are kept for what their topic is."""
    of_mtime = segments.max_timestamps < 0
    nothing = np.zeros(len(segments), np.int64)
    largest = np.where(of_mtime, segments.mtimes_ms, segments.max_timestamps)
    return Decisions(0, np.full(len(segments), _number(reason), np.int8), largest, of_mtime, nothing, nothing)


def _reasons_to_stay(
    segments: Segments,
    bounds: Bounds,
    policy: TopicPolicy,
    next_offsets: Longs,
    below_start: Flags,
    too_old: Flags,
    of_mtime: Flags,
    in_future: Flags,
) -> NDArray[np.int8]:
    """For each segment why it would stay; where nothing of its own keeps it, one before it does."""
    by_time = Cleanup.DELETE in policy.cleanup and policy.retention_ms >= 0
    conditions = [
        (~segments.well, Reason.NOT_WELL),
        (_only_last(segments.sizes == 0), Reason.ACTIVE),
        (next_offsets > bounds.high_watermark, Reason.HIGH_WATERMARK),
        (below_start | (too_old & by_time), Reason.BEHIND),
    ]
    if by_time:
        conditions += [(in_future, Reason.FUTURE_TIMESTAMP), (of_mtime, Reason.NO_TIMESTAMPS)]
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
