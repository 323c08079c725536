"""What compaction is to do: which segments get which interval, and how long tables keep what is past. From options, or
from a file (TOML):

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
    findings.older.than = "90d"
    gone.segments.older.than = "365d"   # with their events and aborted transactions
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.policy_file import Place, PolicyFile, Setting, pattern, whole_number
from kidxlib.times import parse_duration

_INT_MAX: Final = 2**31 - 1
_ANY: Final = re.compile(".*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which segments get an interval.

    Attributes:
        match: their topics' full names.
        older_than: how long ago their largest timestamp is, at least; 0 for any, be it in the future.
        larger_than: bytes that their logs have more than; −1 for any.
        interval_bytes: what they get.
    """

    match: re.Pattern[str] = _ANY
    older_than: timedelta = timedelta(0)
    larger_than: int = -1
    interval_bytes: int

    def fits(self, topic: str, log_bytes: int, largest_timestamp_ms: int, now_ms: int) -> bool:
        """Whether a segment is one of those."""
        age = timedelta(milliseconds=max(now_ms - largest_timestamp_ms, 0))
        return bool(self.match.fullmatch(topic)) and age >= self.older_than and log_bytes > self.larger_than


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """After what time rows of the catalog's tables go; None: never.

    Attributes:
        builds, retention_plans, findings: since they were made.
        gone_segments: of segments that are gone or deleted, since their logs were last modified.
    """

    builds: timedelta | None = None
    retention_plans: timedelta | None = None
    findings: timedelta | None = None
    gone_segments: timedelta | None = None


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    rules: tuple[Rule, ...] = ()
    expiry: Expiry = Expiry()

    def interval_for(self, topic: str, log_bytes: int, largest_timestamp_ms: int, now_ms: int) -> int | None:
        """The interval that a segment is to have; None where no rule fits it."""
        fitting = (rule for rule in self.rules if rule.fits(topic, log_bytes, largest_timestamp_ms, now_ms))
        return next((rule.interval_bytes for rule in fitting), None)


def read_compaction_policy(path: Path) -> CompactionPolicy:
    """The policy in a file.

    Raises:
        UsageError: it cannot be read or parsed, or a line says something that it may not.
    """
    file = PolicyFile.read(path)
    for name in file.document:
        if name not in ("rule", "tables"):
            file.refuse((name,), f"unknown table {name}; known: rule, tables")
    rules = tuple(
        _rule(file, entry, ("rule", number)) for number, entry in enumerate(file.tables(file.document, "rule", ()))
    )
    tables = file.document.get("tables", {})
    if not isinstance(tables, dict):
        file.refuse(("tables",), "tables: expected a table [tables]")
    return CompactionPolicy(rules, Expiry(**file.values(tables, ("tables",), _OF_TABLES)))


def _rule(file: PolicyFile, entry: object, place: Place) -> Rule:
    assert isinstance(entry, dict)
    values = file.values(entry, place, _OF_RULE)
    if "interval_bytes" not in values:
        file.refuse(place, "[[rule]] without index.interval.bytes; expected the bytes between two entries")
    return Rule(**values)


def _duration(value: object) -> timedelta:
    try:
        return parse_duration(str(value))
    except UsageError as error:
        raise ValueError('a whole number with ms, s, m, h or d, such as "7d"') from error


def _interval(value: object) -> int:
    return whole_number(value, 0, f"a whole number of bytes, 0 to {_INT_MAX}", _INT_MAX)


def _bytes(value: object) -> int:
    return whole_number(value, 0, "a whole number of bytes, 0 or more")


_OF_RULE: Final = {
    "match": Setting("match", pattern),
    "older.than": Setting("older_than", _duration),
    "larger.than": Setting("larger_than", _bytes),
    "index.interval.bytes": Setting("interval_bytes", _interval),
}
_OF_TABLES: Final = {
    "builds.older.than": Setting("builds", _duration),
    "retention.plans.older.than": Setting("retention_plans", _duration),
    "findings.older.than": Setting("findings", _duration),
    "gone.segments.older.than": Setting("gone_segments", _duration),
}
