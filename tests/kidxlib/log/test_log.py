"""What Kafka refuses of a log, and which epochs a log has. tests/kafka/test_log.py asks Kafka's classes the rest."""

from __future__ import annotations

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


@pytest.mark.parametrize(("base_offsets", "start_offset", "end_offset"), [((0, 10, 20), 10, 0), ((1, 2, 3, 4), 2, 1)])
def test_a_range_that_ends_before_it_begins_is_refused(
    base_offsets: tuple[int, ...], start_offset: int, end_offset: int
) -> None:
    """Kafka throws an `IllegalArgumentException`: the same two tests."""
    with pytest.raises(UsageError, match=f"log: offsets {start_offset} to {end_offset}"):
        log_of(*base_offsets).segments_between(start_offset, end_offset)


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
