"""When segments that stay will go."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kidxlib.operations.retention.due import FACTS_OF_DUE, NEVER_MS, with_due

_LONG_MAX: Final = 2**63 - 1


def _row(base_offset: int, reason: str, largest_ms: int, retention_ms: int = 100, partition: int = 0) -> dict[str, Any]:
    decision = "delete" if reason == "time" else "keep"
    values = ("p", "s", "t", partition, base_offset, decision, reason, largest_ms, retention_ms)
    return dict(zip(FACTS_OF_DUE, values, strict=True))


def test_a_segment_goes_once_it_and_all_before_it_are_old_enough() -> None:
    """A millisecond after the limit; a segment that stays for another reason holds all behind it."""
    expected = {
        0: (_row(0, "time", 1), None),
        1: (_row(10, "future-timestamp", 900), 1001),
        2: (_row(20, "behind", 5), 1001),
        3: (_row(30, "time-not-reached", 950), 1051),
        4: (_row(40, "no-timestamps", 920), 1051),
        5: (_row(50, "high-watermark", 0), None),
        6: (_row(60, "time-not-reached", 2_000), None),
        7: (_row(0, "time-not-reached", 7, partition=1), 108),
        8: (_row(0, "time-not-reached", _LONG_MAX, partition=2), None),
        9: (_row(0, "time-not-reached", 7, _LONG_MAX, partition=3), None),
        10: (_row(0, "time-not-reached", NEVER_MS - 102, partition=4), NEVER_MS - 1),
        11: (_row(0, "compacted", 7, partition=5), None),
        12: (_row(0, "size-not-reached", 7, -1, partition=6), None),
    }
    rows = pa.Table.from_pylist([row for row, _ in reversed(expected.values())])
    assert with_due(rows)["due_ms"].to_pylist() == [due for _, due in expected.values()]
    assert with_due(rows.slice(0, 0))["due_ms"].to_pylist() == []
