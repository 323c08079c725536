"""Retention of one opened partition: its segments as columns, and the decision on each."""

from __future__ import annotations

import numpy as np

from kidxlib.errors import KidxError
from kidxlib.log.log import Log
from kidxlib.log.segment import LogSegment
from kidxlib.retention.decide import Bounds, Decisions, Segments, decide, keep_all
from kidxlib.retention.policy import Reason, TopicPolicy


def decide_retention(log: Log, policy: TopicPolicy, now_ms: int, *, high_watermark: int | None = None) -> Decisions:
    """Which segments of a partition a broker would delete by retention, and why the others stay
    (`UnifiedLog.deleteOldSegments`). Nothing is deleted.

    No error of a file is raised: a segment whose log or time index cannot be read stays, and so do all after it. If the
    policy has `remote_storage`, all segments stay: tiered storage is not modelled, and a local segment may be the only
    copy. The caller has to ask first whether a topic is one of Kafka's own.

    Args:
        log: from `open_partition`.
        policy: the topic's configuration. Its `log_start_offsets` do not count: open the partition with the log start
            offset that is meant.
        now_ms: the time of the decision, in ms since the epoch.
        high_watermark: nothing from there on is deleted; None for the log end offset.

    Returns:
        The decisions, one for each of `log.segments`, in order.
    """
    rows = [_row(segment) for segment in log.segments]
    max_timestamps, largest, sizes, fully_read = zip(*rows, strict=True)
    segments = Segments(
        base_offsets=np.array([segment.base_offset for segment in log.segments], np.int64),
        sizes=np.array(sizes, np.int64),
        max_timestamps=np.array(max_timestamps, np.int64),
        mtimes_ms=np.array(largest, np.int64),
        fully_read=np.array(fully_read, np.bool_),
    )
    if policy.remote_storage:
        return keep_all(segments, Reason.NOT_MODELLED)
    bounds = Bounds.at_start(
        log.segments[0].base_offset,
        _log_end_offset(log),
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
    )
    return decide(segments, bounds, policy, now_ms)


def _row(segment: LogSegment) -> tuple[int, int, int, bool]:
    """A segment's largest timestamp, the time from which its age counts, its bytes, and whether these are known."""
    try:
        # The bytes come last: if the segment had to be recovered, they are those that a broker would leave.
        return segment.max_timestamp_so_far.timestamp, segment.largest_timestamp, segment.size, True
    except (KidxError, OSError):
        return -1, -1, 0, False
    finally:
        segment.release()


def _log_end_offset(log: Log) -> int:
    try:
        return log.log_end_offset
    except (KidxError, OSError):
        return log.segments[-1].base_offset  # it is not known, and the segment stays in any case
