"""Indexes at another interval: the bytes that recovery writes with it, through denser ones or by headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.records.batch_headers import batches
from kidxlib.records.header_search import SearchOutcome, Step, new_walks, step_to_offsets, step_to_timestamps, walk
from kidxlib.recovery.coarsen import Indexes, ScanCost, coarsen_indexes, indexes_from_headers, scan_cost
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.recover import RecoveredSegment, recover
from kidxlib.storage.log_bytes import LogBytes, WholeLog
from tests.conftest import LINES
from tests.support.logs.batches import Batch, encode
from tests.support.logs.golden import GoldenSegment
from tests.support.logs.guarded import whole
from tests.support.logs.segments import Segment, segments

KIB: Final = 1024
INTERVALS: Final = (4 * KIB, 64 * KIB, KIB * KIB)

#: Up to so many offsets or milliseconds all are asked for; beyond, those around batches.
_ASKED_MAX: Final = 200_000


def _indexes(recovered: RecoveredSegment) -> Indexes:
    return Indexes(recovered.offset_index, recovered.time_index)


def _valid(log: bytes, recovered: RecoveredSegment) -> WholeLog:
    return WholeLog(np.frombuffer(log, np.uint8)[: recovered.facts.valid_bytes])


def test_lookups_are_right_at_every_interval(golden_segment: GoldenSegment) -> None:
    """Goal: every search by offset and by time ends at the batch that it has to end at.

    Method: all offsets and milliseconds of the segment, or those around its batches' where it spans too many, are
    looked up as `LogSegment` does, and compared with the first batch that reaches so far by its header.
    """
    log, base_offset = golden_segment.log.read_bytes(), golden_segment.base_offset
    full = recover(WholeLog(np.frombuffer(log, np.uint8)), base_offset, golden_segment.options)
    if full.end.status is Status.QUARANTINED or not full.facts.offsets_increase:
        return
    valid = _valid(log, full)
    found = list(batches(valid))
    positions = np.array([batch.position for batch in found], np.int64)
    last_offsets = np.array([batch.last_offset for batch in found], np.int64)
    times = np.maximum.accumulate(np.array([batch.max_timestamp for batch in found], np.int64))
    offsets_asked, times_asked = _all_from(base_offset - 1, last_offsets), _all_from(0, times)
    for interval in INTERVALS:
        options = replace(golden_segment.options, interval_bytes=interval)
        recovered = indexes_from_headers(valid, base_offset, options)
        offset_index = OffsetIndex.from_bytes(recovered.offset_index, base_offset)
        time_index = TimeIndex.from_bytes(recovered.time_index, base_offset)
        starts = offset_index.lookup_many(offsets_asked)["position"]
        assert_found(valid, offsets_asked, starts, step_to_offsets, positions, last_offsets)
        starts = offset_index.lookup_many(time_index.lookup_many(times_asked)["offset"])["position"]
        assert_found(valid, times_asked, starts, step_to_timestamps, positions, times)


def _all_from(least: int, reached: NDArray[np.int64]) -> NDArray[np.int64]:
    most = int(reached.max(initial=least)) + 1
    start = max(least, int(reached.min(initial=most)) - 1000)
    if most - start <= _ASKED_MAX:
        return np.arange(start, most + 1)
    return np.unique(np.concatenate([reached - 1, reached, reached + 1]))


def assert_found(
    log: LogBytes,
    targets: NDArray[np.int64],
    starts: NDArray[np.int64],
    step: Step,
    positions: NDArray[np.int64],
    reached: NDArray[np.int64],
) -> None:
    """Each search ends at the first batch that reaches its target, or, where headers do not tell, not past it."""
    walks = new_walks(targets, starts)
    walk(log, walks, step)
    expected = np.append(positions, log.size)[np.searchsorted(reached, targets)]
    is_told = walks["outcome"] == SearchOutcome.FOUND
    assert np.array_equal(walks["position"][is_told], expected[is_told])
    assert (starts <= expected).all()
    assert (expected[walks["outcome"] == SearchOutcome.NONE] == log.size).all()


@pytest.fixture(scope="module")
def tried(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """What became of generated segments."""
    counts: Counter[str] = Counter()
    yield counts
    seed = request.config.getoption("hypothesis_seed")
    lines = request.config.stash.setdefault(LINES, [])
    lines.append(f"generated segments coarsened, seed {seed}: {dict(counts.most_common())}")


@given(segment=segments(), factor=st.integers(1, 40), more=st.integers(1, 300))
def test_generated_segments(segment: Segment, factor: int, more: int, tried: Counter[str]) -> None:
    """At a larger interval, through the index at the smaller one where offsets increase, and by headers always."""
    dense = recover(whole(segment.log), segment.base_offset, segment.options)
    if dense.end.status is Status.QUARANTINED:
        tried["quarantined before"] += 1
        return
    interval = min(segment.options.interval_bytes * factor + more, 2**31 - 1)
    options = replace(segment.options, interval_bytes=interval)
    sparse = recover(whole(segment.log), segment.base_offset, options)
    valid = segment.log[: dense.facts.valid_bytes]
    by_headers = indexes_from_headers(whole(valid), segment.base_offset, options)
    if sparse.end.status is Status.QUARANTINED:
        tried["quarantined then"] += 1
        assert by_headers.end.status is Status.QUARANTINED
        return
    assert _indexes(by_headers) == _indexes(sparse)
    if not dense.facts.offsets_increase:
        tried["by headers"] += 1
        return
    found = coarsen_indexes(whole(valid), segment.base_offset, options, _indexes(dense))
    if found is None:
        tried["no room"] += 1
        assert options.max_index_bytes < 1000
        return
    tried["through the denser"] += 1
    assert found == _indexes(sparse)


def test_why_offsets_have_to_increase() -> None:
    """Offset 6 with the largest timestamp, then 3: the time index does not tell that 6 was before the second entry of
    the offset index. Kafka does not notice such offsets; here the fact says that headers are to be read.
    """
    steps = ((1, 2), (5, 5), (-3, 2), (5, 4))
    log = b"".join(encode(0, [Batch(offset_step=step, timestamp=time) for step, time in steps]))
    dense = recover(whole(log), 0, RecoverOptions(interval_bytes=100))
    sparser = RecoverOptions(interval_bytes=300)
    sparse = recover(whole(log), 0, sparser)
    assert (dense.end.status, sparse.end.status) == (Status.OK, Status.OK)
    assert not dense.facts.offsets_increase
    assert coarsen_indexes(whole(log), 0, sparser, _indexes(dense)) != _indexes(sparse)
    assert _indexes(indexes_from_headers(whole(log), 0, sparser)) == _indexes(sparse)


def test_what_a_lookup_costs() -> None:
    """Entries at bytes 100 and 400 of 1000: sections of 100, 300 and 600 bytes."""
    index = np.array([(5, 100), (9, 400)], [("offset", ">i4"), ("position", ">i4")]).tobytes()
    assert scan_cost(index, 1000) == ScanCost(mean=(100**2 + 300**2 + 600**2) // 2000, most=600)
    assert scan_cost(b"", 0) == ScanCost(0, 0)


def test_a_log_that_is_not_given_whole_is_not_taken(golden_segments: list[GoldenSegment]) -> None:
    segment = golden_segments[0]
    indexes = Indexes(segment.offset_index, segment.time_index)

    class Pieces(WholeLog):
        def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
            start, data = super().window(position)
            return start, data[: len(data) // 2]

    log = Pieces(np.fromfile(segment.log, np.uint8))
    assert coarsen_indexes(log, segment.base_offset, RecoverOptions(interval_bytes=10**6), indexes) is None
