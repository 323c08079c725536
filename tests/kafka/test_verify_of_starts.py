"""`kidx verify` on disks of a node: all that it meets is named with what to do, of a log dir and of a partition."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kidxlib.audit.startup.last_stop import last_stops
from kidxlib.cli.main import kidx
from kidxlib.format.checkpoint_files import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    offset_checkpoint,
)
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.format.topic_partition import TopicPartition, parse_partition_directory
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA, read_offset_checkpoint
from kidxlib.terminal.exit_codes import ExitCode
from tests.kafka.start_disk import Disk, unpack
from tests.support.logs.batches import Batch


def _verify(*arguments: str | Path) -> Result:
    return CliRunner().invoke(kidx, ["verify", *map(str, arguments)], standalone_mode=False)


def _with_five_obstacles(tmp_path: Path) -> Disk:
    disk = unpack(tmp_path)
    (disk.metadata / "quorum-state").write_bytes(bytes(20_000))
    disk.snapshots[-1].write_bytes(b"")
    (disk.a / "bootstrap.checkpoint").write_bytes(b"")
    shutil.copytree(disk.spare / "away-0", disk.a / "away-0")
    shutil.copytree(disk.a / "orders-1", disk.a / f"orders-1.{0:032x}-stray")
    (disk.a / "orders-2" / PARTITION_METADATA).unlink()
    return disk


def test_all_obstacles_are_named_with_what_to_do(tmp_path: Path) -> None:
    disk = _with_five_obstacles(tmp_path)
    ended = _verify(disk.a)
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    fails = [line for line in ended.output.splitlines() if line.startswith("fail: ")]
    for where, found, to_do in (
        ("__cluster_metadata-0/quorum-state", "line 1: 20,000 NUL bytes, expected JSON", "remove the file: a node"),
        (disk.snapshots[-1].name, "empty, expected a whole snapshot", "move the file away: the node then reads"),
        ("bootstrap.checkpoint", "no metadata.version in it", "remove the file"),
        ("orders-2", f"no {PARTITION_METADATA}", "write two lines into"),
        ("away-0", "away-0 has its replicas on nodes", "copy it to a directory called away-0, outside of the log dirs"),
    ):
        assert any(f"{where}: {found}" in line and to_do in line for line in fails), (where, fails)
    assert "-stray: 1 directory, " in ended.output


@pytest.mark.parametrize(("content", "version"), [(b"", 0), (b"", 1), (bytes(200), 0)], ids=["empty", "voters", "NUL"])
def test_the_snapshot_that_formatting_makes(tmp_path: Path, content: bytes, version: int) -> None:
    """A node of 4.4.0 that has no later one serves all of its log where it is empty, and ends where it holds zeros.
    Where the quorum's voters are in it, they are lost.
    """
    disk = unpack(tmp_path)
    state = disk.metadata / "quorum-state"
    state.write_text(json.dumps({**json.loads(state.read_text()), "votedDirectoryId": "", "data_version": version}))
    for snapshot in disk.snapshots:
        snapshot.unlink()
    (disk.metadata / "00000000000000000000-0000000000.checkpoint").write_bytes(content)
    failures = json.loads(_verify(disk.a, disk.b, "--json").stdout)["log_dir_failures"]
    assert len(failures) == (content != b"" or version > 0), failures


def test_with_metadata_the_wrong_folder_alone_is_accused(tmp_path: Path) -> None:
    """In the log dir, by the partition's own directory, and by metadata of another log dir."""
    disk = unpack(tmp_path)
    copy = disk.a / "copy-0"
    shutil.copytree(disk.a / "orders-1", copy)
    away = disk.a / "away-0"
    shutil.copytree(disk.spare / "away-0", away)
    said = json.loads(_verify(disk.a, "--json").stdout)["log_dir_failures"]
    assert [line.split(": ")[0] for line in said] == [str(away), f"{copy}/{PARTITION_METADATA}"]

    assert _verify(away).return_value == ExitCode.PROBLEMS_FOUND
    assert "away-0 has its replicas on nodes 2, and this is node 1" in _verify(away).output
    assert _verify(disk.a / "orders-1").return_value == ExitCode.OK
    shutil.copytree(away, disk.b / "away-0")
    assert _verify(disk.b, "--cluster-metadata", disk.metadata).return_value == ExitCode.PROBLEMS_FOUND


def test_without_metadata_folders_are_compared_with_each_other(tmp_path: Path) -> None:
    disk = unpack(tmp_path)
    shutil.rmtree(disk.metadata)
    shutil.copytree(disk.a / "orders-1", disk.a / "copy-0")
    shutil.move(disk.a / "ledger-1", disk.a / f"ledger-1.{0:032x}-future")
    obstacles = last_stops([disk.a])[disk.a].obstacles
    assert [os.path.relpath(str(each.where), disk.a) for each in obstacles] == [
        f"copy-0/{PARTITION_METADATA}",
        f"ledger-1.{0:032x}-future",
    ]


@pytest.mark.parametrize("arguments", ["a b", "a b --this-dir-alone", "b", "b --cluster-metadata a"])
def test_a_log_dir_whose_meta_properties_is_missing(tmp_path: Path, arguments: str) -> None:
    """Alone, too, it is the log dir of a node with KRaft: that left other files there."""
    disk = unpack(tmp_path)
    (disk.b / META_PROPERTIES).unlink()
    ended = _verify(*(str(getattr(disk, word, word)) for word in arguments.split()))
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    assert f"fail: {disk.b / META_PROPERTIES}: missing; a broker that starts ends" in ended.output
    assert (f"may be it: {META_PROPERTIES} is not in {disk.b}: look" in ended.output) == (arguments == "a b")


@pytest.mark.parametrize(
    ("name", "found", "to_do"),
    [
        ("node.id", "{value}, and the cluster's metadata has this log dir as one of node 1; ", "write node.id=1 into"),
        ("cluster.id", "{value}, that of {a} is ", "into the file, if that is the cluster's: its metadata has this"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--this-dir-alone",)], ids=["all", "this-dir-alone"])
def test_log_dirs_of_one_node_that_say_they_are_not(
    tmp_path: Path, name: str, found: str, to_do: str, options: tuple[str, ...]
) -> None:
    """The metadata has both: `verify` and `recover` name the file that is wrong, and keep the log dir."""
    disk = unpack(tmp_path)
    path, value = disk.b / META_PROPERTIES, "7" if name == "node.id" else "A" * 22
    path.write_text(re.sub(rf"(?m)^{name}=.*$", f"{name}={value}", path.read_text()))
    says = f"{path}: {name} is {found.format(value=value, a=disk.a)}"
    ended = _verify(disk.a, disk.b, *options)
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    [fail] = [line for line in ended.output.splitlines() if line.startswith("fail: ")]
    assert fail.startswith(f"fail: {says}") and to_do in fail
    planned = CliRunner().invoke(kidx, ["recover", str(disk.a), str(disk.b)], standalone_mode=False)
    assert f"refused: {fail.removeprefix('fail: ')}" in planned.output


def test_what_checkpoints_do_not_say_is_named(tmp_path: Path) -> None:
    """The broker made all files, and its clean stop wrote a line for each partition into two of them."""
    disk = unpack(tmp_path)
    assert json.loads(_verify(disk.a, disk.b, "--json").stdout)["lost_checkpoints"] == []
    (disk.a / HIGH_WATERMARK_CHECKPOINT).unlink()
    points = read_offset_checkpoint(disk.b / RECOVERY_POINT_CHECKPOINT) or {}
    assert points.pop(TopicPartition("orders", 0))
    (disk.b / RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(points))
    ended = _verify(disk.a, disk.b)
    count = sum(1 for each in disk.a.iterdir() if parse_partition_directory(each.name)) - 1  # but for the metadata's
    expected = [
        f"{disk.a / HIGH_WATERMARK_CHECKPOINT}: missing ({count} partitions), though a broker makes the file as it "
        "starts: it is not known whether logs end below their high watermark; a broker that starts takes the log start "
        "for it until the replicas in sync are there; restore the file, if a copy of this log dir has it",
        f"{disk.b / RECOVERY_POINT_CHECKPOINT}: has no line for 1 partition, as orders-0, though a clean stop writes "
        "one: it is not known whether logs end below what was flushed to disk; a broker that starts takes 0 for it, "
        "and reads all of the logs after an unclean stop; restore the file, if a copy of this log dir has it",
    ]
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    said = [line for line in ended.output.splitlines() if line.startswith("fail: ")]
    assert said == [f"fail: {line}" for line in expected]
    assert json.loads(_verify(disk.a, disk.b, "--json").stdout)["lost_checkpoints"] == expected


def test_a_brokers_own_files_are_looked_at_beside_index_files_elsewhere(tmp_path: Path) -> None:
    """With a catalog, too: leader epochs and snapshots always, of indexes it is said that they were left out."""
    disk, catalog = unpack(tmp_path / "disk"), tmp_path / "catalog"
    (disk.b / "orders-0" / segment_file(10, LOG_SUFFIX)).write_bytes(Batch(leader_epoch=2).encode(10))
    points = disk.b / RECOVERY_POINT_CHECKPOINT
    points.write_text(points.read_text().replace("orders 0 10", "orders 0 11"))
    named = ("--source", f"a={disk.a}", "--source", f"b={disk.b}", "--catalog", str(catalog))
    built = CliRunner().invoke(kidx, ["build", *named, "--index-dir", str(tmp_path / "index")], standalone_mode=False)
    assert built.return_value == ExitCode.OK
    assert _verify(*named).return_value == ExitCode.OK
    for path in (disk.b / "orders-0").glob(segment_file(0, ".*")):
        path.unlink()
    (disk.a / "orders-1" / LEADER_EPOCH_CHECKPOINT).unlink()
    ended = _verify(*named, "--json")
    found = json.loads(ended.stdout)
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    assert {(each["path"], each["reason"]) for each in found["files"] if each["verdict"] == "broken"} == {
        (str(disk.b / "orders-0" / LEADER_EPOCH_CHECKPOINT), "first-logs-missing"),
        (str(disk.a / "orders-1" / LEADER_EPOCH_CHECKPOINT), "missing-epoch"),
    }
    assert found["beside_logs_not_looked_at"][".index"] == len([*disk.a.glob("*/*.index"), *disk.b.glob("*/*.index")])
    left = " .timeindex beside the logs, which a broker that starts takes: kidx verify"
    assert f"{left} {disk.a} {disk.b} looks at these" in _verify(*named).output


def test_a_log_dir_of_another_node(tmp_path: Path) -> None:
    disk = unpack(tmp_path)
    for log_dir in (disk.a, disk.b):
        path = log_dir / META_PROPERTIES
        path.write_text(path.read_text().replace("node.id=1", "node.id=3"))
    ended = _verify(disk.a)
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    assert "node.id is 3, and the cluster's metadata has this log dir as one of node 1" in ended.output
