"""A retention plan as it is applied: the segments of a partition to delete, as they were when the plan was made, and
the outcome for each.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.storage.location import Directory
from kidxlib.storage.packed import is_packed
from kidxlib.text.times import NS_PER_MS


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment as it was when it was planned, without a modification time if its log could not be read."""

    base_offset: int
    log_bytes: int
    log_mtime_ns: int | None
    log_inode: int | None = None

    def differs(self, status: os.stat_result) -> bool:
        """Whether a file differs from the planned log: in size, modification time or, if the plan has one, inode."""
        return (status.st_size, status.st_mtime_ns) != (self.log_bytes, self.log_mtime_ns) or (
            self.log_inode is not None and status.st_ino != self.log_inode
        )

    def difference(self, path: str, status: os.stat_result) -> str:
        return (
            f"{path}: {status.st_size} bytes, modified at {status.st_mtime_ns} ns, inode {status.st_ino}; planned as "
            f"{self.log_bytes} bytes, {self.log_mtime_ns} ns, inode {self.log_inode}: run build_index and plan again"
        )


class DeletionOutcome(enum.StrEnum):
    """What was done with a segment of a plan."""

    DELETED = "deleted"
    LAST = "last"  # the last of its partition: a broker would roll first, here it stays
    CHANGED = "changed"  # not as it was planned: it stays, and all after it
    LEFT = "left"  # another segment of its partition is not as it was planned: the partition stays
    NOT_DUE = "not-due"  # decided on again, it would not be deleted now: it stays, and all after it
    NOT_RENAMED = "not-renamed"  # a file cannot be renamed, or its new name is taken: it stays, and all after it
    EPOCHS_NOT_CUT = "epochs-not-cut"  # renamed, and not removed: leader epochs before the log cannot be cut
    AFTER_KEPT = "behind"  # it is after one that stays
    GONE = "gone"  # its log was not there any more, nor under the name of a deleted file


#: All segments after one with such an outcome stay.
STOPPING: Final = (
    DeletionOutcome.LAST,
    DeletionOutcome.CHANGED,
    DeletionOutcome.LEFT,
    DeletionOutcome.NOT_DUE,
    DeletionOutcome.NOT_RENAMED,
)
#: Outcomes that a person should look into.
PROBLEMS: Final = (
    DeletionOutcome.CHANGED,
    DeletionOutcome.LEFT,
    DeletionOutcome.NOT_DUE,
    DeletionOutcome.NOT_RENAMED,
    DeletionOutcome.EPOCHS_NOT_CUT,
    DeletionOutcome.AFTER_KEPT,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a segment stays; None if another segment's detail says so."""

    outcome: DeletionOutcome
    detail: str | None


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """What to delete of a partition.

    Attributes:
        index_directory: may be the same as the segments' directory.
        segments: by base offset.
        kept: the segments that stay, as found before any file was renamed; all segments after one of them stay, too.
        others: findings on segments that were planned to stay, for the report.
    """

    key: PartitionKey
    segments_directory: Directory
    index_directory: Directory
    segments: tuple[PlannedSegment, ...]
    kept: Mapping[int, Kept] = field(default_factory=dict)
    others: tuple[tuple[PlannedSegment, Kept], ...] = ()

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The directories where index and auxiliary files may be. Packed ones are rows, which the run removes."""
        same = str(self.segments_directory) == str(self.index_directory) or is_packed(self.index_directory.root)
        return (self.segments_directory,) if same else (self.segments_directory, self.index_directory)

    def log_path(self, segment: PlannedSegment) -> str:
        return f"{self.segments_directory}/{segment_file(segment.base_offset, LOG_SUFFIX)}"


def log_dirs_of(deletions: Sequence[PartitionDeletion]) -> list[Path]:
    """The log dirs to lock before segments are deleted."""
    by_log_dir: dict[str, list[Directory]] = {}
    for deletion in deletions:
        by_log_dir.setdefault(deletion.segments_directory.root, []).append(deletion.segments_directory)
    for log_dir, directories in by_log_dir.items():
        if not any(os.path.lexists(str(directory)) for directory in directories):
            raise UsageError(
                f"{log_dir}: no partition of the plan is there, {directories[0].path} neither; is it mounted? If "
                "they are deleted for good, run build_index and plan again"
            )
    return [Path(log_dir) for log_dir in sorted(by_log_dir)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentThen:
    """A segment of a planned partition, whether it is to be deleted or to stay; see `Segments`.

    Attributes:
        counted_bytes: the log's size on a broker.
        max_timestamp_ms: below 0 if there is none.
        fully_read: whether the facts are those of the whole segment.
        deleted: whether an applied plan has deleted it, so that it is rightly missing.
    """

    file: PlannedSegment
    next_offset: int
    counted_bytes: int
    max_timestamp_ms: int
    fully_read: bool
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """When a partition was last written to, in ms since the epoch.

    Attributes:
        written_ms: by the files of the logs.
        last_ms: by the last record; as `written_ms` if no record has a time.
    """

    written_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionThen:
    """A partition as it was planned.

    Attributes:
        topic_id: None if there was no `partition.metadata`.
        log_start_offset, high_watermark: None if checkpoint files did not have them.
        segments: all of it, by base offset.
    """

    topic_id: str | None
    log_start_offset: int | None
    high_watermark: int | None
    segments: Sequence[SegmentThen]

    @property
    def written(self) -> Written:
        written_ms = max((segment.file.log_mtime_ns or 0) // NS_PER_MS for segment in self.segments)
        last_ms = max(segment.max_timestamp_ms for segment in self.segments)
        return Written(written_ms, last_ms if last_ms >= 0 else written_ms)
