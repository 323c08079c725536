"""Segments of offset ranges and ends of leader epochs, with the values of Kafka's own unit tests; those of
`LeaderEpochFileCacheTest` of Kafka 4.3 unless another class is named.

A test that truncates the cache there asks for a range here: `truncateFromEnd(n)` leaves the epochs from −1 to n,
`truncateFromStart(n)` those from n to −1. Kafka's classes over the same files are asked in tests/kafka/test_log.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import UsageError
from kidxlib.format.checkpoint_files import EpochEntry, LeaderEpochs
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.log.log import EpochEndOffset, LeaderEpochCache, Log
from kidxlib.log.segment import LogSegment
from tests.support.logs.guarded import whole

#: Epochs, and the offsets at which each begins, as they are assigned one after the other.
Assigned = tuple[tuple[int, int], ...]

THREE: Final = ((2, 6), (3, 8), (4, 11))
NO_LIMIT: Final = -1


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


def cache_of(assigned: Assigned) -> LeaderEpochCache:
    return LeaderEpochCache(entries_of(assigned))


def entries_of(assigned: Assigned) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(epoch, start_offset) for epoch, start_offset in assigned)


@pytest.mark.parametrize(
    ("method", "assigned", "left"),
    [
        ("shouldAddEpochAndMessageOffsetToCache", ((2, 10),), ((2, 10),)),
        ("shouldNotOverwriteLogEndOffsetForALeaderEpochOnceItHasBeenAssigned", ((2, 9), (2, 10)), ((2, 9),)),
        ("shouldEnforceMonotonicallyIncreasingStartOffsets", ((2, 9), (3, 9)), ((3, 9),)),
        ("shouldNotOverwriteOffsetForALeaderEpochOnceItHasBeenAssigned", ((2, 6), (2, 10)), ((2, 6),)),
        ("shouldTruncateIfMatchingEpochButEarlierStartingOffset", ((5, 11), (6, 12), (7, 13), (7, 12)), None),
        ("shouldNotUpdateEpochAndStartOffsetIfItDidNotChange", ((2, 6), (2, 7)), ((2, 6),)),
        ("shouldSupportEpochsThatDoNotStartFromZero", ((2, 6),), ((2, 6),)),
        ("shouldEnforceMonotonicallyIncreasingEpochs", ((1, 5), (2, 6), (1, 7)), ((1, 7),)),
        ("shouldEnforceOffsetsIncreaseMonotonically", ((2, 6), (3, 5)), ((3, 5),)),
    ],
)
def test_entries_are_assigned_as_kafka_assigns_them(method: str, assigned: Assigned, left: Assigned | None) -> None:
    expected = ((5, 11), (7, 12)) if left is None else left  # where Kafka's test asks for end offsets alone, see below
    assert cache_of(assigned).entries == entries_of(expected), method


@pytest.mark.parametrize(
    ("method", "assigned", "epoch", "log_end_offset", "answer"),
    [
        ("shouldAddEpochAndMessageOffsetToCache", ((2, 10),), 2, 11, (2, 11)),
        ("shouldReturnLogEndOffsetIfLatestEpochRequested", ((2, 11), (2, 12)), 2, 14, (2, 14)),
        ("shouldReturnUndefinedOffsetIfUndefinedEpochRequested", ((2, 11), (3, 12)), -1, 0, None),
        ("shouldReturnUnsupportedIfNoEpochRecorded", (), 0, 0, None),
        ("shouldReturnUnsupportedIfNoEpochRecordedAndUndefinedEpochRequested", (), -1, 73, None),
        ("shouldReturnFirstEpochIfRequestedEpochLessThanFirstEpoch", ((5, 11), (6, 12), (7, 13)), 4, 0, (4, 11)),
        (
            "shouldTruncateIfMatchingEpochButEarlierStartingOffset",
            ((5, 11), (6, 12), (7, 13), (7, 12)),
            5,
            0,
            (5, 12),
        ),
        (
            "shouldTruncateIfMatchingEpochButEarlierStartingOffset",
            ((5, 11), (6, 12), (7, 13), (7, 12)),
            6,
            0,
            (5, 12),
        ),
        (
            "shouldGetFirstOffsetOfSubsequentEpochWhenOffsetRequestedForPreviousEpoch",
            ((1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16)),
            2,
            17,
            (2, 15),
        ),
        (
            "shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested",
            ((0, 10), (2, 13), (4, 17)),
            1,
            0,
            (0, 13),
        ),
        (
            "shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested",
            ((0, 10), (2, 13), (4, 17)),
            2,
            0,
            (2, 17),
        ),
        (
            "shouldReturnNextAvailableEpochIfThereIsNoExactEpochForTheOneRequested",
            ((0, 10), (2, 13), (4, 17)),
            3,
            0,
            (2, 17),
        ),
        ("shouldReturnInvalidOffsetIfEpochIsRequestedWhichIsNotCurrentlyTracked", ((2, 100),), 3, 100, None),
        ("shouldSupportEpochsThatDoNotStartFromZero", ((2, 6),), 2, 7, (2, 7)),
        ("shouldEnforceMonotonicallyIncreasingEpochs", ((1, 5), (2, 6), (1, 7)), 1, 8, (1, 8)),
        ("shouldEnforceMonotonicallyIncreasingEpochs", ((1, 5), (2, 6), (1, 7)), 2, 8, None),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0)), 1, 0, (1, 0)),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0)), 0, 0, (0, 0)),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0)), 1, 5, (1, 5)),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0)), 0, 5, (0, 0)),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0), (2, 5)), 2, 10, (2, 10)),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0), (2, 5)), 1, 10, (1, 5)),
        ("shouldIncreaseAndTrackEpochsAsLeadersChangeManyTimes", ((0, 0), (1, 0), (2, 5)), 0, 10, (0, 0)),
        (
            "shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages",
            ((0, 0), (0, 1), (0, 2)),
            0,
            3,
            (0, 3),
        ),
        (
            "shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages",
            ((0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)),
            1,
            6,
            (1, 6),
        ),
        *(
            (
                "shouldIncreaseAndTrackEpochsAsFollowerReceivesManyMessages",
                ((0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6), (2, 7), (2, 8)),
                epoch,
                9,
                answer,
            )
            for epoch, answer in ((2, (2, 9)), (0, (0, 3)), (1, (1, 6)))
        ),
        ("shouldFetchEndOffsetOfEmptyCache", (), 7, 0, None),
    ],
)
def test_end_offset_of_an_epoch(
    method: str, assigned: Assigned, epoch: int, log_end_offset: int, answer: tuple[int, int] | None
) -> None:
    expected = None if answer is None else EpochEndOffset(*answer)
    assert cache_of(assigned).end_offset_for(epoch, log_end_offset) == expected, method


def test_epoch_of_an_offset() -> None:
    """`shouldFetchEpochForGivenOffset`."""
    cache = cache_of(((0, 10), (1, 20), (5, 30)))
    assert [cache.epoch_for_offset(offset) for offset in (25, 20, 30, 50, 5)] == [1, 1, 5, 5, None]
    assert LeaderEpochCache().epoch_for_offset(0) is None


def test_latest_and_previous_epoch() -> None:
    """`testPreviousEpoch`, `testFindPreviousEpoch`, `testFindPreviousEntry`, `shouldFetchLatestEpochOfEmptyCache`."""
    cache = LeaderEpochCache()
    assert (cache.latest_epoch, cache.latest_entry, cache.earliest_entry) == (None, None, None)
    assert (cache.previous_epoch(), cache.previous_epoch(2), cache.previous_entry(2)) == (None, None, None)

    cache = cache_of(((2, 10),))
    assert (cache.previous_epoch(), cache.previous_epoch(2), cache.previous_entry(2)) == (None, None, None)

    cache = cache_of(((2, 10), (4, 15)))
    assert (cache.previous_epoch(), cache.previous_epoch(4)) == (2, 2)
    assert cache.previous_entry(4) == EpochEntry(2, 10)

    cache = cache_of(((2, 10), (4, 15), (10, 20)))
    assert (cache.previous_epoch(), cache.previous_epoch(10)) == (4, 4)
    assert cache.previous_entry(10) == EpochEntry(4, 15)

    cache = LeaderEpochCache(cache.entries_in_range(NO_LIMIT, 18))  # truncateFromEnd(18)
    assert cache.latest_epoch == 4
    assert (cache.previous_epoch(), cache.previous_epoch(4)) == (2, 2)
    assert cache.previous_entry(4) == EpochEntry(2, 10)


def test_next_epoch() -> None:
    """`testFindNextEpoch`."""
    cache = cache_of(((0, 0), (1, 100), (2, 200)))
    assert [cache.next_epoch(epoch) for epoch in (-1, 0, 1, 2, 100)] == [0, 1, 2, None, None]


def test_entry_of_an_epoch() -> None:
    """`testGetEpochEntry`."""
    cache = cache_of(((2, 100), (3, 500), (5, 1000)))
    assert [cache.epoch_entry(epoch) for epoch in (2, 3, 5)] == list(cache.entries)
    assert [cache.epoch_entry(epoch) for epoch in (1, 4, 6)] == [None, None, None]


@pytest.mark.parametrize(
    ("method", "assigned", "start_offset", "end_offset", "left"),
    [
        ("shouldDropEntriesOnEpochBoundaryWhenRemovingLatestEntries", THREE, NO_LIMIT, 8, ((2, 6),)),
        ("shouldPreserveResetOffsetOnClearEarliestIfOneExists", THREE, 8, NO_LIMIT, ((3, 8), (4, 11))),
        ("shouldNotClearAnythingIfOffsetTooEarly", THREE, 1, NO_LIMIT, THREE),
        ("shouldNotClearAnythingIfOffsetIsFirstOffset", THREE, 6, NO_LIMIT, THREE),
        ("shouldRetainLatestEpochOnClearAllEarliest", THREE, 11, NO_LIMIT, ((4, 11),)),
        ("shouldUpdateOffsetBetweenEpochBoundariesOnClearEarliest", THREE, 9, NO_LIMIT, ((3, 9), (4, 11))),
        (
            "shouldUpdateOffsetBetweenFirstTwoEpochBoundariesOnClearEarliest",
            ((0, 0), (1, 7), (2, 10)),
            5,
            NO_LIMIT,
            ((0, 5), (1, 7), (2, 10)),
        ),
        ("shouldRetainLatestEpochOnClearAllEarliestAndUpdateItsOffset", THREE, 15, NO_LIMIT, ((4, 15),)),
        ("shouldDropEntriesBetweenEpochBoundaryWhenRemovingNewest", THREE, NO_LIMIT, 9, ((2, 6), (3, 8))),
        ("shouldNotResetEpochHistoryHeadIfUndefinedPassed", THREE, -1, NO_LIMIT, THREE),
        ("shouldNotResetEpochHistoryTailIfUndefinedPassed", THREE, NO_LIMIT, -1, THREE),
        ("shouldClearEarliestOnEmptyCache", (), 7, NO_LIMIT, ()),
        ("shouldClearLatestOnEmptyCache", (), NO_LIMIT, 7, ()),
        ("shouldWriteCheckpointOnTruncation", THREE, 8, 11, ((3, 8),)),
        (
            "RemoteLogManagerTest.testGetLeaderEpochCheckpoint",
            ((0, 0), (1, 100), (2, 200)),
            0,
            300,
            ((0, 0), (1, 100), (2, 200)),
        ),
        (
            "RemoteLogManagerTest.testGetLeaderEpochCheckpoint",
            ((0, 0), (1, 100), (2, 200)),
            100,
            200,
            ((1, 100),),
        ),
    ],
)
def test_epochs_of_a_range_of_offsets(
    method: str, assigned: Assigned, start_offset: int, end_offset: int, left: Assigned
) -> None:
    assert cache_of(assigned).entries_in_range(start_offset, end_offset) == entries_of(left), method


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_what_kafka_refuses_is_refused(entry: tuple[int, int]) -> None:
    """`LeaderEpochFileCache.assign` throws an `IllegalArgumentException`."""
    with pytest.raises(UsageError, match="expected an epoch and an offset of 0 or more"):
        cache_of((entry,))


_SMALL = st.integers(0, 12)


@given(st.lists(st.tuples(_SMALL, _SMALL), max_size=8), st.integers(-3, 15), st.integers(0, 15))
def test_answers_are_those_of_kafkas_loops(assigned: list[tuple[int, int]], asked: int, log_end_offset: int) -> None:
    """The searches here against the loops and tree lookups of `LeaderEpochFileCache`, written out."""
    cache = cache_of(tuple(assigned))
    entries = cache.entries
    assert entries == LeaderEpochs(entries_of(tuple(assigned))).entries
    assert cache.epoch_for_offset(asked) == _epoch_for_offset(entries, asked)
    assert cache.end_offset_for(asked, log_end_offset) == _end_offset_for(entries, asked, log_end_offset)


def _epoch_for_offset(entries: tuple[EpochEntry, ...], offset: int) -> int | None:
    previous = None
    for entry in entries:
        if entry.start_offset == offset:
            return entry.epoch
        if entry.start_offset > offset:
            return previous
        previous = entry.epoch
    return previous


def _end_offset_for(entries: tuple[EpochEntry, ...], requested: int, log_end_offset: int) -> EpochEndOffset | None:
    if requested == -1:
        return None
    if entries and entries[-1].epoch == requested:
        return EpochEndOffset(requested, log_end_offset)
    higher = [entry for entry in entries if entry.epoch > requested]
    floor = [entry for entry in entries if entry.epoch <= requested]
    if not higher:
        return None
    return EpochEndOffset(floor[-1].epoch if floor else requested, higher[0].start_offset)
