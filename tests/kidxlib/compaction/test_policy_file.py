"""What is wrong with a file of compaction policies is said with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.compaction.policy_file import read_compaction_policy
from kidxlib.errors import UsageError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]]\nolder.than = '7d'\n", "rule 1: index.interval.bytes: missing; each such table needs it"),
        (
            "[[rule]]\nindex.interval.bytes = -1\n",
            "rule 1: index.interval.bytes = -1; expected a whole number of bytes",
        ),
        (
            "[[rule]]\nindex.interval.bytes = 1\nolder.than = 7\n",
            "rule 1: older.than = 7; expected a whole number with",
        ),
        (
            "[[rule]]\nindex.interval.byte = 1\n",
            "rule 1: index.interval.byte: unknown key; did you mean index.interval.bytes?",
        ),
        ("[[rule]]\nmatch = '('\nindex.interval.bytes = 1\n", "rule 1: match = '('; expected a regular expression"),
        ("rule = 5\n", "rule = 5; expected tables [[rule]]"),
        ("[table]\nbuilds.older.than = '1d'\n", "table: unknown key; did you mean tables?"),
        ("[tables]\nbuild.older.than = '1d'\n", "tables.build: unknown key; known: "),
        ("tables = 1\n", "tables = 1; expected a table"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_compaction_policy(path)
    assert str(raised.value).startswith(f"{path}: {message}")
