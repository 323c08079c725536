"""Whether a broker begins a new segment: Kafka's `LogSegment.shouldRoll`.

No job of kidx appends to a log. kidxlib has Kafka's answer, and `tests/kafka` proves it against `LogSegment`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kidxlib.java import as_long
from kidxlib.log.segment import LogSegment
from kidxlib.records.batch_headers import batches


@dataclass(frozen=True, slots=True, kw_only=True)
class RollParams:
    """What is to be appended, and how large and old a segment may become (`RollParams`).

    Attributes:
        max_segment_ms: `segment.ms`; for a compacted topic the smaller of that and `max.compaction.lag.ms`.
        max_segment_bytes: `segment.bytes`.
        max_timestamp: the largest timestamp to be appended, in ms since the epoch.
        max_offset: the last offset to be appended.
        size: the bytes to be appended.
        now: the time, in ms since the epoch.
    """

    max_segment_ms: int
    max_segment_bytes: int
    max_timestamp: int
    max_offset: int
    size: int
    now: int


def should_roll(
    segment: LogSegment, params: RollParams, *, created_ms: int | None = None, roll_jitter_ms: int = 0
) -> bool:
    """Whether a broker begins a new segment rather than append to this one (`shouldRoll`).

    It does if the segment would become too large or has become too old, if one of its indexes is full, or if the offset
    is too far from the base offset. An index that was trimmed to its entries is full; a broker gives the active
    segment's indexes room again when it starts (`AbstractIndex.resize`).

    Args:
        created_ms: when the segment was created, in ms since the epoch. A broker takes the time at which it opened the
            file. None: when the log was modified.
        roll_jitter_ms: how much earlier than others this segment is rolled.
    """
    waited_ms = _time_waited_for_roll(segment, params, segment.mtime_ms if created_ms is None else created_ms)
    return (
        segment.size > params.max_segment_bytes - params.size
        or (segment.size > 0 and waited_ms > params.max_segment_ms - roll_jitter_ms)
        or segment.offset_index.is_full
        or segment.time_index.is_full
        or not segment.offset_index.can_append_offset(params.max_offset)
    )


def _time_waited_for_roll(segment: LogSegment, params: RollParams, created_ms: int | None) -> int:
    """How long ago the first batch was written, in ms (`timeWaitedForRoll`): by its records' timestamps, or, if they
    have none, since the segment was created.
    """
    first = next(batches(segment.log), None)
    if first is not None and first.max_timestamp >= 0:
        return as_long(params.max_timestamp - first.max_timestamp)
    assert created_ms is not None
    return as_long(params.now - created_ms)
