"""Names are read as Kafka writes them, and nothing else is taken for a segment or a partition."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.discover import parse_source
from kidxlib.errors import UsageError
from kidxlib.names import (
    LOG_SUFFIX,
    OFFSET_MAX,
    PARTITION_MAX,
    TOPIC_LENGTH_MAX,
    NotASegment,
    TopicPartition,
    is_name,
    parse_partition_folder,
    parse_segment_log,
    segment_file,
    why_not_a_partition,
    why_not_a_segment,
)

UUID = "0123456789abcdef0123456789abcdef"
TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=TOPIC_LENGTH_MAX).filter(
    lambda topic: topic not in (".", "..")
)


@given(st.builds(TopicPartition, TOPICS, st.integers(0, PARTITION_MAX)))
def test_every_partition_folder_is_read_back(partition: TopicPartition) -> None:
    """Topics may hold dashes, dots and digits anywhere: the number behind the last dash decides."""
    assert parse_partition_folder(partition.folder) == partition


@given(st.integers(0, OFFSET_MAX))
def test_every_log_name_is_read_back(base_offset: int) -> None:
    assert parse_segment_log(segment_file(base_offset, LOG_SUFFIX)) == base_offset


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("a.b-c_d-12", "a.b-c_d", 12),
        ("x-delete-0", "x-delete", 0),
        ("__consumer_offsets-3", "__consumer_offsets", 3),
        ("--0", "-", 0),
        ("5-7", "5", 7),
        (f"foo-0.{UUID}-1", f"foo-0.{UUID}", 1),
        (f"{'t' * TOPIC_LENGTH_MAX}-{PARTITION_MAX}", "t" * TOPIC_LENGTH_MAX, PARTITION_MAX),
    ],
)
def test_partition_folders(name: str, topic: str, partition: int) -> None:
    """Names that look like something else at first sight."""
    assert parse_partition_folder(name) == TopicPartition(topic, partition)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a b", "ä", "a\n", "t" * (TOPIC_LENGTH_MAX + 1)])
def test_a_path_is_made_of_no_such_name(name: str, tmp_path: Path) -> None:
    """Kafka refuses such topics (`Topic.validate`); nor is it a partition's folder, or a source's name."""
    assert not is_name(name)
    assert parse_partition_folder(f"{name}-0") is None
    with pytest.raises(UsageError, match=r"may hold only letters|No such file"):
        parse_source(f"{name}={tmp_path}", name_required=False)


@pytest.mark.parametrize("name", ["...", ".a", "-", "_", "t" * TOPIC_LENGTH_MAX])
def test_a_path_may_be_made_of_such_a_name(name: str, tmp_path: Path) -> None:
    assert is_name(name)
    assert parse_source(f"{name}={tmp_path}", name_required=True).name == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"foo-0.{UUID}-delete", NotASegment.FOLDER_DELETE),
        (f"foo-bar-12.{UUID}-future", NotASegment.FOLDER_FUTURE),
        (f"foo-0.{UUID}-stray", NotASegment.FOLDER_STRAY),
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
    ],
)
def test_other_folders(name: str, reason: NotASegment) -> None:
    """What Kafka moves or deletes is told apart from what is none of Kafka's."""
    assert parse_partition_folder(name) is None
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
        ("00000000000000000000.index", NotASegment.SIDE_FILE),
        ("00000000000000000000.timeindex", NotASegment.SIDE_FILE),
        ("00000000000000000000.txnindex", NotASegment.SIDE_FILE),
        ("00000000000000000042.snapshot", NotASegment.SIDE_FILE),
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
