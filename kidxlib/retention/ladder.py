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
from kidxlib.retention.partition import Longs
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


def deletions(of: Candidates, policy: TopicPolicy, ladder: Ladder) -> Longs:
    """How many of a partition's segments each pair of limits deletes, from the first on; of shape (times, sizes).

    Args:
        policy: of which all but the limits counts.
    """
    deleted = np.full((len(ladder.times_ms), len(ladder.sizes)), of.by_start, np.int64)
    if Cleanup.DELETE not in policy.cleanup:
        return deleted
    by_size = np.array([of.by_size(size) for size in ladder.sizes])
    for row, time_ms in enumerate(ladder.times_ms):
        # Deletion goes on from where the limit in size ended, to the first that stays from there on.
        staying = np.append(np.flatnonzero(~(of.may_go & of.too_old(time_ms))), len(of.may_go))
        deleted[row] = staying[np.searchsorted(staying, by_size)]
    return deleted


def reasons_of_first(of: Candidates, policy: TopicPolicy, ladder: Ladder, deleted: Longs) -> NDArray[np.int8]:
    """Why the first segment that stays does, by its number in `REASONS`; `NONE_STAYS` where all are deleted.

    Args:
        policy: of which all but the limits counts.
        deleted: as `deletions`; the reasons have its shape.
    """
    stays = np.empty(deleted.shape, np.int8)
    unlimited = np.array([size == UNLIMITED for size in ladder.sizes])
    for row, time_ms in enumerate(ladder.times_ms):
        too_old = of.too_old(time_ms)
        limited = replace(policy, retention_ms=time_ms, retention_bytes=0)
        stays[row] = _at(of.reasons_to_stay(limited, too_old), deleted[row])
        if time_ms == UNLIMITED and unlimited.any():
            neither = of.reasons_to_stay(replace(limited, retention_bytes=UNLIMITED), too_old)
            stays[row, unlimited] = _at(neither, deleted[row])[unlimited]
    return stays


def _at(reasons: NDArray[np.int8], deleted: Longs) -> NDArray[np.int8]:
    return np.append(reasons, np.int8(NONE_STAYS))[deleted]
