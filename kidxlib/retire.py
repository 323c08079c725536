"""Carrying a retention plan out on an archive: the segments that it names go, with their side files.

As Kafka does it (`LocalLog.deleteSegmentFiles`): every file is renamed first, the log before its side files, and
removed some time later. Here the log is removed last, so that it tells as long as anything of its segment is left to
do: stopped at any point and run again, this ends in the same state. The oldest segments go first, so that what stays is
always a log without a hole.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kidxlib.errors import PublishError, UsageError
from kidxlib.names import DELETED_SUFFIX, LOG_SUFFIX, SIDE_FILE_SUFFIXES, parse_segment_log, segment_file
from kidxlib.plan import PartitionKey
from kidxlib.publish import Folder, Retirer


class Outcome(enum.StrEnum):
    """What became of a segment that a plan names."""

    DELETED = "deleted"
    LAST = "last"  # of its partition: a broker would roll first, here it stays
    CHANGED = "changed"  # not as it was planned: it stays, and all behind it
    NOT_DUE = "not-due"  # by what is known now it would not go: it stays, and all behind it
    NOT_RENAMED = "not-renamed"  # one of its files cannot be renamed: it stays, and all behind it
    BEHIND = "behind"  # one that stays
    GONE = "gone"  # it was not there any more, nor anything of it under the name of a deleted file


#: All behind such a segment stays.
_STOPPING: Final = (Outcome.LAST, Outcome.CHANGED, Outcome.NOT_DUE, Outcome.NOT_RENAMED)
#: What a person should look into.
NOT_WELL: Final = (Outcome.CHANGED, Outcome.NOT_DUE, Outcome.NOT_RENAMED, Outcome.BEHIND)


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment as it was when it was planned."""

    base_offset: int
    log_bytes: int
    log_mtime_ns: int
    log_inode: int | None = None

    def differs(self, status: os.stat_result) -> bool:
        """Whether a file is another than that; without an inode in the plan, by size and modification time."""
        return (status.st_size, status.st_mtime_ns) != (self.log_bytes, self.log_mtime_ns) or (
            self.log_inode is not None and status.st_ino != self.log_inode
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a segment that a plan names stays."""

    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True)
class Retirement:
    """What is to go of a partition.

    Attributes:
        index_folder: may be the same as that of the segments.
        segments: by base offset.
        kept: those of them that stay, as was found before anything was renamed; all behind one stay, too.
    """

    key: PartitionKey
    segments_folder: Folder
    index_folder: Folder
    segments: tuple[PlannedSegment, ...]
    kept: Mapping[int, Kept] = field(default_factory=dict)

    @property
    def folders(self) -> tuple[Folder, ...]:
        """Where side files may stand."""
        same = str(self.segments_folder) == str(self.index_folder)
        return (self.segments_folder,) if same else (self.segments_folder, self.index_folder)


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of a segment; `detail` says what was found where it is not what was planned."""

    key: PartitionKey
    segment: PlannedSegment
    outcome: Outcome
    detail: str | None = None


def log_dirs_of(retirements: Sequence[Retirement]) -> list[Path]:
    """The log dirs of what is to go, to be locked.

    Raises:
        UsageError: none of their partitions is there: nothing is mounted there, and no lock file is made in its place.
    """
    by_log_dir: dict[str, list[Folder]] = {}
    for retirement in retirements:
        by_log_dir.setdefault(retirement.segments_folder.root, []).append(retirement.segments_folder)
    for log_dir, folders in by_log_dir.items():
        if not any(os.path.lexists(str(folder)) for folder in folders):
            raise UsageError(
                f"{log_dir}: no partition of the plan is there, {folders[0].path} neither; is it mounted? where they "
                "are gone for good, build and plan again"
            )
    return [Path(log_dir) for log_dir in sorted(by_log_dir)]


def carry_out(
    retirements: Sequence[Retirement], record: Callable[[Sequence[Retired]], None], wait: Callable[[], None]
) -> list[Retired]:
    """Rename, record, wait, remove. The log dirs are locked by who calls this.

    A partition of which a file cannot be renamed keeps what is left of it; the others go on.

    Args:
        record: told what became of each segment once that is durable, and before anything is removed.
        wait: returns when what was renamed may be removed.

    Raises:
        PublishError: a file cannot be removed. Run again to go on.
    """
    with Retirer() as retirer:
        retired = [segment for retirement in retirements for segment in _retire(retirer, retirement)]
        retirer.flush()
        record(retired)
        deleted = {(found.key, found.segment) for found in retired if found.outcome is Outcome.DELETED}
        if deleted:
            wait()
            _remove(retirer, [(each, s) for each in retirements for s in each.segments if (each.key, s) in deleted])
        return retired


def _retire(retirer: Retirer, retirement: Retirement) -> Iterator[Retired]:
    try:
        names = _names(retirer, retirement)
    except PublishError as error:
        for segment in retirement.segments:
            yield Retired(retirement.key, segment, Outcome.CHANGED, str(error))
        return
    logs = [parse_segment_log(name) for name in names[retirement.segments_folder]]
    last = max((base_offset for base_offset in logs if base_offset is not None), default=None)
    stopped = False
    for segment in retirement.segments:
        try:
            outcome, detail = (Outcome.BEHIND, None) if stopped else _look(retirer, retirement, segment, last)
        except PublishError as error:
            outcome, detail = Outcome.CHANGED, str(error)
        if outcome is Outcome.DELETED:
            try:
                _rename(retirer, retirement, segment, names)
            except PublishError as error:  # where its log was renamed, the next run goes on with its side files
                outcome, detail = Outcome.NOT_RENAMED, str(error)
        stopped = stopped or outcome in _STOPPING
        yield Retired(retirement.key, segment, outcome, detail)


def _names(retirer: Retirer, retirement: Retirement) -> dict[Folder, set[str]]:
    if not retirer.is_there(retirement.segments_folder):  # so nobody knows that its segments are gone
        raise PublishError(f"{retirement.segments_folder}: no such folder; is it mounted? build and plan again")
    return {folder: retirer.names(folder) for folder in retirement.folders}


def _look(
    retirer: Retirer, retirement: Retirement, segment: PlannedSegment, last: int | None
) -> tuple[Outcome, str | None]:
    """What is to become of a segment, by its log as it is now: the log, or what was renamed by a run before this."""
    if (kept := retirement.kept.get(segment.base_offset)) is not None:
        return kept.outcome, kept.detail
    folder, log = retirement.segments_folder, segment_file(segment.base_offset, LOG_SUFFIX)
    for name in (log, log + DELETED_SUFFIX):
        status = retirer.status(folder, name)
        if status is None:
            continue
        if segment.differs(status):
            return Outcome.CHANGED, (
                f"{folder}/{name}: {status.st_size} bytes, modified at {status.st_mtime_ns} ns, inode {status.st_ino}; "
                f"planned as {segment.log_bytes} bytes, {segment.log_mtime_ns} ns, inode {segment.log_inode}: build "
                "again and plan again"
            )
        return (Outcome.LAST, None) if name == log and segment.base_offset == last else (Outcome.DELETED, None)
    return Outcome.GONE, None


def _rename(retirer: Retirer, retirement: Retirement, segment: PlannedSegment, names: dict[Folder, set[str]]) -> None:
    log = segment_file(segment.base_offset, LOG_SUFFIX)
    if log in names[retirement.segments_folder]:
        retirer.retire(retirement.segments_folder, log)
    for folder, name in _side_files(retirement, segment):
        if name in names[folder]:
            retirer.retire(folder, name)


def _remove(retirer: Retirer, segments: Sequence[tuple[Retirement, PlannedSegment]]) -> None:
    for retirement, segment in segments:
        for folder, name in _side_files(retirement, segment):
            retirer.remove(folder, name + DELETED_SUFFIX)
    retirer.flush()
    for retirement, segment in segments:
        retirer.remove(retirement.segments_folder, segment_file(segment.base_offset, LOG_SUFFIX + DELETED_SUFFIX))
    retirer.flush()


def _side_files(retirement: Retirement, segment: PlannedSegment) -> Iterator[tuple[Folder, str]]:
    for folder in retirement.folders:
        for suffix in SIDE_FILE_SUFFIXES:
            yield folder, segment_file(segment.base_offset, suffix)
