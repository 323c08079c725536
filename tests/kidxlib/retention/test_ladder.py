"""A ladder of limits decides as each pair of its limits would by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.retention.decide import Candidates, decide
from kidxlib.retention.ladder import NONE_STAYS, Ladder, deletions, reasons_of_first
from kidxlib.retention.partition import Bounds, Segments
from kidxlib.retention.topic_policy import Cleanup, TopicPolicy

_NOW = 1_790_000_000_000
_TIMES = st.sampled_from([-1, 0, _NOW - 20_000, _NOW - 10_000, _NOW - 1, _NOW, _NOW + 5_000])
_LIMITS = st.lists(st.sampled_from([-1, 0, 1, 100, 250, 10_000, 2**62]), min_size=1, max_size=4)


@given(st.data())
def test_each_pair_is_decided_as_decide_does(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))

    def column(values: st.SearchStrategy[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(data.draw(st.lists(values, min_size=count, max_size=count)), np.int64)

    segments = Segments(
        base_offsets=np.arange(count, dtype=np.int64) * 5,
        sizes=column(st.sampled_from([0, 100, 150])),
        max_timestamps=column(_TIMES),
        mtimes_ms=column(_TIMES),
        fully_read=column(st.sampled_from([0, 1, 1, 1])).astype(np.bool_),
    )
    end = 5 * count
    bounds = Bounds.at_start(
        0, end, log_start_offset=data.draw(st.integers(0, end)), high_watermark=data.draw(st.integers(0, end))
    )
    cleanup = frozenset(data.draw(st.sets(st.sampled_from(list(Cleanup)))))
    ladder = Ladder(data.draw(_LIMITS), data.draw(_LIMITS))
    candidates, of_topic = Candidates.of(segments, bounds, _NOW), TopicPolicy(cleanup=cleanup)
    deleted = deletions(candidates, of_topic, ladder)
    stays = reasons_of_first(candidates, of_topic, ladder, deleted)
    for row, time_ms in enumerate(ladder.times_ms):
        for column_, size in enumerate(ladder.sizes):
            policy = TopicPolicy(retention_ms=time_ms, retention_bytes=size, cleanup=cleanup)
            alone = decide(segments, bounds, policy, _NOW)
            expected = NONE_STAYS if alone.whole_partition else alone.reasons[alone.deleted]
            assert (deleted[row, column_], stays[row, column_]) == (alone.deleted, expected), policy
