"""The tasks of a build or an audit: segments to read, and partitions to finish once theirs were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from kidxlib.catalog.segments import IntervalSource
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.indexing.source import SegmentFile
from kidxlib.recovery.options import RecoverOptions
from kidxlib.storage.location import Directory

if TYPE_CHECKING:  # whoever reads no log does not wait for compiled loops
    from kidxlib.recovery.kept_scans import KeptScans
    from kidxlib.recovery.partition_fold import FoldState, ScannedSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to finish.

    Attributes:
        key: its source, topic and number.
        segments_directory: where its logs are, and a broker's snapshots.
        index_directory: where its index files go.
        in_place: both are the same directory, so a broker's file is kept if no better one is certain.
        snapshots: publish producer snapshots too.
        epochs: publish the leader epoch checkpoint too.
        only: names of the files that may be written or removed; None for all.
        recovered: base offsets of segments that a broker would recover as it starts. Their transaction indexes, and the
            producer snapshots behind them, become those that it would make, also where what is there may know more.
        start: the state after the segments that are not folded again; None where all are.
        earlier: the base offsets of those segments that are present.
    """

    key: PartitionKey
    segments_directory: Directory
    index_directory: Directory
    in_place: bool
    snapshots: bool
    epochs: bool
    only: frozenset[str] | None = None
    recovered: frozenset[int] = frozenset()
    start: FoldState | None = None
    earlier: Sequence[int] = ()

    def may_write(self, name: str) -> bool:
        return self.only is None or name in self.only


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """One segment of a partition to finish, in the order of base offsets.

    Attributes:
        present: it is in the source. A segment missing from the source still contributes its events.
        published: its index files were published, so its transaction index may be.
    """

    scanned: ScannedSegment
    present: bool
    published: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """One segment to read, and what its indexes are built with and where they go; or should be like, and are.

    Attributes:
        threads: how many may work on it at the same time.
    """

    segment: SegmentFile
    options: RecoverOptions
    index_directory: Directory
    threads: int = 1

    @property
    def log_bytes(self) -> int:
        """The log's bytes as it was listed; 0 if it could not be looked at."""
        return self.segment.version.size if self.segment.version else 0

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildTask(ScanTask):
    """One segment to read and to index.

    Attributes:
        topic_id: from `partition.metadata`; None where there is none.
        interval_source: who chose the interval of its indexes, `settings` (or an option) or `compaction`.
        in_place: they go to the segment's own directory, so new files take the log's owner, group and mode.
        publish_truncated: publish the index of a valid prefix too.
        only: names of the files that may be written; None for all.
        all_facts: read all bytes for facts that headers do not give.
        kept_scans: of its partition; None where none were kept.
    """

    topic_id: str | None
    interval_source: IntervalSource
    in_place: bool
    publish_truncated: bool
    only: frozenset[str] | None = None
    all_facts: bool = False
    kept_scans: KeptScans | None = None
