"""A compaction task: a partition as the catalog has it, how to compact it, and whether to apply the changes; and what
becomes of each index file: the action, its outcome, and why a file stays.
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
from kidxlib.storage.directory import Directory
from kidxlib.storage.location import FileVersion


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


class ChangeAction(enum.StrEnum):
    """What to do with files."""

    TRIM = "trim"
    COARSEN = "coarsen"
    DENSIFY = "densify"  # the way back, to a smaller interval
    REMOVE = "remove"


class ChangeOutcome(enum.StrEnum):
    """What became of files."""

    PLANNED = "planned"  # nothing was written
    WRITTEN = "written"
    UNCHANGED = "unchanged"  # the new interval gives the same bytes, or a run before this one did not record them
    REMOVED = "removed"
    KEPT = "kept"


#: Why files stay that were to change, besides what keeps a recovery with that interval from an end (`ScanEnd.reason`)
#: and what is wrong with an index (`audit.Finding.reason`).
LOG_CHANGED: Final = "log-changed"  # since it was built
UNREADABLE: Final = "unreadable"
UNFINISHED: Final = "unfinished"  # the build did not come to its transactions
NOT_LOCKED: Final = "not-locked"  # it came into a log dir where there was nothing to do before: run again
NOT_OURS: Final = "not-ours"  # in a log dir, and the catalog does not know it: a broker removes it when it starts


@dataclass(frozen=True, slots=True)
class Place:
    """A file; `log_dir` is the Kafka log dir where it stands beside logs, None where it does not."""

    path: str
    log_dir: str | None


@dataclass(frozen=True, slots=True)
class Coarsened:
    """Both indexes of a segment, at the old and at the new interval.

    Attributes:
        version: of the log.
        cost_before: None where the `.index` is not what the catalog says.
        cost_after, offset_index, time_index: the new ones; None if the old ones stay, or the new ones are not made yet.
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
    """What becomes of one file, or of both indexes of a segment.

    Attributes:
        base_offset: None if the file is not a segment's.
        place: of the file; for both indexes the place of the `.index`.
        reason: why the file is removed, or why it stays; None otherwise.
        bytes_before: size of the file, or of both indexes.
        bytes_after: their size after the change; None if that was not asked for.
        coarsened: None if no index is made sparser or denser.
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
