"""Decides on a plan's partition again before any file is renamed, from its log dir as it is now and by the clock.

A plan may be an hour old. So everything that was checked for the plan is checked again: the offsets in the log dir's
checkpoint files, the topic's id, and the identity of each log. Logs that stay are checked too, because a limit of size
counts them. If anything has changed, nothing of the partition is deleted. Then everything is decided again, as
`UnifiedLog.deleteOldSegments` would now, and segments that it would not delete now stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kidxlib.errors import KidxError
from kidxlib.format.segment_files import DELETED_SUFFIX, LOG_SUFFIX, parse_segment_log, segment_file
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.retention.decide import Bounds, Segments, decide
from kidxlib.retention.plan import DeletionOutcome, Kept, PartitionDeletion, PartitionThen, SegmentThen
from kidxlib.retention.policy import REASONS, TopicPolicy
from kidxlib.storage.location import location
from kidxlib.storage.log_dir import read_topic_id
from kidxlib.storage.remover import Remover
from kidxlib.storage.small_files import Checkpoints, read_checkpoints
from kidxlib.text.times import NS_PER_MS


def _change_of(remover: Remover, deletion: PartitionDeletion, then: PartitionThen) -> str | None:
    """What has changed in a partition; None if nothing has."""
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


def _shown(value: object) -> object:
    return "not there" if value is None else value


class _LogNow(NamedTuple):
    """A segment's log as it is now."""

    path: str
    status: os.stat_result


def _find_log(remover: Remover, deletion: PartitionDeletion, segment: SegmentThen, *, is_going: bool) -> _LogNow | None:
    """A log, or the log that an earlier run has renamed if it was to be deleted; None if there is neither."""
    path, name = deletion.log_path(segment.file), segment_file(segment.file.base_offset, LOG_SUFFIX)
    for suffix in ("", DELETED_SUFFIX) if is_going else ("",):
        if (status := remover.status(deletion.segments_directory, name + suffix)) is not None:
            return _LogNow(path + suffix, status)
    return None


def _log_differences(deletion: PartitionDeletion, logs: Sequence[tuple[SegmentThen, _LogNow | None]]) -> dict[int, str]:
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
    deletion: PartitionDeletion, logs: Sequence[tuple[SegmentThen, _LogNow | None]], differences: Mapping[int, str]
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


def reconsidered(
    remover: Remover, deletion: PartitionDeletion, then: PartitionThen, policy: TopicPolicy, now_ms: int
) -> PartitionDeletion:
    """The deletion, with the segments that must stay by the state of the partition and the topic's `policy` now. The
    caller locks the log dir.
    """
    try:
        changed = _change_of(remover, deletion, then)
        if changed is None:
            going = {segment.base_offset for segment in deletion.segments}
            logs = [
                (segment, _find_log(remover, deletion, segment, is_going=segment.file.base_offset in going))
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


def _not_due(
    deletion: PartitionDeletion,
    present: Sequence[tuple[SegmentThen, os.stat_result]],
    then: PartitionThen,
    policy: TopicPolicy,
    now_ms: int,
) -> dict[int, Kept]:
    """The first planned segment that would not be deleted now, and why; all segments after it stay."""
    if not present:
        return {}
    segments = Segments(
        base_offsets=np.array([segment.file.base_offset for segment, _ in present], np.int64),
        sizes=np.array([min(segment.counted_bytes, status.st_size) for segment, status in present], np.int64),
        max_timestamps=np.array([segment.max_timestamp_ms for segment, _ in present], np.int64),
        mtimes_ms=np.array([status.st_mtime_ns // NS_PER_MS for _, status in present], np.int64),
        fully_read=np.array([segment.fully_read for segment, _ in present], np.bool_),
    )
    bounds = Bounds.at_start(
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
