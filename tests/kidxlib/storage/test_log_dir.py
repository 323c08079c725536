"""What a partition's metadata file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import CheckpointError, UsageError
from kidxlib.storage.log_dir import (
    MetaProperties,
    ensure_no_copies,
    ensure_one_broker,
    read_meta_properties,
    read_topic_id,
)
from tests.support.logs import golden


def test_a_topic_id_comes_from_a_real_brokers_file(tmp_path: Path) -> None:
    """The sample has it; without the file there is none; a file without it is malformed."""
    directory = golden.SAMPLES / "txn-mixed-0"
    topic_id = read_topic_id(directory)
    assert topic_id is not None and len(topic_id) == 22
    assert read_topic_id(tmp_path) is None
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(CheckpointError, match="topic_id"):
        read_topic_id(tmp_path)


def test_whose_log_dir_it_is(tmp_path: Path) -> None:
    """As KRaft's brokers say it, and ZooKeeper's, whose log dirs have no ids."""
    assert read_meta_properties(tmp_path) == MetaProperties()
    for text, expected in (
        ("version=1\nnode.id=7\ncluster.id=c\ndirectory.id=d\n", MetaProperties(7, "c", "d", "1")),
        ("version=0\nbroker.id=7\ncluster.id=c\n", MetaProperties(7, "c", None, "0")),
    ):
        (tmp_path / "meta.properties").write_text(text)
        assert read_meta_properties(tmp_path) == expected


def test_log_dirs_are_one_brokers_and_no_copies() -> None:
    """Without ids, as before 3.7, nobody knows of copies."""
    first, second = Path("a"), Path("b")
    of_first = MetaProperties(1, "c", "d")
    ensure_one_broker([(first, of_first), (second, MetaProperties(1, "c", "e"))])
    ensure_no_copies([(first, MetaProperties(1, "c")), (second, MetaProperties(1, "c"))])
    for of_second, message in (
        (of_first, "b: directory.id d, as a has it; one of the two is a copy"),
        (MetaProperties(2, "c", "e"), "b: of node 2 of cluster c, and a is of node 1 of cluster c"),
        (MetaProperties(1, "other", "e"), "b: of node 1 of cluster other, and a is of node 1 of cluster c"),
    ):
        with pytest.raises(UsageError, match=message):
            ensure_one_broker([(first, of_first), (second, of_second)])
