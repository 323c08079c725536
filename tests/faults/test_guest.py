"""A guest in a Kafka log dir: the broker's lock, links that lead elsewhere, owners, what truncated segments keep."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from kidxlib.terminal.exit_codes import ExitCode
from tests.faults import children
from tests.faults.conftest import Guard
from tests.faults.processes import Child, kidx
from tests.faults.trees import (
    age,
    indexes,
    kafkas_indexes,
    link_samples,
    lying_log,
    small_log,
    snapshot,
    staging_files,
    write_log,
)

_BASE = "00000000000000000000"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The sample's partitions."""
    return link_samples(tmp_path / "kafka-logs", 1)


def test_a_log_dir_that_a_broker_holds_is_not_built_in(log_dir: Path, guard: Guard) -> None:
    """A process that locks the file as a broker does and is then killed (-9), as a broker may be. The file stays."""
    guard(log_dir)
    lock = log_dir / ".lock"
    with Child(children.hold_lock, lock) as holder:
        assert holder.received.recv() == "held"
        before = snapshot(log_dir)
        kidx("build", log_dir, "--in-place").assert_one_line(ExitCode.USAGE, lock)
        kidx("build", log_dir / "compacted-0", "--in-place").assert_one_line(ExitCode.USAGE, lock)
        assert snapshot(log_dir) == before
        holder.process.kill()
        assert holder.end()[1] == -signal.SIGKILL
    ended = kidx("build", log_dir, "--in-place")
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert indexes(log_dir) == kafkas_indexes(log_dir) and staging_files(log_dir) == []
    assert lock.read_bytes() == b""


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path, log_dir: Path, guard: Guard) -> None:
    """A link to a file that does not exist."""
    guard(log_dir)
    (log_dir / ".lock").symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path)
    kidx("build", log_dir, "--in-place").assert_one_line(ExitCode.USAGE, log_dir / ".lock")
    assert snapshot(tmp_path) == before


def test_a_partition_directory_that_is_a_link_is_not_written_through_in_place(
    tmp_path: Path, log_dir: Path, guard: Guard
) -> None:
    """A partition moved out of the log dir, a link in its place."""
    outside = (log_dir / "compacted-0").rename(tmp_path / "compacted-0")
    (log_dir / "compacted-0").symlink_to(outside)
    guard(tmp_path)
    before = snapshot(tmp_path)
    kidx("build", log_dir, "--in-place").assert_one_line(ExitCode.USAGE, log_dir / "compacted-0")
    assert snapshot(tmp_path) == before


def test_an_index_directory_does_not_lead_out_of_itself(tmp_path: Path, log_dir: Path, guard: Guard) -> None:
    """A partition directory that is a link to a directory with an old index and an old staging file: one line, and that
    directory is as before. Then final names that are links to an outside file, one of them with the right content: each
    becomes a regular file, and the outside file is as before.
    """
    guard(log_dir)
    expected = kafkas_indexes(log_dir)
    index_dir, outside = tmp_path / "index", tmp_path / "outside"
    index_dir.mkdir()
    outside.mkdir()
    for name in (f"{_BASE}.index", f".kidx-0-{_BASE}.index.tmp"):
        (outside / name).write_bytes(b"outside")
    age(outside.iterdir())
    (index_dir / "compacted-0").symlink_to(outside)
    before = snapshot(outside)
    kidx("build", log_dir, "--index-dir", index_dir).assert_one_line(ExitCode.FAILED, index_dir / "compacted-0")
    assert snapshot(outside) == before

    (index_dir / "compacted-0").unlink()
    (index_dir / "compacted-0").mkdir()
    right = f"compacted-0/{_BASE}.timeindex"
    (outside / "right").write_bytes(expected[right])
    (index_dir / right).symlink_to(outside / "right")
    (index_dir / "compacted-0" / f"{_BASE}.index").symlink_to(outside / f"{_BASE}.index")
    before = snapshot(outside)
    ended = kidx("build", log_dir, "--index-dir", index_dir)
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert snapshot(outside) == before
    assert indexes(index_dir) == expected
    assert [path for path in index_dir.rglob("*") if path.is_symlink()] == []


def test_odd_things_under_a_final_name_are_replaced_or_named(tmp_path: Path, guard: Guard) -> None:
    """A segment whose time index is empty, so that reading nothing from a pipe could pass for the right content."""
    log_dir, index_dir = tmp_path / "kafka-logs", tmp_path / "index"
    write_log(log_dir / "topic-0", 0, b"")
    guard(log_dir)
    (index_dir / "topic-0").mkdir(parents=True)
    pipe = index_dir / "topic-0" / f"{_BASE}.timeindex"
    os.mkfifo(pipe)
    ended = kidx("build", log_dir, "--index-dir", index_dir)
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert indexes(index_dir) == {f"topic-0/{_BASE}.index": b"", f"topic-0/{_BASE}.timeindex": b""}

    pipe.unlink()
    pipe.mkdir()
    before = snapshot(index_dir)
    kidx("build", log_dir, "--index-dir", index_dir).assert_one_line(ExitCode.FAILED, pipe)
    assert snapshot(index_dir) == before


def test_new_files_in_place_belong_to_whom_the_log_belongs(tmp_path: Path, guard: Guard) -> None:
    """Logs of another user with other modes, one of them beside an old index of root's."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files away")
    log_dir = tmp_path / "kafka-logs"
    wanted = {}
    for base_offset, owner, group, mode in ((0, 12345, 23456, 0o640), (40, 12346, 23457, 0o600), (80, 0, 0, 0o664)):
        log = write_log(log_dir / "topic-0", base_offset, small_log(base_offset=base_offset))
        os.chown(log, owner, group)
        log.chmod(mode)
        for suffix in (".index", ".timeindex"):
            wanted[log.with_suffix(suffix)] = (owner, group, mode)
    (log_dir / "topic-0" / f"{_BASE}.index").write_bytes(b"old")
    guard(log_dir)
    directory = (log_dir / "topic-0").stat()

    ended = kidx("build", log_dir, "--in-place")
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    found = {path: path.stat() for path in wanted}
    assert {path: (at.st_uid, at.st_gid, at.st_mode & 0o7777) for path, at in found.items()} == wanted
    now = (log_dir / "topic-0").stat()
    assert (now.st_uid, now.st_gid, now.st_mode) == (directory.st_uid, directory.st_gid, directory.st_mode)


def test_truncated_segments_keep_what_they_have_in_place(tmp_path: Path, guard: Guard) -> None:
    """A log with bytes that are no batch after its sound ones, with old indexes, and one without. Beside a log that
    Kafka itself fails on (over 2 GiB) nothing is written in either case.
    """
    log_dir = tmp_path / "kafka-logs"
    for base_offset in (0, 50):
        write_log(log_dir / "topic-0", base_offset, small_log(base_offset=base_offset) + b"no batch")
    write_log(log_dir / "topic-0", 100, small_log(base_offset=100))
    lying_log(log_dir / "topic-1", 0, 2**31)
    for name in (f"topic-0/{_BASE}.index", f"topic-0/{_BASE}.timeindex", f"topic-1/{_BASE}.index"):
        (log_dir / name).write_bytes(b"old")
    guard(log_dir)
    before = indexes(log_dir)
    new = {f"topic-0/{100:020d}.index", f"topic-0/{100:020d}.timeindex"}

    ended = kidx("build", log_dir, "--in-place", "--json")
    assert (ended.code, ended.err) == (ExitCode.PROBLEMS_FOUND, "")
    assert ended.json["by_published"] == {"kept": 2, "written": 1, "none": 1}
    after = indexes(log_dir)
    assert after.keys() == before.keys() | new
    assert {name: after[name] for name in before} == before

    ended = kidx("build", log_dir, "--in-place", "--accept-truncated", "--json")
    assert (ended.code, ended.err) == (ExitCode.PROBLEMS_FOUND, "")
    assert ended.json["by_published"] == {"written": 2, "unchanged": 1, "none": 1}
    index_dir = tmp_path / "index"
    assert kidx("build", log_dir, "--index-dir", index_dir).code == ExitCode.PROBLEMS_FOUND
    assert indexes(log_dir) == indexes(index_dir) | {f"topic-1/{_BASE}.index": b"old"}
    assert len(indexes(index_dir)) == 6 and staging_files(tmp_path) == []
