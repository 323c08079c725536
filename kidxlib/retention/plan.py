"""A retention plan as it is applied: what to delete of a partition, and each segment as it was when it was planned."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kidxlib.errors import UsageError
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.retention.outcomes import Kept
from kidxlib.storage.directory import Directory
from kidxlib.text.times import NS_PER_MS


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment as it was when it was planned, without a modification time if its log could not be read."""

    base_offset: int
    log_bytes: int
    log_mtime_ns: int | None
    log_inode: int | None = None

    def differs(self, status: os.stat_result) -> bool:
        """Whether a file differs from the planned log; by size and modification time if the plan has no inode."""
        return (status.st_size, status.st_mtime_ns) != (self.log_bytes, self.log_mtime_ns) or (
            self.log_inode is not None and status.st_ino != self.log_inode
        )

    def difference(self, path: str, status: os.stat_result) -> str:
        """What a file is, and what was planned, as a text."""
        return (
            f"{path}: {status.st_size} bytes, modified at {status.st_mtime_ns} ns, inode {status.st_ino}; planned as "
            f"{self.log_bytes} bytes, {self.log_mtime_ns} ns, inode {self.log_inode}: run build_index and plan again"
        )


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """What to delete of a partition.

    Attributes:
        index_directory: may be the same as that of the segments.
        segments: by base offset.
        kept: those of them that stay, as was found before anything was renamed; all segments after one stay, too.
        others: what was found of segments that were planned to stay, to be reported.
    """

    key: PartitionKey
    segments_directory: Directory
    index_directory: Directory
    segments: tuple[PlannedSegment, ...]
    kept: Mapping[int, Kept] = field(default_factory=dict)
    others: tuple[tuple[PlannedSegment, Kept], ...] = ()

    @property
    def directories(self) -> tuple[Directory, ...]:
        """The directories where index and auxiliary files may be."""
        same = str(self.segments_directory) == str(self.index_directory)
        return (self.segments_directory,) if same else (self.segments_directory, self.index_directory)

    def log_path(self, segment: PlannedSegment) -> str:
        """The path of a segment's log."""
        return f"{self.segments_directory}/{segment_file(segment.base_offset, LOG_SUFFIX)}"


def log_dirs_of(deletions: Sequence[PartitionDeletion]) -> list[Path]:
    """The log dirs to lock before segments are deleted.

    Raises:
        UsageError: a log dir has none of its partitions: nothing is mounted there, and no lock file is made.
    """
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
        counted_bytes: of its log, as a broker has it.
        max_timestamp_ms: below 0 where there is none.
        fully_read: the facts were those of the whole segment.
        deleted: an applied plan has deleted it, so it is rightly missing.
    """

    file: PlannedSegment
    next_offset: int
    counted_bytes: int
    max_timestamp_ms: int
    fully_read: bool
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """Until when a partition was written, in ms since the epoch.

    Attributes:
        written_ms: by the files of its logs.
        last_ms: by its last record; where none has a time, as `written_ms`.
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
        """Until when it was written."""
        written_ms = max((segment.file.log_mtime_ns or 0) // NS_PER_MS for segment in self.segments)
        last_ms = max(segment.max_timestamp_ms for segment in self.segments)
        return Written(written_ms, last_ms if last_ms >= 0 else written_ms)
