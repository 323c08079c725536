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

from kidxlib.coarsen import Indexes, ScanCost, from_denser, from_headers, scan_cost
from kidxlib.recover import RecoveredSegment, RecoverOptions, Status, recover
from kidxlib.storage import WholeLog
from tests.conftest import LINES
from tests.kidxlib.golden import GoldenSegment
from tests.kidxlib.segments import Batch, Segment, encode, segments, whole

KIB: Final = 1024
INTERVALS: Final = (4 * KIB, 64 * KIB, KIB * KIB)


def _indexes(recovered: RecoveredSegment) -> Indexes:
    return Indexes(recovered.offset_index, recovered.time_index)


def _valid(log: bytes, recovered: RecoveredSegment) -> WholeLog:
    return WholeLog(np.frombuffer(log, np.uint8)[: recovered.facts.valid_bytes])


def test_every_golden_segment_at_every_interval_and_back(golden_segment: GoldenSegment) -> None:
    """4 KiB → 64 KiB → 1 MiB through the denser index each time, and back to 4 KiB by headers; always what a recovery
    that checks checksums writes.
    """
    log, base_offset = golden_segment.log.read_bytes(), golden_segment.base_offset
    options = replace(golden_segment.options, interval_bytes=INTERVALS[0])
    full = recover(WholeLog(np.frombuffer(log, np.uint8)), base_offset, options)
    if full.end.status is Status.QUARANTINED:
        return
    at_hand, valid = _indexes(full), _valid(log, full)
    for interval in INTERVALS[1:]:
        options = replace(options, interval_bytes=interval)
        expected = _indexes(recover(WholeLog(np.frombuffer(log, np.uint8)), base_offset, options))
        if full.facts.offsets_increase:
            at_hand = from_denser(valid, base_offset, options, at_hand) or at_hand
            assert at_hand == expected
        assert _indexes(from_headers(valid, base_offset, options)) == expected
    options = replace(options, interval_bytes=INTERVALS[0])
    assert _indexes(from_headers(valid, base_offset, options)) == _indexes(full)


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
    by_headers = from_headers(whole(valid), segment.base_offset, options)
    if sparse.end.status is Status.QUARANTINED:
        tried["quarantined then"] += 1
        assert by_headers.end.status is Status.QUARANTINED
        return
    assert _indexes(by_headers) == _indexes(sparse)
    if not dense.facts.offsets_increase:
        tried["by headers"] += 1
        return
    found = from_denser(whole(valid), segment.base_offset, options, _indexes(dense))
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
    batches = [Batch(offset_step=step, timestamp=time) for step, time in ((1, 2), (5, 5), (-3, 2), (5, 4))]
    log = b"".join(encode(0, batches))
    dense = recover(whole(log), 0, RecoverOptions(interval_bytes=100))
    sparser = RecoverOptions(interval_bytes=300)
    sparse = recover(whole(log), 0, sparser)
    assert (dense.end.status, sparse.end.status) == (Status.OK, Status.OK)
    assert not dense.facts.offsets_increase
    assert from_denser(whole(log), 0, sparser, _indexes(dense)) != _indexes(sparse)
    assert _indexes(from_headers(whole(log), 0, sparser)) == _indexes(sparse)


def test_what_a_lookup_costs() -> None:
    """Entries at bytes 100 and 400 of 1000: stretches of 100, 300 and 600 bytes."""
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
    assert from_denser(log, segment.base_offset, RecoverOptions(interval_bytes=10**6), indexes) is None
