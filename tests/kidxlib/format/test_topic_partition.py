"""Partitions' directories are read as Kafka writes them, and nothing else is taken for one."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import (
    PARTITION_MAX,
    TOPIC_LENGTH_MAX,
    TopicPartition,
    is_topic_name,
    parse_partition_directory,
)
from kidxlib.indexing.source import parse_source

UUID = "0123456789abcdef0123456789abcdef"
TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=TOPIC_LENGTH_MAX).filter(
    lambda topic: topic not in (".", "..")
)


@given(st.builds(TopicPartition, TOPICS, st.integers(0, PARTITION_MAX)))
def test_every_partition_directory_is_read_back(partition: TopicPartition) -> None:
    """Topics may hold dashes, dots and digits anywhere: the number after the last dash decides."""
    assert parse_partition_directory(partition.directory) == partition


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
def test_partition_directories(name: str, topic: str, partition: int) -> None:
    """Names that look like something else at first sight."""
    assert parse_partition_directory(name) == TopicPartition(topic, partition)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a b", "ä", "a\n", "t" * (TOPIC_LENGTH_MAX + 1)])
def test_a_path_is_made_of_no_such_name(name: str, tmp_path: Path) -> None:
    """Kafka refuses such topics (`Topic.validate`); nor is it a partition's directory, or a source's name."""
    assert not is_topic_name(name)
    assert parse_partition_directory(f"{name}-0") is None
    with pytest.raises(UsageError, match=r"may hold only letters|No such file"):
        parse_source(f"{name}={tmp_path}", name_required=False)


@pytest.mark.parametrize("name", ["...", ".a", "-", "_", "t" * TOPIC_LENGTH_MAX])
def test_a_path_may_be_made_of_such_a_name(name: str, tmp_path: Path) -> None:
    assert is_topic_name(name)
    assert parse_source(f"{name}={tmp_path}", name_required=True).name == name
