"""What a build read and wrote, and the segments that have problems: for the screen, for JSON, for the catalog."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any, Final, TypeVar

from kidxlib.build.topic_counts import TopicCounts, count_problems

PROBLEMS_KEPT: Final = 1000

_Sum = TypeVar("_Sum", int, Counter[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentProblem:
    """A segment that has problems; fields as in the catalog."""

    source: str
    topic: str
    partition: int
    base_offset: int
    status: str
    reason: str | None
    reason_position: int | None
    reason_detail: str | None
    log_path: str


@dataclass(slots=True)
class Counts:
    """What was read and written in a run."""

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
        return count_problems(self.by_status)

    def largest_topics(self) -> list[TopicCounts]:
        return sorted(self.topics.values(), key=lambda topic: (-topic.log_bytes, topic.topic))

    def as_json(self) -> dict[str, Any]:
        """What every build's JSON object holds about what was read."""
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
        """The sum of a number over all topics. A counter is without what came to nothing."""
        return reduce(operator.add, (getattr(topic, name) for topic in self.topics.values()), start)
