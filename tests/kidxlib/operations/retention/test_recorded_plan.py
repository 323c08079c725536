"""How old a plan may be that is applied."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kidxlib.errors import UsageError
from kidxlib.operations.retention.recorded_plan import ensure_recent


def test_a_plan_of_the_future_is_refused() -> None:
    """By the machine's clock, even by a millisecond: then one of two clocks is wrong."""
    hour = timedelta(hours=1)
    for age_ms in (0, 1, 3_600_000):
        ensure_recent("--plan x", 10**12, 10**12 + age_ms, hour)
    with pytest.raises(UsageError) as future:
        ensure_recent("--plan x", 10**12, 10**12 - 1, hour)
    assert str(future.value).startswith(
        "--plan x: planned for 2001-09-09T01:46:40.000Z, which is 0:00:00.001000 ahead of this machine's clock "
        "(2001-09-09T01:46:39.999Z): one of the clocks is wrong"
    )
    with pytest.raises(UsageError, match=r"made 1:00:00\.001000 ago by this machine's clock, expected 1:00:00 at most"):
        ensure_recent("--plan x", 10**12, 10**12 + 3_600_001, hour)
