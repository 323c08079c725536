"""Segments' files are read as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format.segment_files import (
    LOG_SUFFIX,
    OFFSET_MAX,
    NotASegment,
    parse_segment_log,
    segment_file,
    why_not_a_partition,
    why_not_a_segment,
)
from kidxlib.format.topic_partition import (
    PARTITION_MAX,
    TOPIC_LENGTH_MAX,
    TopicPartition,
    may_be_renamed,
    parse_partition_directory,
)
from tests.kidxlib.format.test_topic_partition import UUID


@given(st.integers(0, OFFSET_MAX))
def test_every_log_name_is_read_back(base_offset: int) -> None:
    assert parse_segment_log(segment_file(base_offset, LOG_SUFFIX)) == base_offset


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"foo-0.{UUID}-delete", NotASegment.DIRECTORY_DELETE),
        (f"foo-bar-12.{UUID}-future", NotASegment.DIRECTORY_FUTURE),
        (f"foo-0.{UUID}-stray", NotASegment.DIRECTORY_STRAY),
        ("foo", NotASegment.NO_PARTITION_NUMBER),
        ("foo-", NotASegment.NO_PARTITION_NUMBER),
        ("-0", NotASegment.NO_PARTITION_NUMBER),
        (".-0", NotASegment.NO_PARTITION_NUMBER),
        ("..-0", NotASegment.NO_PARTITION_NUMBER),
        ("foo-00", NotASegment.NO_PARTITION_NUMBER),
        ("foo-01", NotASegment.NO_PARTITION_NUMBER),
        ("foo-+1", NotASegment.NO_PARTITION_NUMBER),
        ("foo-1 ", NotASegment.NO_PARTITION_NUMBER),
        ("foo-1\n", NotASegment.NO_PARTITION_NUMBER),
        ("foo-٣", NotASegment.NO_PARTITION_NUMBER),
        ("föö-1", NotASegment.NO_PARTITION_NUMBER),
        ("foo bar-1", NotASegment.NO_PARTITION_NUMBER),
        (f"foo-{PARTITION_MAX + 1}", NotASegment.NO_PARTITION_NUMBER),
        (f"{'t' * (TOPIC_LENGTH_MAX + 1)}-0", NotASegment.NO_PARTITION_NUMBER),
        ("x-delete", NotASegment.NO_PARTITION_NUMBER),
        ("remote-log-index-cache", NotASegment.BROKER_FILE),
    ],
)
def test_other_directories(name: str, reason: NotASegment) -> None:
    """What Kafka moves or deletes is distinguished from what is none of Kafka's."""
    assert parse_partition_directory(name) is None
    assert why_not_a_partition(name) is reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("0.log", NotASegment.WRONG_SEGMENT_NAME),
        ("0000000000000000000.log", NotASegment.WRONG_SEGMENT_NAME),
        ("000000000000000000000.log", NotASegment.WRONG_SEGMENT_NAME),
        (f"{OFFSET_MAX + 1:020d}.log", NotASegment.WRONG_SEGMENT_NAME),
        ("-0000000000000000001.log", NotASegment.WRONG_SEGMENT_NAME),
        ("٠" * 20 + ".log", NotASegment.WRONG_SEGMENT_NAME),
        ("00000000000000000000.LOG", NotASegment.OTHER),
        ("00000000000000000000.log\n", NotASegment.OTHER),
        ("00000000000000000000.log~", NotASegment.OTHER),
        ("00000000000000000000", NotASegment.OTHER),
        ("00000000000000000000.log.deleted", NotASegment.DELETED),
        ("00000000000000000000.log.cleaned", NotASegment.CLEANED),
        ("00000000000000000000.index.swap", NotASegment.SWAP),
        ("00000000000000000000.index", NotASegment.AUXILIARY),
        ("00000000000000000000.timeindex", NotASegment.AUXILIARY),
        ("00000000000000000000.txnindex", NotASegment.AUXILIARY),
        ("00000000000000000042.snapshot", NotASegment.AUXILIARY),
        ("00000000000000000042-0000000001.checkpoint", NotASegment.CHECKPOINT),
        ("leader-epoch-checkpoint", NotASegment.CHECKPOINT),
        ("partition.metadata", NotASegment.BROKER_FILE),
        ("recovery.txt", NotASegment.OTHER),
    ],
)
def test_other_files(name: str, reason: NotASegment) -> None:
    """A log whose name is not a 20-digit offset is worth a line; what stands beside logs is not."""
    assert parse_segment_log(name) is None
    assert why_not_a_segment(name) is reason


@pytest.mark.parametrize("name", ["t-2.bak", "t-2~", "t-2_old", "t-02", ".t-2", "t-2-copy"])
def test_a_partitions_directory_that_somebody_has_renamed(name: str) -> None:
    """Not what is another partition's, or what Kafka has renamed."""
    assert may_be_renamed(name, TopicPartition("t", 2))
    moved = f"t-2.{'0' * 32}-stray"
    for other in ("t-2", "t-20", "t-20.bak", "t-2-3", "at-2.bak", "t-3.bak", moved):
        assert not may_be_renamed(other, TopicPartition("t", 2)), other
