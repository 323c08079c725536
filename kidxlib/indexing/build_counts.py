"""How much a build read and wrote, in all and by topic, and the segments that have problems."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kidxlib.catalog.matching import Values
from kidxlib.catalog.segments import FillableFacts
from kidxlib.recovery.outcome import Status

PROBLEMS_KEPT: Final = 1000

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
        """How many segments have problems, as a build counts them."""
        return sum(count for status, count in self.by_status.items() if status not in PROBLEM_FREE)

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


_SUMMED: Final = tuple(name for name in TopicCounts.__dataclass_fields__ if name != "topic")


@dataclass(slots=True)
class BuildCounts:
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    problems: list[SegmentProblem] = field(default_factory=list)
    unknown_facts: Counter[str] = field(default_factory=Counter)  # of how many segments each fact is not known
    kept: list[str] = field(default_factory=list)  # snapshots and checkpoints that stay as a broker left them

    def topic(self, name: str) -> TopicCounts:
        return self.topics.setdefault(name, TopicCounts(name))

    @property
    def total(self) -> TopicCounts:
        """The sums over all topics. A counter has no keys with 0."""
        total = TopicCounts("")
        for topic in self.topics.values():
            for name in _SUMMED:
                setattr(total, name, getattr(total, name) + getattr(topic, name))
        return total

    def largest_topics(self) -> list[TopicCounts]:
        return sorted(self.topics.values(), key=lambda topic: (-topic.log_bytes, topic.topic))

    def as_json(self) -> dict[str, Any]:
        total = self.total
        return {
            "segments": total.segments,
            "log_bytes": total.log_bytes,
            "batches": total.batches,
            "by_status": total.by_status,
            "by_published": total.by_published,
            "aborted_transactions": total.aborted_transactions,
            "by_transaction_index": total.by_transaction_index,
            "kept": self.kept,
            "topics": [
                {name: getattr(topic, name) for name in TopicCounts.__dataclass_fields__}
                for topic in self.largest_topics()
            ],
            "not_well_count": total.problems,
            "not_well": [asdict(segment) for segment in self.problems],
        }


def count_unknown_facts(rows: Values) -> dict[str, int]:
    """How many segments lack each of `FillableFacts`, for the counts of a build."""
    return {name: rows[name].null_count for name in FillableFacts.names()}
