"""Of logs that overlap, those are a partition's that follow one another to the offset; else none is known to be."""

from __future__ import annotations

import pytest

from kidxlib.log.overlaps import LogRange, overlaps_of

_Ranges = tuple[tuple[int, int], ...]


@pytest.mark.parametrize(
    ("logs", "between", "unknown"),
    [
        (((0, 10), (10, 20), (20, 30)), [], []),
        (((0, 8), (10, 18), (20, 20), (20, 30)), [], []),
        (((0, 10), (10, 20), (11, 21), (20, 30), (30, 40)), [11], []),
        (((0, 10), (10, 20), (11, 21), (20, 30), (22, 33), (30, 40)), [11, 22], []),
        (((0, 10), (10, 30), (15, 18), (30, 40)), [15], []),
        (((0, 10), (10, 20), (15, 50)), [15], []),
        (((0, 15), (10, 20), (20, 30)), [0], []),
        (((0, 10), (5, 15), (10, 20)), [5], []),
        (((0, 10), (5, 15)), [], [0, 5]),
        (((0, 10), (10, 21), (20, 30), (30, 40)), [], [10, 20]),
        (((0, 9), (10, 20), (15, 25), (20, 30), (30, 40)), [], [10, 15, 20]),
        (((0, 10), (10, 20), (15, 25), (20, 30), (25, 30), (30, 40)), [15, 25], []),
        (((0, 10), (10, 25), (12, 40), (25, 39), (40, 50)), [], [10, 12, 25]),
    ],
)
def test_logs_that_may_be_another_partitions(logs: _Ranges, between: list[int], unknown: list[int]) -> None:
    found = overlaps_of([LogRange(*each) for each in logs])
    assert [base for base, overlap in found.items() if overlap.is_between] == between
    assert [base for base, overlap in found.items() if not overlap.is_between] == unknown
    assert all(overlap.end_offset == dict(logs)[base] for base, overlap in found.items())
