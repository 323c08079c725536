"""Names of directories and objects, and what else lies among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.log.remote.layout import PARTS
from kidxlib.log.remote.local_layout import (
    LOCAL,
    STORAGE_DIRECTORY,
    find_bucket,
    list_partitions,
    parse_partition_directory,
    partition_directory,
)
from kidxlib.log.remote.objects import list_objects, object_name
from kidxlib.messages.remote_log_metadata import TopicIdPartition

_ID = "-AtiIQ95REujbuzNd_lkL-"


@pytest.mark.parametrize("topic", ["t", "a-b", "a-1", "x.y_z-0"])
def test_directories_of_partitions(topic: str) -> None:
    """Ids may begin with a dash, and topics hold some."""
    partition = TopicIdPartition(_ID, topic, 12)
    assert parse_partition_directory(partition_directory(partition)) == partition


@pytest.mark.parametrize("name", ["t-0", f"t-{_ID}", f"t-01-{_ID}", f"t-0-{_ID}x/", f"-0-{_ID}", f"..-0-{_ID}"])
def test_what_is_no_directory_of_a_partition(name: str) -> None:
    assert parse_partition_directory(name) is None


def test_objects_of_a_partition(tmp_path: Path) -> None:
    """Offsets have 20 digits, or as many as they need in newer releases; other files are named as such."""
    bucket = tmp_path / STORAGE_DIRECTORY
    place = bucket / partition_directory(TopicIdPartition(_ID, "t", 0))
    place.mkdir(parents=True)
    (bucket / "lost+found").mkdir()
    names = [object_name(7, _ID, suffix) for suffix in PARTS]
    others = ["junk", f"7-{_ID}.log.tmp", f"7-{_ID}.other", f"{'9' * 20}-{_ID}.log", f"7-{_ID[1:]}.log"]
    for name in (*names, *others, f"8-{_ID}.log"):
        (place / name).write_bytes(b"xy")
    assert find_bucket(tmp_path) == find_bucket(bucket) == bucket
    assert list_partitions(bucket) == {TopicIdPartition(_ID, "t", 0): place}
    listed = list_objects(place, LOCAL.suffixes)
    assert sorted(listed.others) == sorted(others)
    assert {(row["start_offset"], row["suffix"], row["bytes"]) for row in listed.objects.to_pylist()} == {
        *((7, suffix, 2) for suffix in PARTS),
        (8, ".log", 2),
    }
    assert list_objects(bucket / "no such", LOCAL.suffixes).objects.num_rows == 0
