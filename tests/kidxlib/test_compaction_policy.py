"""What compaction is to do with which segment, and what is wrong with a file that says so."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from kidxlib.compaction_policy import Expiry, read_compaction_policy
from kidxlib.errors import UsageError

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nolder.than = '7d'\n", "line 1: [[rule]] without index.interval.bytes"),
        (
            "[[rule]]\nindex.interval.bytes = -1\n",
            "line 2: index.interval.bytes = -1; expected a whole number of bytes",
        ),
        (
            "[[rule]]\nindex.interval.bytes = 1\nolder.than = 7\n",
            "line 3: older.than = 7; expected a whole number with",
        ),
        ("[[rule]]\nindex.interval.byte = 1\n", "unknown key index.interval.byte; did you mean index.interval.bytes?"),
        ("[[rule]]\nmatch = '('\nindex.interval.bytes = 1\n", "line 2: match = '('; expected a regular expression"),
        ("rule = 5\n", "rule: expected tables [[rule]]"),
        ("[table]\nbuilds.older.than = '1d'\n", "line 1: unknown table table; known: rule, tables"),
        ("[tables]\nbuild.older.than = '1d'\n", "unknown key build; "),
        ("tables = 1\n", "tables: expected a table [tables]"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_compaction_policy(path)
    assert message in str(raised.value) and str(raised.value).startswith(f"{path}: line ")
