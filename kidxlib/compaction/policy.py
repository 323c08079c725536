"""The compaction policy: which segments get which interval, and how long tables keep old rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_ANY: Final = re.compile(".*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    Attributes:
        match: the topics' full names.
        older_than: the least age of a segment's largest timestamp; 0: any age, even in the future.
        larger_than: a segment's log has more bytes than this; −1: any size.
        interval_bytes: the interval that the segments get.
    """

    match: re.Pattern[str] = _ANY
    older_than: timedelta = timedelta(0)
    larger_than: int = -1
    interval_bytes: int

    def fits(self, topic: str, log_bytes: int, largest_timestamp_ms: int, now_ms: int) -> bool:
        age = timedelta(milliseconds=max(now_ms - largest_timestamp_ms, 0))
        return bool(self.match.fullmatch(topic)) and age >= self.older_than and log_bytes > self.larger_than


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The age at which rows of the catalog's tables expire; None: never.

    Attributes:
        builds, retention_plans, findings: since they were made; findings of all audits, with their remote segments.
        gone_segments: since a segment was deleted, or since the build that found it missing.
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
        """The interval that a segment should have; None if no rule fits it."""
        fitting = (rule for rule in self.rules if rule.fits(topic, log_bytes, largest_timestamp_ms, now_ms))
        return next((rule.interval_bytes for rule in fitting), None)
