"""What a person would not expect of a plan, in words."""

from __future__ import annotations

import pytest

from kidxlib.operations.retention.findings import RetentionFinding
from kidxlib.retention.reasons import PlanWarning

_NOW_MS = 1_795_224_739_000
_THEN_MS = 1_760_000_000_935


@pytest.mark.parametrize(
    ("largest_ms", "unit"),
    [
        (_THEN_MS * 1_000, "; in µs the largest would be 2025-10-09T08:53:20.935Z"),
        (_THEN_MS * 1_000_000 + 7, "; in ns the largest would be 2025-10-09T08:53:20.935Z"),
        (2_056_320_000_000, ""),  # 2035, in whatever unit
        (2**63 - 1, ""),
        ((_NOW_MS + 1) * 1_000, ""),
    ],
)
def test_timestamps_of_the_future_may_be_in_another_unit(largest_ms: int, unit: str) -> None:
    """If that gives a time between the year 2000 and now."""
    finding = RetentionFinding(
        "p", PlanWarning.FUTURE_TIMESTAMP, 1, 1, "s: t-0/0", most_ms=largest_ms - _NOW_MS, largest_ms=largest_ms
    )
    assert f"keeps such a segment until long after that{unit} (the first: s: t-0/0)" in finding.sentence
