"""`kidx verify` on disks of a node: all that it meets is named with what to do, of a log dir and of a partition."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from click.testing import CliRunner, Result

from kidxlib.audit.startup.last_stop import last_stops
from kidxlib.cli.main import kidx
from kidxlib.storage.log_dir import META_PROPERTIES, PARTITION_METADATA
from kidxlib.terminal.exit_codes import ExitCode
from tests.kafka.start_disk import Disk, unpack


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
        ("orders-2", f"no {PARTITION_METADATA}", "put the topic's id"),
        ("away-0", "away-0 has its replicas on nodes", "copy it to a directory called away-0, outside of the log dirs"),
    ):
        assert any(f"{where}: {found}" in line and to_do in line for line in fails), (where, fails)
    assert "-stray: 1 folder, " in ended.output


def test_with_metadata_the_wrong_folder_alone_is_accused(tmp_path: Path) -> None:
    """In the log dir, by the partition's own directory, and by metadata of another log dir."""
    disk = unpack(tmp_path)
    copy = disk.a / "copy-0"
    shutil.copytree(disk.a / "orders-1", copy)
    away = disk.a / "away-0"
    shutil.copytree(disk.spare / "away-0", away)
    reported = json.loads(_verify(disk.a, "--json").stdout)["partitions"]
    failing = {f"{each['topic']}-{each['partition']}" for each in reported if each["failure"]}
    said = {line for each in reported if each["failure"] for line in each["failure"].split("\n")}
    assert failing and {line.split(": ")[0] for line in said} == {f"{copy}/{PARTITION_METADATA}", str(away)}

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


def test_a_log_dir_of_another_node(tmp_path: Path) -> None:
    disk = unpack(tmp_path)
    for log_dir in (disk.a, disk.b):
        path = log_dir / META_PROPERTIES
        path.write_text(path.read_text().replace("node.id=1", "node.id=3"))
    ended = _verify(disk.a)
    assert ended.return_value == ExitCode.PROBLEMS_FOUND
    assert "node.id is 3, and the cluster's metadata has this log dir as one of node 1" in ended.output
