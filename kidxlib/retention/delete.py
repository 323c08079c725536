"""Applies a retention plan to an archive: deletes the segments that it names (`PartitionDeletion`), with their index
and auxiliary files.

As in Kafka (`LocalLog.deleteSegmentFiles`), every file is first renamed to `.deleted`, the log before the others, and
removed some time later. kidx removes the log last, so that it exists as long as any file of its segment remains. If a
run is stopped at any point and repeated, the final state is the same. The oldest segments are deleted first, so that
the rest is always a log without an offset gap.

Leader epochs are cut at the new start of the log (`UnifiedLog.maybeIncrementLogStartOffset`), so that an epoch that
begins before the first log means that logs were lost. The log start needs no checkpoint: a broker takes the first
segment's, if `log-start-offset-checkpoint` has no later one (`LogLoader.load`).

A plan may be an hour old. So before any file of a partition is renamed, everything that was checked for the plan is
checked again by the clock and the log dir as it is now (`reconsidered`): the offsets in the log dir's checkpoint files,
the topic's id, and the identity of each log. Logs that stay are checked too, because a limit of size counts them. If
anything has changed, nothing of the partition is deleted. Then everything is decided again, as
`UnifiedLog.deleteOldSegments` would now, and segments that it would not delete now stay.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kidxlib.errors import CheckpointError, KidxError, PublishError, UsageError
from kidxlib.format.checkpoint_files import LEADER_EPOCH_CHECKPOINT, LeaderEpochs, parse_epoch_entries
from kidxlib.format.segment_files import AUXILIARY_SUFFIXES, DELETED_SUFFIX, LOG_SUFFIX, parse_segment_log, segment_file
from kidxlib.format.topic_partition import PartitionKey, TopicPartition
from kidxlib.retention.decide import RetentionBounds, SegmentColumns, decide
from kidxlib.retention.policy import REASONS, TopicPolicy, Written
from kidxlib.storage.location import Directory, location
from kidxlib.storage.log_dir import Checkpoints, read_checkpoints, read_topic_id
from kidxlib.storage.packed import is_packed
from kidxlib.storage.publisher import FileOwner, publish_if, sweep_staging_files
from kidxlib.storage.remover import Remover, in_the_way
from kidxlib.storage.small_files import read_file
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
_STOPPING: Final = (
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

_NO_END: Final = 2**63 - 1


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAsPlanned:
    """A segment of a planned partition, whether it is to be deleted or to stay; see `SegmentColumns`.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAsPlanned:
    """A partition as it was planned.

    Attributes:
        topic_id: None if there was no `partition.metadata`.
        log_start_offset, high_watermark: None if checkpoint files did not have them.
        segments: all of it, by base offset.
    """

    topic_id: str | None
    log_start_offset: int | None
    high_watermark: int | None
    segments: Sequence[SegmentAsPlanned]

    @property
    def written(self) -> Written:
        """When the partition was last written to before its deletion was planned."""
        written_ms = max((segment.file.log_mtime_ns or 0) // NS_PER_MS for segment in self.segments)
        last_ms = max(segment.max_timestamp_ms for segment in self.segments)
        return Written(written_ms, last_ms if last_ms >= 0 else written_ms)


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """What was done with a segment; `detail` says how it differs from the plan, or why it stays."""

    key: PartitionKey
    segment: PlannedSegment
    outcome: DeletionOutcome
    detail: str | None = None


def log_dirs_of_deletions(deletions: Sequence[PartitionDeletion]) -> list[Path]:
    """The log dirs in which segments are deleted, to be locked before."""
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


def reconsidered(
    remover: Remover, deletion: PartitionDeletion, then: PartitionAsPlanned, policy: TopicPolicy, now_ms: int
) -> PartitionDeletion:
    """The deletion, with the segments that must stay by the state of the partition and the topic's `policy` now. The
    caller locks the log dir.
    """
    try:
        changed = _change_of(remover, deletion, then)
        if changed is None:
            going = {segment.base_offset for segment in deletion.segments}
            logs = [
                (segment, _find_log(remover, deletion, segment.file, is_going=segment.file.base_offset in going))
                for segment in then.segments
            ]
            if differences := _log_differences(deletion, logs):
                return _skipped(deletion, logs, differences)
            present = [(segment, log.status) for segment, log in logs if log is not None]
            return replace(deletion, kept=_not_due(deletion, present, then, policy, now_ms))
    except (KidxError, OSError) as error:
        changed = str(error)
    kept = Kept(DeletionOutcome.CHANGED, f"{deletion.segments_directory}: {changed}: run build_index and plan again")
    return replace(deletion, kept={deletion.segments[0].base_offset: kept})


def _change_of(remover: Remover, deletion: PartitionDeletion, then: PartitionAsPlanned) -> str | None:
    directory = deletion.segments_directory
    topic_partition = TopicPartition(deletion.key[1], deletion.key[2])
    checkpoints: Checkpoints = read_checkpoints(location(directory.root))
    values = (
        ("topic id", then.topic_id, read_topic_id(location(str(directory)))),
        ("log start offset", then.log_start_offset, (checkpoints.log_start_offsets or {}).get(topic_partition)),
        ("high watermark", then.high_watermark, (checkpoints.high_watermarks or {}).get(topic_partition)),
    )
    for name, before, now in values:
        if before != now:
            return f"{name} {_shown(now)}, planned with {_shown(before)}"
    known = {segment.file.base_offset for segment in then.segments}
    last = max((segment.base_offset for segment in deletion.segments), default=-1)
    for name in sorted(remover.names(directory)):
        base_offset = parse_segment_log(name)
        if base_offset is not None and base_offset <= last and base_offset not in known:
            return f"{name}: the plan does not know it"
    return None


def _not_due(
    deletion: PartitionDeletion,
    present: Sequence[tuple[SegmentAsPlanned, os.stat_result]],
    then: PartitionAsPlanned,
    policy: TopicPolicy,
    now_ms: int,
) -> dict[int, Kept]:
    """The first planned segment that would not be deleted now, and why; all segments after it stay."""
    if not present:
        return {}
    segments = SegmentColumns(
        base_offsets=np.array([segment.file.base_offset for segment, _ in present], np.int64),
        sizes=np.array([min(segment.counted_bytes, status.st_size) for segment, status in present], np.int64),
        max_timestamps=np.array([segment.max_timestamp_ms for segment, _ in present], np.int64),
        mtimes_ms=np.array([status.st_mtime_ns // NS_PER_MS for _, status in present], np.int64),
        fully_read=np.array([segment.fully_read for segment, _ in present], np.bool_),
    )
    bounds = RetentionBounds.at_start(
        int(segments.base_offsets[0]),
        present[-1][0].next_offset,
        log_start_offset=then.log_start_offset,
        high_watermark=then.high_watermark,
    )
    if (asked := policy.log_start_asked_for(deletion.key[2])) is not None:
        bounds = bounds.deleted_up_to(asked)
    decisions = decide(segments, bounds, policy, now_ms)
    if decisions.deleted == len(segments):
        return {}
    first_to_stay = int(segments.base_offsets[decisions.deleted])
    reasons = dict(zip(segments.base_offsets.tolist(), decisions.reasons.tolist(), strict=True))
    for segment in deletion.segments:
        if segment.base_offset >= first_to_stay and segment.base_offset in reasons:
            reason = REASONS[reasons[segment.base_offset]].value
            detail = f"{deletion.log_path(segment)}: {reason}, decided on again"
            return {segment.base_offset: Kept(DeletionOutcome.NOT_DUE, detail)}
    return {}


def _shown(value: object) -> object:
    return "not there" if value is None else value


class _LogNow(NamedTuple):
    path: str
    status: os.stat_result


def _find_log(
    remover: Remover, deletion: PartitionDeletion, segment: PlannedSegment, *, is_going: bool
) -> _LogNow | None:
    """A log, or the log that an earlier run has renamed if it was to be deleted; None if there is neither."""
    path, name = deletion.log_path(segment), segment_file(segment.base_offset, LOG_SUFFIX)
    for suffix in ("", DELETED_SUFFIX) if is_going else ("",):
        if (status := remover.status(deletion.segments_directory, name + suffix)) is not None:
            return _LogNow(path + suffix, status)
    return None


def _log_differences(
    deletion: PartitionDeletion, logs: Sequence[tuple[SegmentAsPlanned, _LogNow | None]]
) -> dict[int, str]:
    """How segments differ from the plan, by base offset. The plan has no facts of a log that could not be read."""
    differences = {}
    for segment, log in logs:
        file = segment.file
        if log is None:
            if not segment.deleted:
                differences[file.base_offset] = (
                    f"{deletion.log_path(file)}: not there as a file; planned as {file.log_bytes} bytes: run "
                    "build_index and plan again"
                )
        elif file.log_mtime_ns is not None and file.differs(log.status):
            differences[file.base_offset] = file.difference(log.path, log.status)
    return differences


def _skipped(
    deletion: PartitionDeletion, logs: Sequence[tuple[SegmentAsPlanned, _LogNow | None]], differences: Mapping[int, str]
) -> PartitionDeletion:
    """The deletion of nothing: every segment that differs from the plan is reported, and the others are left."""
    kept = {
        segment.file.base_offset: Kept(DeletionOutcome.CHANGED, difference)
        if (difference := differences.get(segment.file.base_offset)) is not None
        else Kept(DeletionOutcome.LEFT, None)
        for segment, log in logs
        if log is not None or segment.file.base_offset in differences
    }
    going = {segment.base_offset for segment in deletion.segments}
    others = tuple(
        (segment.file, kept[segment.file.base_offset])
        for segment, _ in logs
        if segment.file.base_offset in differences and segment.file.base_offset not in going
    )
    return replace(deletion, kept=kept, others=others)


def _outcome_of(
    remover: Remover, deletion: PartitionDeletion, segment: PlannedSegment, last: int | None
) -> tuple[DeletionOutcome, str | None]:
    """The outcome for a segment, from its log as it is now, or from the log that an earlier run has renamed."""
    log = _find_log(remover, deletion, segment, is_going=True)
    if log is None:
        return DeletionOutcome.GONE, None
    if segment.differs(log.status):
        return DeletionOutcome.CHANGED, segment.difference(log.path, log.status)
    is_last = segment.base_offset == last and not log.path.endswith(DELETED_SUFFIX)
    return DeletionOutcome.LAST if is_last else DeletionOutcome.DELETED, None


def _rename_files(
    remover: Remover, deletion: PartitionDeletion, segment: PlannedSegment, names: Mapping[Directory, set[str]]
) -> None:
    """Give all files of a segment the names of deleted files, the log first."""
    _ensure_names_free(deletion, segment, names)
    log = segment_file(segment.base_offset, LOG_SUFFIX)
    if log in names[deletion.segments_directory]:
        remover.mark_deleted(deletion.segments_directory, log)
    for directory, name in _auxiliary_files(deletion, segment):
        if name in names[directory]:
            remover.mark_deleted(directory, name)


def _ensure_names_free(
    deletion: PartitionDeletion, segment: PlannedSegment, names: Mapping[Directory, set[str]]
) -> None:
    """Check, before a segment's files are renamed, that no foreign file has the name of a deleted one. The log is
    renamed first. While it has its name, no earlier run has renamed any file of the segment, so each file with a
    deleted name is foreign. Afterwards such a file is kidx's, unless the file to be renamed is there too.
    """
    log = (deletion.segments_directory, segment_file(segment.base_offset, LOG_SUFFIX))
    is_new = log[1] in names[log[0]]
    for directory, name in (log, *_auxiliary_files(deletion, segment)):
        if name + DELETED_SUFFIX in names[directory] and (is_new or name in names[directory]):
            raise in_the_way(directory, name + DELETED_SUFFIX)


def _remove_files(remover: Remover, segments: Sequence[tuple[PartitionDeletion, PlannedSegment]]) -> None:
    """Remove the renamed files of segments, their logs last."""
    for deletion, segment in segments:
        for directory, name in _auxiliary_files(deletion, segment):
            remover.remove(directory, name + DELETED_SUFFIX)
    remover.flush()
    for deletion, segment in segments:
        remover.remove(deletion.segments_directory, segment_file(segment.base_offset, LOG_SUFFIX + DELETED_SUFFIX))
    remover.flush()


def _auxiliary_files(deletion: PartitionDeletion, segment: PlannedSegment) -> Iterator[tuple[Directory, str]]:
    for directory in deletion.directories:
        for suffix in AUXILIARY_SUFFIXES:
            yield directory, segment_file(segment.base_offset, suffix)


def delete_planned_segments(
    deletions: Sequence[PartitionDeletion], record: Callable[[Sequence[SegmentResult]], None], wait: Callable[[], None]
) -> list[SegmentResult]:
    """Delete segments: rename their files, record the outcomes, wait, and remove the files. The caller locks the log
    dirs.

    If a file cannot be renamed, its partition keeps the remaining segments; other partitions continue. If leader epochs
    cannot be cut, the renamed files of their partition stay renamed, for the next run. `record` gets the outcomes of
    segments once they are durable, before any file is removed; `wait` returns when renamed files may be removed.
    """
    with Remover() as remover:
        results = [
            result
            for deletion in deletions
            for result in _with_epochs_cut(remover, deletion, list(_results(remover, deletion)))
        ]
        remover.flush()
        record(results)
        deleted = {(result.key, result.segment) for result in results if result.outcome is DeletionOutcome.DELETED}
        if deleted:
            wait()
            renamed = [
                (deletion, segment)
                for deletion in deletions
                for segment in deletion.segments
                if (deletion.key, segment) in deleted
            ]
            _remove_files(remover, renamed)
        return results


def _results(remover: Remover, deletion: PartitionDeletion) -> Iterator[SegmentResult]:
    try:
        names = _names(remover, deletion)
    except PublishError as error:
        first, *others = deletion.segments
        yield SegmentResult(deletion.key, first, DeletionOutcome.CHANGED, str(error))
        for segment in others:
            yield SegmentResult(deletion.key, segment, DeletionOutcome.AFTER_KEPT)
        return
    logs = [parse_segment_log(name) for name in names[deletion.segments_directory]]
    last = max((base_offset for base_offset in logs if base_offset is not None), default=None)
    stopped_by: DeletionOutcome | None = None
    for segment in deletion.segments:
        if (kept := deletion.kept.get(segment.base_offset)) is not None:
            outcome, detail = kept.outcome, kept.detail
        elif stopped_by is not None:
            outcome, detail = _after_kept(deletion, segment, stopped_by)
        else:
            outcome, detail = _delete_segment(remover, deletion, segment, names, last)
        if stopped_by is None and outcome in _STOPPING:
            stopped_by = outcome
        yield SegmentResult(deletion.key, segment, outcome, detail)
    for segment, result in deletion.others:
        yield SegmentResult(deletion.key, segment, result.outcome, result.detail)


def _after_kept(
    deletion: PartitionDeletion, segment: PlannedSegment, stopped_by: DeletionOutcome
) -> tuple[DeletionOutcome, str | None]:
    """The outcome of a segment after one that stays. After the last log there is none, so somebody has removed it."""
    if stopped_by is not DeletionOutcome.LAST:
        return DeletionOutcome.AFTER_KEPT, None
    return DeletionOutcome.CHANGED, (
        f"{deletion.log_path(segment)}: not there as a file, and one before it is: run build_index and plan again"
    )


def _delete_segment(
    remover: Remover,
    deletion: PartitionDeletion,
    segment: PlannedSegment,
    names: Mapping[Directory, set[str]],
    last: int | None,
) -> tuple[DeletionOutcome, str | None]:
    try:
        outcome, detail = _outcome_of(remover, deletion, segment, last)
    except PublishError as error:
        return DeletionOutcome.CHANGED, str(error)
    if outcome is DeletionOutcome.DELETED:
        try:
            _rename_files(remover, deletion, segment, names)
        except PublishError as error:  # if its log was renamed, the next run continues with the other files
            return DeletionOutcome.NOT_RENAMED, str(error)
    return outcome, detail


def _with_epochs_cut(
    remover: Remover, deletion: PartitionDeletion, results: Sequence[SegmentResult]
) -> Iterator[SegmentResult]:
    """The outcomes after leader epochs were cut, so that they begin where the log does."""
    why: str | None = None
    if any(result.outcome is DeletionOutcome.DELETED for result in results):
        try:
            _cut_epochs(remover, deletion.segments_directory)
        except PublishError as error:
            why = str(error)
    for result in results:
        if why is not None and result.outcome is DeletionOutcome.DELETED:
            yield replace(result, outcome=DeletionOutcome.EPOCHS_NOT_CUT, detail=why)
        else:
            yield result


def _cut_epochs(remover: Remover, directory: Directory) -> None:
    """Cut a partition's `leader-epoch-checkpoint` at the first log. A missing file, or one that a broker cannot read
    either, stays as it is.
    """
    logs = [offset for name in remover.names(directory) if (offset := parse_segment_log(name)) is not None]
    begins, status = min(logs, default=None), remover.status(directory, LEADER_EPOCH_CHECKPOINT)
    content = None if status is None else read_file(directory, LEADER_EPOCH_CHECKPOINT)
    if begins is None or status is None or not content:
        return
    try:
        entries = parse_epoch_entries(content, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
    except CheckpointError:
        return
    epochs = LeaderEpochs(entries)
    cut = epochs.within(begins, _NO_END)
    if cut.entries != epochs.entries:
        sweep_staging_files(directory, time.time_ns())  # files of killed runs, as the log dir is locked
        publish_if(directory, LEADER_EPOCH_CHECKPOINT, cut.checkpoint(), content.__eq__, FileOwner.of(status))


def _names(remover: Remover, deletion: PartitionDeletion) -> dict[Directory, set[str]]:
    if not remover.is_there(deletion.segments_directory):  # so nobody knows that its segments are missing
        raise PublishError(
            f"{deletion.segments_directory}: no such directory; is it mounted? run build_index and plan again"
        )
    return {directory: remover.names(directory) for directory in deletion.directories}
