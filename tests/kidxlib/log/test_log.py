"""Segments of offset ranges, with the values of Kafka's unit tests. tests/kafka/test_log.py asks its classes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.log import EpochEndOffset, LeaderEpochCache, Log
from kidxlib.log.segment import LogSegment
from tests.support.logs.guarded import whole


def log_of(*base_offsets: int, log_end_offset: int | None = None, leader_epochs: LeaderEpochs | None = None) -> Log:
    """A log of empty segments."""
    segments = [
        LogSegment(whole(b""), offset, OffsetIndex.from_bytes(b"", offset), TimeIndex.from_bytes(b"", offset))
        for offset in base_offsets
    ]
    return Log(segments, log_end_offset=log_end_offset, leader_epochs=leader_epochs)


def base_offsets_of(segments: Sequence[LogSegment]) -> list[int]:
    return [segment.base_offset for segment in segments]


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "expected"),
    [
        (10, 10, []),
        (15, 15, []),
        (0, 21, [0, 10, 20]),
        (1, 5, [0]),
        (13, 21, [10, 20]),
        (13, 17, [10]),
    ],
)
def test_segments_of_a_range(start_offset: int, end_offset: int, expected: list[int]) -> None:
    """`UnifiedLogTest.testLogSegmentsCallCorrect`."""
    assert base_offsets_of(log_of(0, 10, 20).segments_between(start_offset, end_offset)) == expected


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "expected"),
    [
        (1, 1, []),
        (1, 2, [1]),
        (1, 3, [1, 2]),
        (1, 4, [1, 2, 3]),
        (2, 4, [2, 3]),
        (3, 4, [3]),
        (4, 4, []),
        (4, 5, [4]),
    ],
)
def test_segments_of_a_range_in_small_segments(start_offset: int, end_offset: int, expected: list[int]) -> None:
    """`LogSegmentsTest.testSegmentAccess`."""
    assert base_offsets_of(log_of(1, 2, 3, 4).segments_between(start_offset, end_offset)) == expected


def test_a_range_that_begins_before_the_log_begins_with_its_first_segment() -> None:
    """`LogSegments.values` takes a `headMap` where no segment begins so early."""
    log = log_of(100, 200, 300)
    assert base_offsets_of(log.segments_between(0, 201)) == [100, 200]
    assert base_offsets_of(log.segments_between(0, 100)) == []
    assert base_offsets_of(log.segments_between(-5, 10_000)) == [100, 200, 300]


@pytest.mark.parametrize(("base_offsets", "start_offset", "end_offset"), [((0, 10, 20), 10, 0), ((1, 2, 3, 4), 2, 1)])
def test_a_range_that_ends_before_it_begins_is_refused(
    base_offsets: tuple[int, ...], start_offset: int, end_offset: int
) -> None:
    """Kafka throws an `IllegalArgumentException`: the same two tests."""
    with pytest.raises(UsageError, match=f"log: offsets {start_offset} to {end_offset}"):
        log_of(*base_offsets).segments_between(start_offset, end_offset)


def test_segments_but_for_the_active_one() -> None:
    """`LogSegmentsTest.testSegmentAccess`."""
    log = log_of(1, 2, 3, 4)
    assert base_offsets_of(log.non_active_segments_from(2)) == [2, 3]
    assert base_offsets_of(log.non_active_segments_from(4)) == []
    assert base_offsets_of(log.non_active_segments_from(5)) == []


def test_floor_and_higher_segments() -> None:
    """`LogSegmentsTest.testClosestMatchOperations`, `LogSegmentsTest.testHigherSegments`."""
    log = log_of(1, 3, 5, 7, 9)
    floors = [log.floor_segment(offset) for offset in (0, 2, 3)]
    assert [None if floor is None else floor.base_offset for floor in floors] == [None, 1, 3]
    assert [base_offsets_of(log.higher_segments(offset)) for offset in (0, 1, 8, 9)] == [
        [1, 3, 5, 7, 9],
        [3, 5, 7, 9],
        [9],
        [],
    ]


def test_leader_epochs_are_those_of_the_logs_own_offsets() -> None:
    """Entries before the start and from the end on are dropped, as a broker does when it starts."""
    epochs = LeaderEpochs([EpochEntry(0, 0), EpochEntry(1, 50), EpochEntry(3, 150), EpochEntry(4, 250)])
    log = log_of(100, 200, log_end_offset=250, leader_epochs=epochs)
    assert log.leader_epoch_cache == LeaderEpochCache((EpochEntry(1, 100), EpochEntry(3, 150)))
    assert log.leader_epoch_cache.epoch_for_offset(149) == 1
    assert log.end_offset_for_epoch(0) == EpochEndOffset(0, 100)
    assert log.end_offset_for_epoch(1) == log.end_offset_for_epoch(2)
    assert log.end_offset_for_epoch(2) == EpochEndOffset(1, 150)
    assert log.end_offset_for_epoch(3) == EpochEndOffset(3, 250)
    assert log.end_offset_for_epoch(4) is None


def test_a_log_without_a_checkpoint_knows_no_epoch() -> None:
    log = log_of(0, log_end_offset=10)
    assert log.leader_epoch_cache == LeaderEpochCache()
    assert log.end_offset_for_epoch(0) is None


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_what_kafka_refuses_is_refused(entry: tuple[int, int]) -> None:
    """`LeaderEpochFileCache.assign` throws an `IllegalArgumentException`."""
    with pytest.raises(UsageError, match="expected an epoch and an offset of 0 or more"):
        LeaderEpochCache((EpochEntry(*entry),))
