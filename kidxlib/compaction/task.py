"""A compaction task: a partition as the catalog has it, how to compact it, and whether to apply the changes."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.compaction.orphans import Delays
from kidxlib.compaction.policy import CompactionPolicy
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.storage.directory import Directory


class Mode(enum.Enum):
    """Whether to find changes only, to compute them, or to apply them."""

    LOOK = enum.auto()  # which files would change, and not how
    PLAN = enum.auto()
    APPLY = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """A partition to compact.

    Attributes:
        segments_directory: where its logs are; None if that is not known.
        index_directory: where its indexes are; may be the same.
        segments: those in the catalog, also those missing from the source, by base offset.
    """

    key: PartitionKey
    segments_directory: Directory | None
    index_directory: Directory
    segments: tuple[SegmentToCompact, ...]

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The directories where its index and auxiliary files may be."""
        if self.segments_directory is None or str(self.segments_directory) == str(self.index_directory):
            return (self.index_directory,)
        return self.segments_directory, self.index_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """How to compact.

    Attributes:
        policy: which segments get which interval.
        trim: truncate files that end in zeros.
        orphans: remove files that nothing needs.
        now_ms: the time by which segments are old enough for a rule.
        clock_ms: the machine's time, by which files are old enough to be removed.
        locked: the log dirs in which files may be written.
    """

    policy: CompactionPolicy
    trim: bool
    orphans: bool
    now_ms: int
    clock_ms: int
    delays: Delays
    locked: frozenset[str] = frozenset()
