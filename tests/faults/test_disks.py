"""Disks that are full or cannot be written to: one clear line, nothing broken, and later the same command works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kidxlib.terminal.exit_codes import ExitCode
from tests.faults.conftest import Guard
from tests.faults.disks import mounted, remount
from tests.faults.processes import Ended, kidx
from tests.faults.trees import (
    LogStates,
    age,
    assert_no_offset_index_alone,
    assert_whole,
    indexes,
    kafkas_indexes,
    link_samples,
    snapshot,
    staging_files,
)
from tests.support.logs.golden import SAMPLES


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 partitions, 144 segments, 288 index files, of which each takes a page at least: more than a megabyte. They are
    so many that a worker process builds them; of one topic alone the command itself does.
    """
    return link_samples(tmp_path_factory.mktemp("disks") / "kafka-logs", 12)


def _build(log_dir: Path, index_dir: Path, *more: str) -> Ended:
    return kidx("build", log_dir, "--index-dir", index_dir, "--processes", "1", *more)


@pytest.mark.parametrize("small", ["size=600k", "nr_inodes=150"])
def test_a_full_disk_is_named_and_the_build_goes_on_when_it_has_room(
    small: str, tmp_path: Path, log_dir: Path, guard: Guard
) -> None:
    """A file system in memory that is too small, then the same command once it has been enlarged."""
    guard(log_dir)
    expected = kafkas_indexes(log_dir)
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", small) as disk:
        ended = _build(log_dir, disk / "index")
        ended.assert_one_line(ExitCode.FAILED, disk / "index", "index: ", "No space left on device")
        found = indexes(disk / "index")
        assert staging_files(disk) == [] and len(found) < len(expected)
        assert_whole(found, expected)
        assert_no_offset_index_alone(found)

        remount(disk, "size=64m,nr_inodes=10000")
        ended = _build(log_dir, disk / "index")
        assert (ended.code, ended.err) == (ExitCode.OK, "")
        assert indexes(disk / "index") == expected and staging_files(disk) == []


def test_a_read_only_index_directory_is_named_and_not_touched(tmp_path: Path, log_dir: Path, guard: Guard) -> None:
    """A file system in memory with the indexes of one topic, made read-only; and the same with a staging file of a
    killed run, which cannot be swept.
    """
    guard(log_dir)
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=64m") as disk:
        index_dir = disk / "index"
        assert _build(log_dir, index_dir, "--topics", "plain-zstd").code == ExitCode.OK
        before = snapshot(disk)
        remount(disk, "ro")
        ended = _build(log_dir, index_dir, "--topics", "plain-zstd", "--json")
        assert (ended.code, ended.json["by_published"]) == (ExitCode.OK, {"unchanged": 24}), ended
        _build(log_dir, index_dir).assert_one_line(ExitCode.FAILED, index_dir, "index: ", "Read-only file system")
        assert snapshot(disk) == before

        remount(disk, "rw")
        left_over = index_dir / "plain-zstd-3" / ".kidx-0-00000000000000000000.index.tmp"
        left_over.write_bytes(b"left")
        age([left_over])
        remount(disk, "ro")
        _build(log_dir, index_dir).assert_one_line(ExitCode.FAILED, index_dir, "Read-only file system")
        remount(disk, "rw")
        assert _build(log_dir, index_dir).code == ExitCode.OK
        assert indexes(disk / "index") == kafkas_indexes(log_dir) and staging_files(disk) == []


def test_a_read_only_log_dir_is_not_built_in(tmp_path: Path) -> None:
    """The sample on a file system in memory, made read-only, so that the lock cannot be taken."""
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=64m") as disk:
        log_dir = link_samples(disk / "kafka-logs", 1)
        before, logs = snapshot(disk), LogStates.of(log_dir)
        remount(disk, "ro")
        kidx("build", log_dir, "--in-place").assert_one_line(ExitCode.USAGE, log_dir / ".lock", "Read-only file system")
        assert snapshot(disk) == before
        logs.assert_unchanged()


def test_a_disk_that_fills_up_amid_a_build_in_place_has_no_file_of_ours_left(tmp_path: Path) -> None:
    """A broker's directory is as before, also where offset indexes waited for their transaction indexes; what a killed
    run left waiting there goes, too. A partition with transactions on a file system in memory with room for some of its
    indexes, then for all.
    """
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=2m,nr_inodes=100") as disk:
        log_dir = disk / "kafka-logs"
        shutil.copytree(SAMPLES / "txn-mixed-0", log_dir / "txn-mixed-0")
        (log_dir / ".lock").touch()
        (log_dir / "txn-mixed-0" / ".kidx-held-00000000000000000084.index.tmp").write_bytes(b"of a killed run")
        full = shutil.disk_usage(disk)
        (disk / "filler").write_bytes(bytes(full.free - 8_192))
        build = ("build", log_dir, "--in-place", "--processes", "1")
        kidx(*build).assert_one_line(ExitCode.FAILED, log_dir / "txn-mixed-0", "No space left on device")
        assert staging_files(disk) == []
        (disk / "filler").unlink()
        assert kidx(*build).code == ExitCode.OK
        assert staging_files(disk) == [] and len(indexes(log_dir)) > 8


def test_a_scratch_directory_that_cannot_be_used_is_named(
    tmp_path: Path, log_dir: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`TMPDIR` is missing, is a file, and is a file system in memory that is too small and then is enlarged."""
    guard(log_dir)
    (tmp_path / "file").touch()
    for name, reason in (("missing", "No such file or directory"), ("file", "Not a directory")):
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        _build(log_dir, tmp_path / "index").assert_one_line(ExitCode.FAILED, tmp_path / name, reason, "TMPDIR")
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=16k") as disk:
        monkeypatch.setenv("TMPDIR", str(disk))
        _build(log_dir, tmp_path / "index").assert_one_line(ExitCode.FAILED, disk, "No space left on device", "TMPDIR")
        assert list(disk.iterdir()) == [] and staging_files(tmp_path) == []

        remount(disk, "size=16m")
        ended = _build(log_dir, tmp_path / "index")
        assert (ended.code, ended.err) == (ExitCode.OK, "")
        assert list(disk.iterdir()) == []
    assert indexes(tmp_path / "index") == kafkas_indexes(log_dir)
