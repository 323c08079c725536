"""Decides on a plan's partition again before anything of it is renamed, from its log dir as it is now and by the clock.

A plan may be an hour old. So all that was checked for it is checked again: the offsets in the log dir's checkpoint
files, the topic's id, and the identity of each log. Logs that stay are checked too, because a limit of size counts
them. If one of these has changed, nothing of the partition is deleted. Then everything is decided again, as
`UnifiedLog.deleteOldSegments` would now. What it would not delete now stays.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kidxlib.errors import KidxError
from kidxlib.retention.changes import change_of, find_log, log_differences, skipped
from kidxlib.retention.decide import decide
from kidxlib.retention.outcomes import DeletionOutcome, Kept
from kidxlib.retention.partition import Bounds, Segments
from kidxlib.retention.plan import PartitionDeletion, PartitionThen, SegmentThen
from kidxlib.retention.reasons import REASONS
from kidxlib.retention.topic_policy import TopicPolicy
from kidxlib.storage.remover import Remover
from kidxlib.text.times import NS_PER_MS


def reconsidered(
    remover: Remover, deletion: PartitionDeletion, then: PartitionThen, policy: TopicPolicy, now_ms: int
) -> PartitionDeletion:
    """What to delete of a partition, without what must stay by its state now. The caller locks the log dir.

    Args:
        policy: the topic's configuration now.
    """
    try:
        changed = change_of(remover, deletion, then)
        if changed is None:
            going = {segment.base_offset for segment in deletion.segments}
            found = [
                (segment, find_log(remover, deletion, segment, is_going=segment.file.base_offset in going))
                for segment in then.segments
            ]
            if differences := log_differences(deletion, found):
                return skipped(deletion, found, differences)
            present = [(segment, file.status) for segment, file in found if file is not None]
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
