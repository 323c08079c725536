"""What each of several limits would delete of a partition, decided as `decide` does it: every pair of a limit in time
and a limit in size at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.retention.decide import Candidates
from kidxlib.retention.partition import Bounds, Longs, Segments
from kidxlib.retention.topic_policy import UNLIMITED, Cleanup, TopicPolicy

#: In place of the reason for which a segment stays, where none does.
NONE_STAYS: Final = -1


@dataclass(frozen=True, slots=True)
class Ladder:
    """Limits, each time with each size.

    Attributes:
        times_ms: values of `retention.ms`; −1 for no limit.
        sizes: values of `retention.bytes`; −1 for no limit.
    """

    times_ms: Sequence[int]
    sizes: Sequence[int]


@dataclass(frozen=True, slots=True)
class LadderDecisions:
    """What becomes of a partition's n segments; arrays of shape (times, sizes) of the ladder.

    Attributes:
        deleted: how many segments are deleted, from the first on.
        stays: why the first that stays does, by its number in `REASONS`; `NONE_STAYS` where all are deleted.
    """

    deleted: Longs
    stays: NDArray[np.int8]


def decide_ladder(
    segments: Segments, bounds: Bounds, policy: TopicPolicy, ladder: Ladder, now_ms: int
) -> LadderDecisions:
    """Decide on a partition's segments with each pair of limits; there is one segment at least.

    Args:
        policy: of which all but the limits counts.
    """
    of = Candidates.of(segments, bounds, now_ms)
    shape, count = (len(ladder.times_ms), len(ladder.sizes)), len(segments)
    deleted, stays = np.full(shape, of.by_start, np.int64), np.empty(shape, np.int8)
    deletes = Cleanup.DELETE in policy.cleanup
    by_size = np.array([of.by_size(size) for size in ladder.sizes]) if deletes else deleted[0]
    unlimited = np.array([size == UNLIMITED for size in ladder.sizes])
    for row, time_ms in enumerate(ladder.times_ms):
        too_old = of.too_old(time_ms)
        if deletes:
            # Deletion goes on from where the limit in size ended, to the first that stays from there on.
            staying = np.append(np.flatnonzero(~(of.may_go & too_old)), count)
            deleted[row] = staying[np.searchsorted(staying, by_size)]
        limited = replace(policy, retention_ms=time_ms, retention_bytes=0)
        stays[row] = _at(of.reasons_to_stay(limited, too_old), deleted[row])
        if time_ms == UNLIMITED and unlimited.any():
            neither = of.reasons_to_stay(replace(limited, retention_bytes=UNLIMITED), too_old)
            stays[row, unlimited] = _at(neither, deleted[row])[unlimited]
    return LadderDecisions(deleted, stays)


def _at(reasons: NDArray[np.int8], deleted: Longs) -> NDArray[np.int8]:
    return np.append(reasons, np.int8(NONE_STAYS))[deleted]
