"""Partitions whose full segments wait in a log dir, and none is copied."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from kidxlib.audit.tiered.finding import METADATA, RemoteFindingRow, RemoteSegmentKey, broken
from kidxlib.audit.tiered.metadata import STALLED, STALLS
from kidxlib.operations.audit.tiered.numbers.numbers import Numbers
from kidxlib.operations.audit.tiered.topics import TopicsOfTiered
from kidxlib.text.counted import counted
from kidxlib.text.times import show_time


def stalled(numbers: Numbers, topics: TopicsOfTiered, stuck_ms: int) -> Iterator[RemoteFindingRow]:
    """A finding on each partition of which nothing was copied for longer than its topic and the user allow.

    Args:
        stuck_ms: how long full segments may wait beyond what the topic allows.
    """
    for lag in numbers.lags:
        copying = topics.copying(lag.partition.topic, lag.partition.topic_id)
        waiting_ms = lag.waiting_ms(numbers.as_of_ms)
        allowed = copying.why_stalled(waiting_ms, lag.bytes, stuck_ms)
        if allowed is None:
            continue
        last = (
            "none was ever copied" if lag.copied_ms is None else f"the last one was copied {show_time(lag.copied_ms)}"
        )
        detail = (
            f"{counted(lag.segments, 'full segment')} of {lag.bytes:,} bytes wait in a log dir, for "
            f"{timedelta(milliseconds=waiting_ms)}; {last}; {allowed}"
        )
        key = RemoteSegmentKey(start_offset=lag.first_offset, segment_id=None)
        yield RemoteFindingRow.found(lag.partition, key, broken(METADATA, STALLED, detail, STALLS))
