"""What a build did: counts by topic and the segments that are not well, for the screen, for JSON, for the catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.filesize import decimal

from kidxlib.build import BuiltSegment
from kidxlib.console import print_detail, print_line, print_table, rate
from kidxlib.discover import SegmentFile
from kidxlib.publish import Published
from kidxlib.recover import ScanEnd, Status

#: Topics and segments shown on screen, and segments in the JSON object; their numbers are always there.
TOPICS_SHOWN: Final = 40
NOT_WELL_SHOWN: Final = 20
NOT_WELL_KEPT: Final = 1000

#: A segment that was deleted between listing and reading is nothing to worry about: retention does that.
WELL: Final = (Status.OK, Status.GONE)


def _not_well(by_status: Counter[str]) -> int:
    return sum(count for status, count in by_status.items() if status not in WELL)


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
    def not_well(self) -> int:
        return _not_well(self.by_status)

    def add(self, *, segments: int, log_bytes: int, batches: int, entries: int, status: str, published: str) -> None:
        """Count segments that ended in one status, and with which publishing did one thing."""
        self.segments += segments
        self.log_bytes += log_bytes
        self.batches += batches
        self.entries += entries
        self.by_status[status] += segments
        self.by_published[published] += segments

    def withdraw(self, status: str, segments: int = 1) -> None:
        """Count segments as quarantined that were counted with another status when they were read."""
        self.by_status[status] -= min(segments, self.by_status[status])
        self.by_status[Status.QUARANTINED] += segments


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWell:
    """A segment that is not well; fields as in the catalog."""

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
    not_well: list[NotWell] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # snapshots and checkpoints that stay as a broker left them

    def topic(self, name: str) -> TopicCounts:
        return self.topics.setdefault(name, TopicCounts(name))

    def add(self, built: BuiltSegment) -> None:
        """Count one segment."""
        facts = built.recovered.facts if built.recovered else None
        segment = built.task.segment
        self.topic(segment.topic_partition.topic).add(
            segments=1,
            log_bytes=built.version.size if built.version else 0,
            batches=facts.batches if facts else 0,
            entries=sum(index.entries for index in (built.offset_index, built.time_index) if index is not None),
            status=built.end.status,
            published=built.published,
        )
        if built.end.status not in WELL:
            self.add_not_well(segment, built.end)

    def add_not_well(self, segment: SegmentFile, end: ScanEnd) -> None:
        """Name one segment, as long as there is room."""
        if len(self.not_well) < NOT_WELL_KEPT:
            self.not_well.append(
                NotWell(
                    source=segment.source,
                    topic=segment.topic_partition.topic,
                    partition=segment.topic_partition.partition,
                    base_offset=segment.base_offset,
                    status=end.status,
                    reason=end.reason,
                    reason_position=end.position,
                    reason_detail=end.detail,
                    log_path=segment.path,
                )
            )

    def merge(self, other: Counts) -> None:
        """Add what another part of the run counted."""
        for topic in other.topics.values():
            counts = self.topic(topic.topic)
            counts.segments += topic.segments
            counts.log_bytes += topic.log_bytes
            counts.batches += topic.batches
            counts.entries += topic.entries
            counts.aborted_transactions += topic.aborted_transactions
            for mine, theirs in (
                (counts.by_status, topic.by_status),
                (counts.by_published, topic.by_published),
                (counts.by_transaction_index, topic.by_transaction_index),
            ):
                mine.update(theirs)
        self.kept.extend(other.kept[: NOT_WELL_KEPT - len(self.kept)])
        self.not_well.extend(other.not_well[: NOT_WELL_KEPT - len(self.not_well)])

    @property
    def segments(self) -> int:
        return sum(topic.segments for topic in self.topics.values())

    @property
    def log_bytes(self) -> int:
        return sum(topic.log_bytes for topic in self.topics.values())

    @property
    def batches(self) -> int:
        return sum(topic.batches for topic in self.topics.values())

    @property
    def by_status(self) -> Counter[str]:
        return sum((topic.by_status for topic in self.topics.values()), Counter())

    @property
    def by_published(self) -> Counter[str]:
        return sum((topic.by_published for topic in self.topics.values()), Counter())

    @property
    def aborted_transactions(self) -> int:
        return sum(topic.aborted_transactions for topic in self.topics.values())

    @property
    def by_transaction_index(self) -> Counter[str]:
        return sum((topic.by_transaction_index for topic in self.topics.values()), Counter())

    @property
    def not_well_count(self) -> int:
        return _not_well(self.by_status)

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
            "not_well_count": self.not_well_count,
            "not_well": [asdict(segment) for segment in self.not_well],
        }


def print_counts(title: str, counts: Counts) -> None:
    """Show a row per topic and what is not well."""
    topics = counts.largest_topics()
    if topics:
        print_table(
            title,
            ("topic", "segments", "bytes", "batches", "entries", "aborted", "written", "unchanged", "kept", "not well"),
            [
                (
                    topic.topic,
                    topic.segments,
                    topic.log_bytes,
                    topic.batches,
                    topic.entries,
                    topic.aborted_transactions,
                    *(topic.by_published[kind] for kind in (Published.WRITTEN, Published.UNCHANGED, Published.KEPT)),
                    topic.not_well,
                )
                for topic in topics[:TOPICS_SHOWN]
            ],
            text_columns=1,
        )
    _print_more(len(topics) - TOPICS_SHOWN, "topics")
    for segment in counts.not_well[:NOT_WELL_SHOWN]:
        print_line(
            f"{segment.status}: {segment.log_path}: byte {segment.reason_position or 0}: "
            f"{segment.reason}: {segment.reason_detail}"
        )
    _print_more(counts.not_well_count - NOT_WELL_SHOWN, "segments that are not well")
    if counts.by_published[Published.KEPT]:
        print_line(
            f"kept: {counts.by_published[Published.KEPT]:,} truncated segments keep the index files they have: beside "
            "a corrupt log a new index would suppress the broker's own cut at its next clean start "
            "(--accept-truncated writes them all the same)"
        )
    if counts.by_transaction_index[Published.KEPT]:
        print_line(
            f"kept: {counts.by_transaction_index[Published.KEPT]:,} .txnindex files stay as they are: which "
            "transactions were open where their segments begin is not known, and an index that lacks aborted ones "
            "would show their records to read-committed consumers"
        )
    for name in counts.kept[:NOT_WELL_SHOWN]:
        print_line(f"kept: {name} stays as it is: what came before the segments at hand is not known")
    _print_more(len(counts.kept) - NOT_WELL_SHOWN, "files kept")


def print_skipped(counts: Iterable[tuple[str, int]]) -> None:
    """Show in one line how many files and directories are no segments, by reason, to whoever asks for details. Of those
    that nobody expects there each has had a warning.
    """
    text = ", ".join(f"{count:,} × {reason}" for reason, count in sorted(counts))
    if text:
        print_detail(f"skipped: {text}")


def print_rate(log_bytes: int, scan_seconds: float, seconds: float) -> None:
    """Show how fast logs were read, and how long the run took.

    Args:
        scan_seconds: in which logs were read, without what it took to begin.
    """
    read = f"read {decimal(log_bytes)} in {scan_seconds:.1f} s ({rate(log_bytes, scan_seconds)}); " if log_bytes else ""
    print_line(f"{read}{seconds:.1f} s in all")


def _print_more(count: int, what: str) -> None:
    if count > 0:
        print_line(f"… and {count:,} more {what}")
