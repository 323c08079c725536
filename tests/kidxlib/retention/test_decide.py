"""Decisions about a partition's segments: Kafka's own test cases, and what its classes do not tell apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kidxlib.retention.decide import Decisions, decide
from kidxlib.retention.partition import Bounds, Segments
from kidxlib.retention.reasons import REASONS
from kidxlib.retention.topic_policy import Cleanup, TopicPolicy

_NOW = 1_790_000_000_000
#: Bytes of each segment here: five records of Kafka's tests.
_SIZE = 5 * 70


def _decide(
    policy: TopicPolicy,
    timestamps: Sequence[int],
    *,
    sizes: Sequence[int] | None = None,
    mtimes: Sequence[int] | None = None,
    problems: int | None = None,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
) -> Decisions:
    """Segments of five records each, the first at offset 0."""
    count = len(timestamps)
    segments = Segments(
        base_offsets=np.arange(count, dtype=np.int64) * 5,
        sizes=np.array(sizes or [_SIZE] * count, np.int64),
        max_timestamps=np.array(timestamps, np.int64),
        mtimes_ms=np.array(mtimes or [_NOW] * count, np.int64),
        fully_read=np.arange(count) != (-1 if problems is None else problems),
    )
    end = 5 * count if segments.sizes[-1] else 5 * (count - 1)
    bounds = Bounds.at_start(0, end, log_start_offset=log_start_offset, high_watermark=high_watermark)
    return decide(segments, bounds, policy, _NOW)


def _reasons(decisions: Decisions) -> list[str]:
    return [REASONS[number].value for number in decisions.reasons]


def _policy(ms: int, size: int, *cleanup: str) -> TopicPolicy:
    return TopicPolicy(retention_ms=ms, retention_bytes=size, cleanup=frozenset(map(Cleanup, cleanup or ("delete",))))


def test_size_based_segments() -> None:
    """shouldDeleteSizeBasedSegments, shouldNotDeleteSizeBasedSegmentsWhenUnderRetentionSize."""
    now = [_NOW] * 3
    assert _reasons(_decide(_policy(-1, 2 * _SIZE), now)) == ["size", "size-not-reached", "size-not-reached"]
    assert _decide(_policy(-1, 2 * _SIZE + 1), now).deleted == 0, "the log would be smaller than its limit"
    assert _decide(_policy(-1, 15 * _SIZE), now).deleted == 0
    assert _decide(_policy(-1, -1), now).deleted == 0
    everything = _decide(_policy(-1, 0), now)
    assert _reasons(everything) == ["size"] * 3 and everything.whole_partition


def test_time_based_segments() -> None:
    """shouldDeleteTimeBasedSegmentsReadyToBeDeleted, shouldNotDeleteTimeBasedSegmentsWhenNoneReadyToBeDeleted."""
    expired = _decide(_policy(10_000, -1), [10, 10, 10])
    assert _reasons(expired) == ["time"] * 3 and expired.whole_partition
    assert _decide(_policy(10_000_000, -1), [_NOW] * 3).deleted == 0
    just = _decide(_policy(1000, -1), [_NOW - 1001, _NOW - 1000, _NOW - 1001])
    assert _reasons(just) == ["time", "time-not-reached", "behind"]
    assert just.backwards_ms.tolist() == [0, 0, 1]


def test_policies_without_delete() -> None:
    """shouldNotDeleteSegmentsWhenPolicyDoesNotIncludeDelete, …CompactAndDelete, …WhenPolicyIsEmpty…, log start."""
    old = [10, 10, 10]
    for cleanup, reason in ((("compact",), "compacted"), ((), "no-policy")):
        policy = TopicPolicy(retention_ms=10_000, cleanup=frozenset(map(Cleanup, cleanup)))
        assert _reasons(_decide(policy, old)) == [reason] * 3
        assert _reasons(_decide(policy, old, log_start_offset=5)) == ["log-start", reason, reason]
    assert _decide(_policy(10_000, -1, "compact", "delete"), old).deleted == 3


def test_log_start_then_size_then_time() -> None:
    """Each looks at what the one before it has left: deleteOldSegments."""
    decisions = _decide(_policy(1000, 3 * _SIZE), [_NOW, _NOW, 10, 10, _NOW], log_start_offset=6)
    assert _reasons(decisions) == ["log-start", "size", "time", "time", "time-not-reached"]
    assert _reasons(_decide(_policy(-1, -1), [_NOW] * 2, log_start_offset=10)) == ["log-start", "no-limit"]


def test_active_segment() -> None:
    """testDeletableSegmentsFilter: the last segment stays only where it is empty."""
    old = [10] * 10
    empty = _decide(_policy(0, -1), old, sizes=[_SIZE] * 9 + [0])
    assert empty.deleted == 9 and _reasons(empty)[-1] == "active" and not empty.whole_partition
    assert _decide(_policy(0, -1), old).deleted == 10


def test_high_watermark() -> None:
    """testCannotDeleteSegmentsAtOrAboveHighWatermark: what starts at or reaches above it stays."""
    for high_watermark in range(26):
        decisions = _decide(_policy(0, 0), [10] * 5, high_watermark=high_watermark)
        assert decisions.deleted == high_watermark // 5
        assert _reasons(decisions)[decisions.deleted :] == ["high-watermark"] * (5 - decisions.deleted)


def test_timestamps_that_nobody_would_expect() -> None:
    """In the future, by how much; none, so that the modification time counts; far back after a newer segment."""
    decisions = _decide(_policy(1000, -1), [10, -1, 10, _NOW + 7, 5], mtimes=[0, _NOW - 1000, 0, 0, 0])
    assert _reasons(decisions) == ["time", "no-timestamps", "behind", "future-timestamp", "behind"]
    assert decisions.age_from_mtime.tolist() == [False, True, False, False, False]
    assert decisions.future_ms.tolist() == [0, 0, 0, 7, 0]
    assert decisions.backwards_ms.tolist() == [0, 0, _NOW - 1000 - 10, 0, _NOW + 7 - 5]
    no_timestamps = _decide(_policy(1000, -1), [-1, -5], mtimes=[_NOW - 1001, _NOW - 1001])
    assert no_timestamps.deleted == 2
    far = 2**63 - 1
    assert _reasons(_decide(_policy(1000, -1), [far, 10])) == ["future-timestamp", "behind"]


def test_what_is_not_known_stays() -> None:
    """A segment that was not fully read, and all after it, whatever log start, size and time say."""
    decisions = _decide(_policy(0, 0), [10] * 4, problems=1, log_start_offset=15)
    assert _reasons(decisions) == ["log-start", "not-well", "behind", "behind"]
