"""How much a build read and wrote, in all and by topic, and the segments that have problems."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, Final, TypeVar

from kidxlib.recovery.outcome import Status

PROBLEMS_KEPT: Final = 1000

_Sum = TypeVar("_Sum", int, Counter[str])

#: The statuses of a segment without problems. One that was deleted between listing and reading has none: retention
#: does that.
PROBLEM_FREE: Final = (Status.OK, Status.GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentProblem:
    """Fields are the catalog's columns."""

    source: str
    topic: str
    partition: int
    base_offset: int
    status: str
    reason: str | None
    reason_position: int | None
    reason_detail: str | None
    log_path: str


def _count_problems(by_status: Counter[str]) -> int:
    return sum(count for status, count in by_status.items() if status not in PROBLEM_FREE)


@dataclass(slots=True)
class TopicCounts:
    """What was read and written of one topic.

    Attributes:
        log_bytes: size of the logs read.
        entries: entries of the offset and time indexes published.
        aborted_transactions: of the partitions finished, whether their segments were read in this run or not.
        by_published: segments read, by what publishing did with their offset and time index.
        by_transaction_index: segments of the partitions finished, by what publishing did with their transaction index;
            most segments have and need none.
    """

    topic: str
    segments: int = 0
    log_bytes: int = 0
    batches: int = 0
    entries: int = 0
    aborted_transactions: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    by_published: Counter[str] = field(default_factory=Counter)
    by_transaction_index: Counter[str] = field(default_factory=Counter)

    @property
    def problems(self) -> int:
        return _count_problems(self.by_status)

    def add(self, *, segments: int, log_bytes: int, batches: int, entries: int, status: str, published: str) -> None:
        """Count segments of one status, whose index files publishing all wrote or all left."""
        self.segments += segments
        self.log_bytes += log_bytes
        self.batches += batches
        self.entries += entries
        self.by_status[status] += segments
        self.by_published[published] += segments

    def withdraw(self, status: str, segments: int) -> None:
        """Count segments as quarantined that were counted with another status when they were read."""
        self.by_status[status] -= min(segments, self.by_status[status])
        self.by_status[Status.QUARANTINED] += segments


@dataclass(slots=True)
class BuildCounts:
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    problems: list[SegmentProblem] = field(default_factory=list)
    unknown_facts: Counter[str] = field(default_factory=Counter)  # of how many segments each fact is not known
    kept: list[str] = field(default_factory=list)  # snapshots and checkpoints that stay as a broker left them

    def topic(self, name: str) -> TopicCounts:
        return self.topics.setdefault(name, TopicCounts(name))

    @property
    def segments(self) -> int:
        return self._sum("segments", 0)

    @property
    def log_bytes(self) -> int:
        return self._sum("log_bytes", 0)

    @property
    def batches(self) -> int:
        return self._sum("batches", 0)

    @property
    def aborted_transactions(self) -> int:
        return self._sum("aborted_transactions", 0)

    @property
    def by_status(self) -> Counter[str]:
        return self._sum("by_status", Counter())

    @property
    def by_published(self) -> Counter[str]:
        return self._sum("by_published", Counter())

    @property
    def by_transaction_index(self) -> Counter[str]:
        return self._sum("by_transaction_index", Counter())

    @property
    def problem_count(self) -> int:
        return _count_problems(self.by_status)

    def largest_topics(self) -> list[TopicCounts]:
        return sorted(self.topics.values(), key=lambda topic: (-topic.log_bytes, topic.topic))

    def as_json(self) -> dict[str, Any]:
        return {
            "segments": self.segments,
            "log_bytes": self.log_bytes,
            "batches": self.batches,
            "by_status": self.by_status,
            "by_published": self.by_published,
            "aborted_transactions": self.aborted_transactions,
            "by_transaction_index": self.by_transaction_index,
            "kept": self.kept,
            "topics": [
                {name: getattr(topic, name) for name in TopicCounts.__dataclass_fields__}
                for topic in self.largest_topics()
            ],
            "not_well_count": self.problem_count,
            "not_well": [asdict(segment) for segment in self.problems],
        }

    def _sum(self, name: str, start: _Sum) -> _Sum:
        """The sum over all topics. A counter has no keys with 0."""
        return reduce(operator.add, (getattr(topic, name) for topic in self.topics.values()), start)
