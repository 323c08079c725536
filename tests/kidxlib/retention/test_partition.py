"""Where a partition starts and ends for a broker that starts."""

from __future__ import annotations

from kidxlib.retention.partition import Bounds


def test_bounds_are_those_of_a_broker_that_starts() -> None:
    """UnifiedLog.updateHighWatermark keeps it between log start and log end; DeleteRecords stops at it."""
    assert Bounds.at_start(5, 20, log_start_offset=None, high_watermark=None) == Bounds(5, 20, 20)
    assert Bounds.at_start(5, 20, log_start_offset=8, high_watermark=3) == Bounds(8, 8, 20)
    assert Bounds.at_start(5, 20, log_start_offset=0, high_watermark=99) == Bounds(5, 20, 20)
    bounds = Bounds.at_start(5, 20, log_start_offset=8, high_watermark=15)
    assert [bounds.deleted_up_to(offset).log_start_offset for offset in (3, 10, 18)] == [8, 10, 15]
