"""A planned segment is told from another file, and a log dir that is not mounted from one whose partitions are gone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.retention.plan import PartitionDeletion, PlannedSegment, log_dirs_of
from kidxlib.storage.location import Directory


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t-0" / "00000000000000000007.log"
    path.parent.mkdir()
    path.write_bytes(b"log")
    return path


def planned(log: Path) -> PlannedSegment:
    status = log.stat()
    return PlannedSegment(7, status.st_size, status.st_mtime_ns, status.st_ino)


def deletion(root: Path, partition: int, index: str | None = None) -> PartitionDeletion:
    directory = Directory(str(root), f"t-{partition}")
    other = directory if index is None else Directory(index, f"t-{partition}")
    return PartitionDeletion(("it", "t", partition), directory, other, ())


def test_each_of_size_time_and_inode_tells_another_file(log: Path) -> None:
    then, status = planned(log), log.stat()
    assert not then.differs(status)
    for other in (
        replace(then, log_bytes=4),
        replace(then, log_mtime_ns=0),
        replace(then, log_mtime_ns=None),
        replace(then, log_inode=0),
    ):
        assert other.differs(status)
    assert not replace(then, log_inode=None).differs(status), "a plan without inodes"


def test_what_differs_is_said_of_both(log: Path) -> None:
    then = planned(log)
    log.write_bytes(b"longer")
    os.utime(log, ns=(5, 5))
    said = then.difference(str(log), log.stat())
    assert said.startswith(f"{log}: 6 bytes, modified at 5 ns, inode {log.stat().st_ino}; planned as 3 bytes, ")


def test_beside_logs_there_is_one_directory_and_with_an_index_directory_two(tmp_path: Path) -> None:
    alone, apart = deletion(tmp_path, 0), deletion(tmp_path, 0, str(tmp_path / "index"))
    assert [str(each) for each in alone.directories] == [f"{tmp_path}/t-0"]
    assert [str(each) for each in apart.directories] == [f"{tmp_path}/t-0", f"{tmp_path}/index/t-0"]
    assert apart.log_path(PlannedSegment(7, 0, 0)) == f"{tmp_path}/t-0/00000000000000000007.log"


def test_one_partition_shows_that_a_log_dir_is_mounted(log: Path, tmp_path: Path) -> None:
    """A link that leads nowhere is there, too: it is refused later, with its name."""
    away = tmp_path / "away"
    away.mkdir()
    assert log_dirs_of([deletion(tmp_path, 1), deletion(tmp_path, 0)]) == [tmp_path]
    with pytest.raises(UsageError, match=r"away: no partition of the plan is there, t-1 neither; is it mounted\?"):
        log_dirs_of([deletion(tmp_path, 0), deletion(away, 1)])
    (away / "t-1").symlink_to(tmp_path / "nowhere")
    assert log_dirs_of([deletion(tmp_path, 0), deletion(away, 1)]) == [tmp_path, away]
