"""Partitions whose directories are gone are known by what else names them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kidxlib.audit.startup.absent import AbsentPartition, ListedLogDir, absent_partitions
from kidxlib.audit.startup.directories import ANYWHERE
from kidxlib.audit.startup.last_stop import last_stops
from kidxlib.format.checkpoint_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_DIR_CHECKPOINTS,
    offset_checkpoint,
)
from kidxlib.format.topic_partition import TopicPartition
from kidxlib.log.metadata_image import ClusterMetadata, read_cluster_metadata
from kidxlib.log.metadata_replica import METADATA_DIRECTORY
from tests.docs.log_dirs import put
from tests.jobs.archive import assert_refused
from tests.support.cluster_metadata import (
    OTHER_ID,
    change,
    data,
    leader_change,
    of_broker,
    partition,
    put_metadata,
    snapshot,
    topic,
    topic_id,
    write_checkpoints,
    write_copy,
    write_properties,
)
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import kidx_here

_HERE, _THERE = topic_id("h"), topic_id("t")
_METADATA = "the cluster's metadata as of "
_MOVED = f"orders-1.{'0' * 32}"


@dataclass(frozen=True)
class _Case:
    """A log dir with `orders-0`, and what names `orders-1`.

    Attributes:
        checkpoint: with an offset of 0 for it; None for none.
        assigned: the log dir that the metadata has for it; None where there is no metadata, "" where it has no such
            topic.
        beside: a directory, or with a dot at its end a file, of the same log dir.
        known_to: the beginning of what is said; None where nothing is.
    """

    name: str
    checkpoint: str | None
    assigned: str | None
    beside: str | None
    known_to: str | None


_CASES = (
    *(_Case(name, name, None, None, name) for name in LOG_DIR_CHECKPOINTS),
    _Case("metadata", None, _HERE, None, _METADATA),
    _Case("moved to another log dir", HIGH_WATERMARK_CHECKPOINT, _THERE, None, None),
    _Case(
        "in no log dir yet", HIGH_WATERMARK_CHECKPOINT, min(ANYWHERE), None, HIGH_WATERMARK_CHECKPOINT
    ),  # as after an upgrade to 3.7
    _Case("deleted from the cluster", HIGH_WATERMARK_CHECKPOINT, "", None, None),
    _Case("about to be deleted", HIGH_WATERMARK_CHECKPOINT, None, f"{_MOVED}-delete", None),
    _Case("it is there", HIGH_WATERMARK_CHECKPOINT, _HERE, "orders-1", None),
    *(
        _Case(f"a copy on its way, in {name}, {assigned}", name, assigned, f"{_MOVED}-future", None)
        for name in LOG_DIR_CHECKPOINTS
        if name != CLEANER_CHECKPOINT
        for assigned in (None, min(ANYWHERE))
    ),
    _Case("a copy on its way, and cleaned", CLEANER_CHECKPOINT, None, f"{_MOVED}-future", CLEANER_CHECKPOINT),
    _Case("a copy that the broker takes in its place", None, _HERE, f"{_MOVED}-future", None),
    _Case("set aside", None, _HERE, f"{_MOVED}-stray", _METADATA),
    _Case("deleted, and the metadata has it", None, _HERE, f"{_MOVED}-delete", _METADATA),
    _Case("a file of its name", CLEANER_CHECKPOINT, None, "orders-1.", CLEANER_CHECKPOINT),
)


def _write_checkpoint(log_dir: Path, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    (log_dir / name).write_bytes(offset_checkpoint(offsets))


def _absent(log_dir: Path, metadata: list[ClusterMetadata]) -> list[AbsentPartition]:
    return list(absent_partitions([ListedLogDir.of(log_dir, last_stops([log_dir])[log_dir])], metadata))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_what_names_an_absent_partition_is_said(case: _Case, tmp_path: Path) -> None:
    put(tmp_path / "orders-0", 0, [Batch()])
    write_properties(tmp_path, _HERE)
    if case.checkpoint is not None:
        _write_checkpoint(tmp_path, case.checkpoint, {TopicPartition("orders", 1): 0})
    if case.beside is not None:
        made = tmp_path / case.beside.removesuffix(".")
        made.touch() if case.beside.endswith(".") else made.mkdir()
    metadata = []
    if case.assigned is not None:
        of_topic = [topic("orders", OTHER_ID), partition(OTHER_ID, 1, [1], [case.assigned])] if case.assigned else []
        metadata = [read_cluster_metadata(put_metadata(tmp_path, [*of_topic, topic("u", topic_id("u"))]))]
    found = _absent(tmp_path, metadata)
    assert [each.partition for each in found] == [TopicPartition("orders", 1)][: case.known_to is not None]
    assert all(each.known_to.startswith(str(case.known_to)) for each in found)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_metadata_counts_to_its_end(tmp_path: Path, *, is_deleted: bool) -> None:
    """Of several voters nobody knows what they have committed since the last snapshot, here the first hour long."""
    put(tmp_path / "orders-0", 0, [Batch()])
    write_properties(tmp_path, _HERE)
    _write_checkpoint(tmp_path, HIGH_WATERMARK_CHECKPOINT, {TopicPartition("orders", 1): 7})
    values = [topic("orders", OTHER_ID), partition(OTHER_ID, 0, [1], [_HERE]), partition(OTHER_ID, 1, [1], [_HERE])]
    log = leader_change(0, [1, 2, 3]) + data(1, values)
    last = [change("RemoveTopicRecord", topicId=OTHER_ID)] if is_deleted else [topic("u", topic_id("u"))]
    snapshots = {(4, 0): snapshot([*values, topic("v", topic_id("v"))] if is_deleted else [], 0)}
    metadata = read_cluster_metadata(
        write_copy(tmp_path / METADATA_DIRECTORY, {0: log + data(4, last)}, snapshots if is_deleted else None)
    )
    assert metadata.at_end is not None
    found = _absent(tmp_path, [metadata])
    assert [each.partition for each in found] == ([] if is_deleted else [TopicPartition("orders", 1)])


def test_verify_fails_for_a_partition_that_a_checkpoint_names_with_no_offset(tmp_path: Path) -> None:
    """Recovery points come late: after a crash most partitions have 0 there."""
    put(tmp_path / "orders-0", 0, [Batch()])
    _write_checkpoint(tmp_path, HIGH_WATERMARK_CHECKPOINT, {TopicPartition("orders", 1): 20})
    ended = kidx_here("verify", tmp_path)
    assert ended.code == 3
    [line] = [line for line in ended.out.splitlines() if line.startswith("fail: ")]
    assert line == (
        f"fail: {tmp_path}/orders-1: no segment is there, though the broker's checkpoints say that it had offsets up "
        "to 19; a broker that starts makes an empty log; there is no such directory, and "
        "replication-offset-checkpoint names it; look for the directory on other disks and copies, and put it back; or "
        "let it come from another replica"
    )


def test_verify_of_one_of_two_log_dirs_is_not_well(tmp_path: Path) -> None:
    """What is lost in the other one it cannot see; named together they are, and lend each other the metadata."""
    a, b = tmp_path / "a", tmp_path / "b"
    for log_dir, directory_id, name in ((a, _HERE, "orders-0"), (b, _THERE, "orders-1")):
        put(log_dir / name, 0, [Batch()])
        write_properties(log_dir, directory_id)
    assigned = [partition(OTHER_ID, number, [1], [where]) for number, where in enumerate((_HERE, _THERE, _THERE))]
    node = put_metadata(
        tmp_path / "node",
        [of_broker("RegisterBrokerRecord", 1, [_HERE, _THERE]), topic("orders", OTHER_ID), *assigned],
    )

    def failures(*arguments: str | Path) -> str:
        ended = kidx_here("verify", *arguments, "--cluster-metadata", str(node))
        assert ended.code == 3, ended.err
        return "\n".join(line for line in ended.out.splitlines() if line.startswith("fail: "))

    other = f"broker 1 has 1 more log dir (directory.id {_THERE}), which nobody has named"
    assert other in failures(a) and other not in failures(a, "--this-dir-alone")
    assert "more log dir" not in failures(a, b)
    assert f"{b}/orders-2: no segment is there" in failures(a, b) and "orders-2" not in failures(a)
    shutil.rmtree(b / "orders-1")  # a new disk in the place of the old one, of which nothing is left
    assert all(f"{b}/orders-{number}: no segment is there" in failures(a, b) for number in (1, 2))
    assert_refused(kidx_here("verify", a, a), "given twice; name each log dir once")
    (b / "meta.properties").write_text((a / "meta.properties").read_text())
    assert_refused(kidx_here("verify", a, b), "one of the two is a copy; leave it out")


def test_metadata_with_a_damaged_snapshot_is_compared_and_none_is_said_to_be_missing(tmp_path: Path) -> None:
    """The snapshot keeps the node from starting, and what stands in the log still counts in the same run."""
    put(tmp_path / "orders-0", 0, [Batch()])
    write_properties(tmp_path, _HERE)
    values = [topic("orders", OTHER_ID), *(partition(OTHER_ID, number, [1], [_HERE]) for number in range(2))]
    node = put_metadata(tmp_path, values)
    write_copy(node, {}, {(4, 0): snapshot(values, 0)[:-9]})
    ended = kidx_here("verify", tmp_path, "--json")
    failures = "\n".join(row["failure"] or "" for row in ended.json["partitions"])
    of_log_dir = "\n".join(ended.json["log_dir_failures"])
    assert ended.code == 3 and "-0000000000.checkpoint: no whole snapshot" in of_log_dir
    assert "there is no such directory, and the cluster's metadata as of offset 4" in failures
    assert ended.json["without_metadata"] == []
    shutil.rmtree(str(node))
    said = kidx_here("verify", tmp_path).out.splitlines()
    told = [line for line in said if line.startswith(f"not compared: {tmp_path}: ")]
    assert told == [
        f"not compared: {tmp_path}: topic ids and assignments of directories, and which partitions should be there, as "
        "no __cluster_metadata-0 can be read; --cluster-metadata names one"
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_verify_of_a_node_without_its_metadata_is_not_well(tmp_path: Path, version: int) -> None:
    """Nothing else in its log dirs may be wrong, and the only voter of a quorum sets all of it aside. ZooKeeper's has
    none.
    """
    a, b, node = tmp_path / "a", tmp_path / "b", tmp_path / "node"
    for log_dir, directory_id, name in ((a, _HERE, "orders-0"), (b, _THERE, "orders-1")):
        put(log_dir / name, 0, [Batch()])
        node_id = "node.id" if version else "broker.id"
        properties = f"version={version}\n{node_id}=1\ncluster.id=c\ndirectory.id={directory_id}\n"
        (log_dir / "meta.properties").write_text(properties)
        (log_dir / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
        write_checkpoints(log_dir)
        assert kidx_here("build", log_dir, "--in-place").code == 0
    assigned = [partition(OTHER_ID, number, [1], [where]) for number, where in enumerate((_HERE, _THERE))]
    of_node = of_broker("RegisterBrokerRecord", 1, [_HERE, _THERE])
    put_metadata(node, [of_node, topic("orders", OTHER_ID), *assigned])
    lacks = f"{a}, {b}: node 1 has __cluster_metadata-0 in none of these log dirs: "

    def told(*options: str | Path) -> tuple[int, bool, bool]:
        ended = kidx_here("verify", a, b, *options)
        return ended.code, f"fail: {lacks}" in ended.out, f"warning: {lacks}" in ended.err

    assert told() == ((3, True, False) if version else (0, False, False))
    assert told("--this-dir-alone") == (0, False, version == 1)
    assert told("--cluster-metadata", node) == ((3, True, False) if version else (0, False, False))  # as recover has it
    # A `metadata.log.dir` of its own, and a copy of a log dir that has lost it.
    for directory_id, expected in ((OTHER_ID, (0, False, False)), (_HERE, (3, True, False))):
        write_properties(node, directory_id)
        assert told("--cluster-metadata", node) == (expected if version else (0, False, False))
    (node / "meta.properties").unlink()
    values = leader_change(0, [1, 2, 3]) + data(1, [of_node, topic("orders", OTHER_ID), *assigned])
    shutil.rmtree(node / METADATA_DIRECTORY)
    write_copy(node / METADATA_DIRECTORY, {0: values})
    assert told("--cluster-metadata", node) == (0, False, version == 1)
    assert len(kidx_here("verify", a, b, "--json").json["node_failures"]) == version
    shutil.copytree(node / METADATA_DIRECTORY, b / METADATA_DIRECTORY)
    assert told()[1:] == (False, False)


@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_a_copy_that_a_start_takes_for_the_partition_ends_where_checkpoints_say(tmp_path: Path, end: int) -> None:
    """The metadata has the partition in the log dir of the copy, and no other folder of it is there."""
    folder = tmp_path / f"orders-0.{0:032x}-future"
    put(folder, 0, [Batch()] * 2)  # two records, and no index
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    write_properties(tmp_path, _HERE)
    node = put_metadata(tmp_path, [topic("orders", OTHER_ID), partition(OTHER_ID, 0, [1], [_HERE])])
    write_checkpoints(tmp_path, {TopicPartition("orders", 0): end})
    obstacles = last_stops([tmp_path], metadata=read_cluster_metadata(node))[tmp_path].obstacles
    assert [(each.where, each.is_loss) for each in obstacles] == [(folder, True)] * (end > 2)
    ends = "it ends at offset 2, and checkpoints of the log dir say that offsets up to 2"
    assert all(ends in each.found for each in obstacles)


@pytest.mark.parametrize(
    ("place", "registered", "code"),
    [(_HERE, _THERE, 0), (_THERE, _THERE, 3), (min(ANYWHERE), _THERE, 3), (_HERE, "", 3)],
)
def test_a_log_dir_of_a_fresh_broker_may_have_no_partition(
    tmp_path: Path, place: str, registered: str, code: int
) -> None:
    """The metadata says that none is there; else nobody knows what was."""
    a, b = tmp_path / "a", tmp_path / "b"
    b.mkdir()
    put(a / "orders-0", 0, [Batch()])
    (a / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    for log_dir, directory_id in ((a, _HERE), (b, _THERE)):
        write_properties(log_dir, directory_id)
        write_checkpoints(log_dir)
    ids = [_HERE, *filter(None, [registered])]
    put_metadata(
        a, [of_broker("RegisterBrokerRecord", 1, ids), topic("orders", OTHER_ID), partition(OTHER_ID, 0, [1], [place])]
    )
    for directory in (a / "orders-0", a / METADATA_DIRECTORY):
        assert kidx_here("build", directory, "--in-place").code == 0
    ended = kidx_here("verify", a, b)
    assert (ended.code, "no segment found" in ended.err) == (code, code != 0), ended.out + ended.err
