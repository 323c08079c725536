"""What compaction is to do with which segment."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from kidxlib.compaction.policy import Expiry
from kidxlib.compaction.policy_file import read_compaction_policy

_DAY_MS = 24 * 3600 * 1000
_NOW_MS = 1000 * _DAY_MS

_FILE = """
[[rule]]
match = "audit-.*"
older.than = "30d"
larger.than = 1000
index.interval.bytes = 1048576

[[rule]]
older.than = "7d"
index.interval.bytes = 65536

[tables]
builds.older.than = "365d"
gone.segments.older.than = "1h"
"""


@pytest.mark.parametrize(
    ("topic", "log_bytes", "age_days", "interval"),
    [
        ("audit-a", 1001, 30, 1048576),
        ("audit-a", 1000, 30, 65536),  # not larger than that
        ("audit-a", 1001, 29, 65536),
        ("an-audit-a", 1001, 30, 65536),  # the whole name has to match
        ("audit-a", 1001, 6, None),
        ("other", 0, 7, 65536),
        ("other", 0, -9, None),  # of the future
    ],
)
def test_the_first_rule_that_fits_decides(
    topic: str, log_bytes: int, age_days: int, interval: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(_FILE)
    policy = read_compaction_policy(path)
    assert policy.interval_for(topic, log_bytes, _NOW_MS - age_days * _DAY_MS, _NOW_MS) == interval
    assert policy.expiry == Expiry(builds=timedelta(days=365), gone_segments=timedelta(hours=1))
