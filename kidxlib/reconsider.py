"""A plan's partition decided on again, by what its log dir says now and by the clock, before anything of it is renamed.

A plan may be an hour old. What was checked when it was made is looked at again: the offsets of the log dir's checkpoint
files, the topic's id, each log's identity. Where one of these has changed, nothing of the partition goes. Then all is
decided again, as `UnifiedLog.deleteOldSegments` would now, and what would not go now stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kidxlib.errors import KidxError
from kidxlib.log_dir import Checkpoints, read_checkpoints, read_topic_id
from kidxlib.names import DELETED_SUFFIX, LOG_SUFFIX, TopicPartition, parse_segment_log, segment_file
from kidxlib.objects import location
from kidxlib.publish import Retirer
from kidxlib.retention import REASONS, Bounds, Segments, TopicPolicy, decide
from kidxlib.retire import Kept, Outcome, PlannedSegment, Retirement
from kidxlib.times import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentThen:
    """A segment of a partition that is planned, be it to go or to stay; see `Segments`.

    Attributes:
        counted_bytes: of its log, as a broker has it.
        max_timestamp_ms: below 0 where there is none.
        well: all of it was known.
    """

    file: PlannedSegment
    next_offset: int
    counted_bytes: int
    max_timestamp_ms: int
    well: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionThen:
    """A partition as it was planned.

    Attributes:
        topic_id: None where there was no `partition.metadata`.
        log_start_offset, high_watermark: None where checkpoint files did not tell them.
        segments: all of it, by base offset.
    """

    topic_id: str | None
    log_start_offset: int | None
    high_watermark: int | None
    segments: Sequence[SegmentThen]


def reconsidered(
    retirer: Retirer, retirement: Retirement, then: PartitionThen, policy: TopicPolicy, now_ms: int
) -> Retirement:
    """What is to go of a partition, less what stays by what is found now. The log dir is locked by who calls this.

    Args:
        policy: what the topic's configuration says now.
    """
    try:
        changed = _changed(retirer, retirement, then)
        if changed is None:
            return replace(retirement, kept=_not_due(retirer, retirement, then, policy, now_ms))
    except (KidxError, OSError) as error:
        changed = str(error)
    kept = Kept(Outcome.CHANGED, f"{retirement.segments_folder}: {changed}: build again and plan again")
    return replace(retirement, kept={segment.base_offset: kept for segment in retirement.segments})


def _changed(retirer: Retirer, retirement: Retirement, then: PartitionThen) -> str | None:
    """What of a partition is not what it was; None where nothing is."""
    folder = retirement.segments_folder
    topic_partition = TopicPartition(retirement.key[1], retirement.key[2])
    checkpoints: Checkpoints = read_checkpoints(location(folder.root))
    found = (
        ("topic id", then.topic_id, read_topic_id(location(str(folder)))),
        ("log start offset", then.log_start_offset, (checkpoints.log_start_offsets or {}).get(topic_partition)),
        ("high watermark", then.high_watermark, (checkpoints.high_watermarks or {}).get(topic_partition)),
    )
    for what, before, now in found:
        if before != now:
            return f"{what} {_shown(now)}, planned with {_shown(before)}"
    known = {segment.file.base_offset for segment in then.segments}
    last = max((segment.base_offset for segment in retirement.segments), default=-1)
    for name in sorted(retirer.names(folder)):
        base_offset = parse_segment_log(name)
        if base_offset is not None and base_offset <= last and base_offset not in known:
            return f"{name}: the plan does not know it"
    return None


def _shown(value: object) -> object:
    return "not there" if value is None else value


def _not_due(
    retirer: Retirer, retirement: Retirement, then: PartitionThen, policy: TopicPolicy, now_ms: int
) -> dict[int, Kept]:
    """The planned segments that would not go now, and why. A log that is another by now is left to be told as such."""
    present = [(segment, status) for segment in then.segments if (status := _status(retirer, retirement, segment))]
    if not present:
        return {}
    segments = Segments(
        base_offsets=np.array([segment.file.base_offset for segment, _ in present], np.int64),
        sizes=np.array([min(segment.counted_bytes, status.st_size) for segment, status in present], np.int64),
        max_timestamps=np.array([segment.max_timestamp_ms for segment, _ in present], np.int64),
        mtimes_ms=np.array([status.st_mtime_ns // NS_PER_MS for _, status in present], np.int64),
        well=np.array([segment.well and not segment.file.differs(status) for segment, status in present], np.bool_),
    )
    bounds = Bounds.at_start(
        int(segments.base_offsets[0]),
        present[-1][0].next_offset,
        log_start_offset=then.log_start_offset,
        high_watermark=then.high_watermark,
    )
    if (asked := policy.log_start_asked_for(retirement.key[2])) is not None:
        bounds = bounds.deleted_up_to(asked)
    decisions = decide(segments, bounds, policy, now_ms)
    if decisions.deleted == len(segments):
        return {}
    first_to_stay = int(segments.base_offsets[decisions.deleted])
    reasons = dict(zip(segments.base_offsets.tolist(), decisions.reasons.tolist(), strict=True))
    others = {segment.file.base_offset for segment, status in present if segment.file.differs(status)}
    return {
        segment.base_offset: Kept(
            Outcome.NOT_DUE,
            f"{_log(retirement, segment)}: {REASONS[reasons[segment.base_offset]].value}, decided on again",
        )
        for segment in retirement.segments
        if segment.base_offset >= first_to_stay and segment.base_offset in reasons and segment.base_offset not in others
    }


def _status(retirer: Retirer, retirement: Retirement, segment: SegmentThen) -> os.stat_result | None:
    """Of a log, or of one that a run before this has renamed."""
    name = segment_file(segment.file.base_offset, LOG_SUFFIX)
    folder = retirement.segments_folder
    return retirer.status(folder, name) or retirer.status(folder, name + DELETED_SUFFIX)


def _log(retirement: Retirement, segment: PlannedSegment) -> str:
    return f"{retirement.segments_folder}/{segment_file(segment.base_offset, LOG_SUFFIX)}"
