"""When a broker begins a new segment, at each limit. tests/kafka/test_log.py asks Kafka's `LogSegment` the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.roll import RollParams, should_roll
from kidxlib.log.segment import LogSegment
from kidxlib.storage.log_bytes import WholeLog
from tests.support.logs.batches import Batch, encode

BASE_OFFSET, NOW = 10, 2_000_000_000_000
#: Nothing of this makes a broker roll.
CALM = RollParams(
    max_segment_ms=1_000, max_segment_bytes=1_000, max_timestamp=5_000, max_offset=BASE_OFFSET, size=10, now=NOW
)


def segment(*batches: Batch, index_entries: int = 4) -> LogSegment:
    return LogSegment(
        WholeLog(np.frombuffer(b"".join(encode(BASE_OFFSET, batches)), np.uint8)),
        BASE_OFFSET,
        OffsetIndex.new(BASE_OFFSET, index_entries * OffsetIndex.entry_bytes),
        TimeIndex.new(BASE_OFFSET, index_entries * TimeIndex.entry_bytes),
    )


@pytest.mark.parametrize(("room", "rolls"), [(0, False), (-1, True)])
def test_by_size(room: int, rolls: bool) -> None:
    log = segment(Batch(timestamp=5_000))
    assert should_roll(log, replace(CALM, max_segment_bytes=log.size + CALM.size + room), created_ms=NOW) is rolls


@pytest.mark.parametrize(("first", "jitter", "rolls"), [(4_000, 0, False), (3_999, 0, True), (4_000, 1, True)])
def test_by_the_timestamp_of_the_first_batch(first: int, jitter: int, rolls: bool) -> None:
    """When it was created does not matter then, nor what later batches say."""
    log = segment(Batch(timestamp=first), Batch(timestamp=1))
    assert should_roll(log, CALM, created_ms=0, roll_jitter_ms=jitter) is rolls


@pytest.mark.parametrize(("age", "rolls"), [(1_000, False), (1_001, True)])
def test_by_its_own_age_where_there_are_no_timestamps(age: int, rolls: bool) -> None:
    assert should_roll(segment(Batch(timestamp=-1)), CALM, created_ms=NOW - age) is rolls


def test_an_empty_segment_is_never_too_old() -> None:
    assert not should_roll(segment(), CALM, created_ms=0)


@pytest.mark.parametrize(("above", "rolls"), [(0, False), (2**31 - 1, False), (2**31, True), (-1, True)])
def test_by_an_offset_that_no_index_can_hold(above: int, rolls: bool) -> None:
    assert should_roll(segment(), replace(CALM, max_offset=BASE_OFFSET + above), created_ms=NOW) is rolls


def test_by_a_full_index() -> None:
    by_offset, by_time = segment(index_entries=2), segment(index_entries=2)
    by_offset.offset_index.append(BASE_OFFSET + 1, 1)
    by_time.time_index.maybe_append(1, BASE_OFFSET + 1)  # one entry less has room: the last is for closing
    assert not should_roll(by_offset, CALM, created_ms=NOW)
    by_offset.offset_index.append(BASE_OFFSET + 2, 2)
    assert should_roll(by_offset, CALM, created_ms=NOW)
    assert should_roll(by_time, CALM, created_ms=NOW)
