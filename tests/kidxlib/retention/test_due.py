"""When segments that stay will go."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.retention.decide import NEVER_MS, Decisions
from kidxlib.retention.policy import REASONS, Reason

_LONG_MAX: Final = 2**63 - 1


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
    assert _due([(Reason.TIME_NOT_REACHED, _LONG_MAX)]) == [-1]
    assert _due([(Reason.TIME_NOT_REACHED, 7)], _LONG_MAX) == [-1]
    assert _due([(Reason.SIZE_NOT_REACHED, 7)], -1) == [-1]
    assert _due([(Reason.COMPACTED, 7)]) == [-1]
