"""Reads files of compaction policies (TOML). `kidxlib.compaction.policy` says what the keys mean.

[[rule]]                            # the first that fits a segment decides; none: its indexes stay as they are
match = "audit-.*"                  # a topic's full name; without it, any
older.than = "30d"                  # its largest timestamp; without it, any age
larger.than = 104857600             # bytes of its log; without it, any size
index.interval.bytes = 1048576

[[rule]]
older.than = "7d"
index.interval.bytes = 65536

[tables]                            # without a key, rows of that kind stay
builds.older.than = "365d"
retention.plans.older.than = "90d"
findings.older.than = "90d"         # with the remote segments of audits
gone.segments.older.than = "365d"   # with their events and aborted transactions
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, PlainValidator

from kidxlib.compaction.policy import CompactionPolicy, Expiry, Rule
from kidxlib.text.times import parse_duration
from kidxlib.text.toml_file import LONG_MAX, Pattern, TomlTable, expected, parse_toml, read_toml_text

_INT_MAX: Final = 2**31 - 1

_Duration = Annotated[
    timedelta,
    PlainValidator(lambda value: parse_duration(str(value))),
    expected('a whole number with ms, s, m, h or d, such as "7d"'),
]


class _RuleTable(TomlTable):
    """`[[rule]]`."""

    match: Pattern | None = None
    older_than: _Duration | None = Field(default=None, alias="older.than")
    larger_than: Annotated[int, Field(ge=0, le=LONG_MAX), expected("a whole number of bytes, 0 or more")] | None = (
        Field(default=None, alias="larger.than")
    )
    interval_bytes: Annotated[int, Field(ge=0, le=_INT_MAX), expected(f"a whole number of bytes, 0 to {_INT_MAX}")] = (
        Field(alias="index.interval.bytes")
    )


class _ExpiryTable(TomlTable):
    """`[tables]`."""

    builds: _Duration | None = Field(default=None, alias="builds.older.than")
    retention_plans: _Duration | None = Field(default=None, alias="retention.plans.older.than")
    findings: _Duration | None = Field(default=None, alias="findings.older.than")
    gone_segments: _Duration | None = Field(default=None, alias="gone.segments.older.than")


class _File(TomlTable):
    rule: tuple[_RuleTable, ...] = Field(default=(), strict=False)
    tables: _ExpiryTable = _ExpiryTable()


def read_compaction_policy(path: Path) -> CompactionPolicy:
    file = parse_toml(path, read_toml_text(path), _File)
    return CompactionPolicy(tuple(Rule(**rule.given()) for rule in file.rule), Expiry(**file.tables.given()))
