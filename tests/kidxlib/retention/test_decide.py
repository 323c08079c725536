"""Decisions about a partition's segments: Kafka's own test cases, and what its classes do not tell apart; where a
partition starts and ends for a broker that starts; when segments that stay will go. A ladder of limits decides as each
pair of its limits would by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.retention.decide import (
    NEVER_MS,
    NONE_STAYS,
    Candidates,
    Decisions,
    Ladder,
    RetentionBounds,
    SegmentColumns,
    decide,
    decide_for_limits,
    reasons_of_first,
)
from kidxlib.retention.policy import REASONS, Cleanup, Reason, TopicPolicy

_NOW = 1_790_000_000_000
#: Bytes of each segment here: five records of Kafka's tests.
_SIZE = 5 * 70

_TIMES = st.sampled_from([-1, 0, _NOW - 20_000, _NOW - 10_000, _NOW - 1, _NOW, _NOW + 5_000])
_LIMITS = st.lists(st.sampled_from([-1, 0, 1, 100, 250, 10_000, 2**62]), min_size=1, max_size=4)


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
    segments = SegmentColumns(
        base_offsets=np.arange(count, dtype=np.int64) * 5,
        sizes=np.array(sizes or [_SIZE] * count, np.int64),
        max_timestamps=np.array(timestamps, np.int64),
        mtimes_ms=np.array(mtimes or [_NOW] * count, np.int64),
        fully_read=np.arange(count) != (-1 if problems is None else problems),
    )
    end = 5 * count if segments.sizes[-1] else 5 * (count - 1)
    bounds = RetentionBounds.at_start(0, end, log_start_offset=log_start_offset, high_watermark=high_watermark)
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


@given(st.data())
def test_each_pair_is_decided_as_decide_does(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))

    def column(values: st.SearchStrategy[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(data.draw(st.lists(values, min_size=count, max_size=count)), np.int64)

    segments = SegmentColumns(
        base_offsets=np.arange(count, dtype=np.int64) * 5,
        sizes=column(st.sampled_from([0, 100, 150])),
        max_timestamps=column(_TIMES),
        mtimes_ms=column(_TIMES),
        fully_read=column(st.sampled_from([0, 1, 1, 1])).astype(np.bool_),
    )
    end = 5 * count
    bounds = RetentionBounds.at_start(
        0, end, log_start_offset=data.draw(st.integers(0, end)), high_watermark=data.draw(st.integers(0, end))
    )
    cleanup = frozenset(data.draw(st.sets(st.sampled_from(list(Cleanup)))))
    ladder = Ladder(data.draw(_LIMITS), data.draw(_LIMITS))
    candidates, of_topic = Candidates.of_partition(segments, bounds, _NOW), TopicPolicy(cleanup=cleanup)
    deleted = decide_for_limits(candidates, of_topic, ladder)
    stays = reasons_of_first(candidates, of_topic, ladder, deleted)
    for row, time_ms in enumerate(ladder.times_ms):
        for column_, size in enumerate(ladder.sizes):
            policy = TopicPolicy(retention_ms=time_ms, retention_bytes=size, cleanup=cleanup)
            alone = decide(segments, bounds, policy, _NOW)
            expected = NONE_STAYS if alone.whole_partition else alone.reasons[alone.deleted]
            assert (deleted[row, column_], stays[row, column_]) == (alone.deleted, expected), policy


def test_bounds_are_those_of_a_broker_that_starts() -> None:
    """UnifiedLog.updateHighWatermark keeps it between log start and log end; DeleteRecords stops at it."""
    assert RetentionBounds.at_start(5, 20, log_start_offset=None, high_watermark=None) == RetentionBounds(5, 20, 20)
    assert RetentionBounds.at_start(5, 20, log_start_offset=8, high_watermark=3) == RetentionBounds(8, 8, 20)
    assert RetentionBounds.at_start(5, 20, log_start_offset=0, high_watermark=99) == RetentionBounds(5, 20, 20)
    bounds = RetentionBounds.at_start(5, 20, log_start_offset=8, high_watermark=15)
    assert [bounds.deleted_up_to(offset).log_start_offset for offset in (3, 10, 18)] == [8, 10, 15]


def _due(segments: list[tuple[Reason, int]], retention_ms: int = 100) -> list[int]:
    reasons, largest = zip(*segments, strict=True)
    zeros = np.zeros(len(segments), np.int64)
    decisions = Decisions(
        deleted=reasons.count(Reason.TIME),
        reasons=np.array([REASONS.index(reason) for reason in reasons], np.int8),
        largest_timestamps=np.array(largest, np.int64),
        age_from_mtime=zeros.astype(np.bool_),
        future_ms=zeros,
        backwards_ms=zeros,
    )
    return [int(due) for due in decisions.due_ms(retention_ms)]


def test_a_segment_goes_once_it_and_all_before_it_are_old_enough() -> None:
    """A millisecond after the limit; a segment that stays for another reason holds all behind it."""
    expected = [
        (Reason.TIME, 1, -1),
        (Reason.FUTURE_TIMESTAMP, 900, 1001),
        (Reason.AFTER_KEPT, 5, 1001),
        (Reason.TIME_NOT_REACHED, 950, 1051),
        (Reason.NO_TIMESTAMPS, 920, 1051),
        (Reason.HIGH_WATERMARK, 0, -1),
        (Reason.TIME_NOT_REACHED, 2_000, -1),
    ]
    assert _due([(reason, largest) for reason, largest, _ in expected]) == [due for *_, due in expected]


def test_what_goes_in_no_time_that_can_be_shown_has_none() -> None:
    assert _due([(Reason.TIME_NOT_REACHED, NEVER_MS - 102)]) == [NEVER_MS - 1]
    assert _due([(Reason.TIME_NOT_REACHED, NEVER_MS - 101)]) == [-1]
    assert _due([(Reason.TIME_NOT_REACHED, 2**63 - 1)]) == [-1]
    assert _due([(Reason.TIME_NOT_REACHED, 7)], 2**63 - 1) == [-1]
    assert _due([(Reason.SIZE_NOT_REACHED, 7)], -1) == [-1]
    assert _due([(Reason.COMPACTED, 7)]) == [-1]
