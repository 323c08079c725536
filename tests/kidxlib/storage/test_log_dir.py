"""What a partition's metadata file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kidxlib.errors import CheckpointError, UsageError
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.storage.log_dir import (
    MetaProperties,
    ensure_no_copies,
    ensure_one_broker,
    read_checkpoints,
    read_leader_epochs,
    read_meta_properties,
    read_offset_checkpoint,
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


def test_a_checkpoint_reads_as_kafka_writes_it(tmp_path: Path) -> None:
    """Topics with dots and dashes, several lines; an absent file is not an empty one."""
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text("0\n2\na.b-c_d 12 9223372036854775807\n__consumer_offsets 3 0\n")
    assert read_offset_checkpoint(path) == {
        TopicPartition("a.b-c_d", 12): 2**63 - 1,
        TopicPartition("__consumer_offsets", 3): 0,
    }
    checkpoints = read_checkpoints(tmp_path)
    assert checkpoints.high_watermarks is not None and checkpoints.recovery_points is None
    assert checkpoints.clean_shutdown is False


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("1\n0\n", "line 1: version '1', expected 0"),
        ("0\n1\ntopic 0\n", "line 3: 'topic 0', expected <topic> <partition> <offset>"),
        ("0\n1\ntopic zero 7\n", "line 3"),
        ("0\n2\ntopic 0 7\n", "line 2: 2 entries announced, 1 found"),
        ("0\n", "line 2"),
    ],
)
def test_a_malformed_checkpoint_says_where(text: str, where: str, tmp_path: Path) -> None:
    """The file, the line, what stands there and what was expected."""
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError) as raised:
        read_offset_checkpoint(path)
    assert str(raised.value).startswith(f"{path}: ") and where in str(raised.value)


def test_leader_epochs_are_those_of_the_log(tmp_path: Path) -> None:
    """What stands in the file, and what a broker keeps of it between log start and log end offset."""
    path = tmp_path / "leader-epoch-checkpoint"
    assert read_leader_epochs(tmp_path) is None
    path.write_text("0\n4\n0 0\n3 10\n4 20\n7 30\n")
    epochs = read_leader_epochs(tmp_path)
    assert epochs is not None and epochs.checkpoint() == path.read_bytes()
    assert epochs.within(0, 31).checkpoint() == path.read_bytes()
    assert epochs.within(15, 30).checkpoint() == b"0\n2\n3 15\n4 20\n"
    assert epochs.within(20, 21).checkpoint() == b"0\n1\n4 20\n"
    path.write_text("0\n2\n3 10\n-1 20\n")
    with pytest.raises(CheckpointError, match="line 4: '-1 20', expected <epoch> <start offset>"):
        read_leader_epochs(tmp_path)
