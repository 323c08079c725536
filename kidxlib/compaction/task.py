"""A compaction task: a partition as the catalog has it, how to compact it, and whether to apply the changes. And the
changes: of each index file the action, the outcome, and why the file stays.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from kidxlib.catalog.segment_views import SegmentToCompact
from kidxlib.catalog.segments import IndexFile
from kidxlib.compaction.orphans import Delays
from kidxlib.compaction.policy import CompactionPolicy
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.recovery.coarsen import ScanCost
from kidxlib.storage.location import Directory, FileVersion
from kidxlib.storage.packed import PackedFile


class Mode(enum.Enum):
    """Whether to find changes only, to compute them, or to apply them."""

    LOOK = enum.auto()  # find which files would change, not how
    PLAN = enum.auto()
    APPLY = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """
    Attributes:
        segments_directory: the directory of the logs; None: not known.
        index_directory: the directory of the indexes; may be the same.
        segments: all in the catalog, also those missing from the source, by base offset.
    """

    key: PartitionKey
    segments_directory: Directory | None
    index_directory: Directory
    segments: tuple[SegmentToCompact, ...]

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The directories where the partition's index and auxiliary files may be."""
        if self.segments_directory is None or str(self.segments_directory) == str(self.index_directory):
            return (self.index_directory,)
        return self.segments_directory, self.index_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """
    Attributes:
        policy: which segments get which interval.
        trim: truncate files that end in zeros.
        orphans: remove files that nothing needs.
        now_ms: the time for the age of segments in rules.
        clock_ms: the machine's time, for the age of files to remove.
        locked: the log dirs in which files may be written.
    """

    policy: CompactionPolicy
    trim: bool
    orphans: bool
    now_ms: int
    clock_ms: int
    delays: Delays
    locked: frozenset[str] = frozenset()


class ChangeAction(enum.StrEnum):
    """What to do with files."""

    TRIM = "trim"
    COARSEN = "coarsen"
    DENSIFY = "densify"  # the reverse: a smaller interval
    REMOVE = "remove"


class ChangeOutcome(enum.StrEnum):
    """What was done with files."""

    PLANNED = "planned"  # nothing was written
    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the new interval gives the same bytes, or an earlier run wrote and did not record them
    REMOVED = "removed"
    KEPT = "kept"


#: The reasons why a file stays that was to change. Others are why a recovery with that interval fails
#: (`ScanEnd.reason`), and what is wrong with an index (`audit.Finding.reason`).
LOG_CHANGED: Final = "log-changed"  # since the build
UNREADABLE: Final = "unreadable"
UNFINISHED: Final = "unfinished"  # the build stopped before the segment's transactions
NOT_LOCKED: Final = "not-locked"  # it is new in a log dir that needed no lock when the run looked: run again
NOT_OURS: Final = "not-ours"  # it is in a log dir and not in the catalog: a broker removes it when it starts


@dataclass(frozen=True, slots=True)
class Place:
    """The path of a file; `log_dir` is its Kafka log dir if it is beside logs, else None."""

    path: str
    log_dir: str | None


@dataclass(frozen=True, slots=True)
class Coarsened:
    """Both indexes of a segment, at the old and at the new interval.

    Attributes:
        version: of the log.
        cost_before: None if the `.index` is not the one in the catalog.
        cost_after, offset_index, time_index: of the new indexes; None if the old ones stay or the new ones are not made
            yet.
    """

    version: FileVersion
    interval_before: int
    interval_after: int
    cost_before: ScanCost | None = None
    cost_after: ScanCost | None = None
    offset_index: IndexFile | None = None
    time_index: IndexFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one file, or of both indexes of a segment.

    Attributes:
        base_offset: None if the file is not a segment's.
        place: of the file; for both indexes of the `.index`.
        reason: why the file is removed, or why it stays.
        bytes_before: the size of the file, or of both indexes.
        bytes_after: None if it was not computed.
        coarsened: None if no index is made sparser or denser.
        packed: files that a catalog is to keep, or to keep no longer, of this change and of others that settle with it.
    """

    key: PartitionKey
    base_offset: int | None
    action: ChangeAction
    outcome: ChangeOutcome
    place: Place
    reason: str | None = None
    bytes_before: int
    bytes_after: int | None
    coarsened: Coarsened | None = None
    packed: tuple[PackedFile, ...] = ()
