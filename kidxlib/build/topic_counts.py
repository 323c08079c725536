"""What a build read and wrote, in numbers for each topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kidxlib.recovery.outcome import Status

#: The statuses of a segment without problems. One that was deleted between listing and reading has none: retention
#: does that.
PROBLEM_FREE: Final = (Status.OK, Status.GONE)


def count_problems(by_status: Counter[str]) -> int:
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
        return count_problems(self.by_status)

    def add(self, *, segments: int, log_bytes: int, batches: int, entries: int, status: str, published: str) -> None:
        """Count segments that ended in one status, and with which publishing did one thing."""
        self.segments += segments
        self.log_bytes += log_bytes
        self.batches += batches
        self.entries += entries
        self.by_status[status] += segments
        self.by_published[published] += segments

    def merge(self, other: TopicCounts) -> None:
        """Add what another part of the run counted of the topic."""
        self.segments += other.segments
        self.log_bytes += other.log_bytes
        self.batches += other.batches
        self.entries += other.entries
        self.aborted_transactions += other.aborted_transactions
        self.by_status.update(other.by_status)
        self.by_published.update(other.by_published)
        self.by_transaction_index.update(other.by_transaction_index)

    def withdraw(self, status: str, segments: int = 1) -> None:
        """Count segments as quarantined that were counted with another status when they were read."""
        self.by_status[status] -= min(segments, self.by_status[status])
        self.by_status[Status.QUARANTINED] += segments
