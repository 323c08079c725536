"""Logs that lie, that change or shrink while they are read, and that cannot be read: a row says so, others are done."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kidxlib.recovery.outcome import Status
from kidxlib.storage.publisher import Published
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults import children
from tests.faults.conftest import Guard
from tests.faults.processes import TooLateError, again_if_too_late, kidx, run_child, running_kidx, stopped
from tests.faults.trees import in_memory, indexes, lying_log, small_log, staging_files, write_log

_SEGMENT_MAX = 2**31 - 1
#: Checking it takes more than a tenth of a second, and so time enough to do something meanwhile.
_SLOW = 1 << 30
#: Where a mapped file is truncated here: no byte past it can be reached, within one of the sound batches of 100 bytes.
_PAGE = 4096


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mapped", "in-chunks"])
def test_a_batch_as_large_as_the_largest_segment_is_checked_in_bounded_memory(
    use_mmap: bool, tmp_path: Path, guard: Guard
) -> None:
    """A sparse file of 2³¹ − 1 bytes that is one batch with a wrong checksum. In chunks, all of it must have been read
    (the kernel counts), with less than 100 MiB of memory more than before.
    """
    log_dir = tmp_path / "kafka-logs"
    lying_log(log_dir / "topic-0", 0, _SEGMENT_MAX)
    write_log(log_dir / "topic-0", 1, small_log(base_offset=1))
    guard(log_dir)
    *ends, (memory, read) = run_child(children.build_measured, log_dir, tmp_path / "index", use_mmap)
    (base_offset, scan_end, _), (_, other_end, _) = ends
    assert (base_offset, scan_end.status, scan_end.reason, scan_end.position) == (
        0,
        Status.TRUNCATED,
        "crc-mismatch",
        0,
    )
    assert other_end.status is Status.OK
    if not use_mmap:
        assert read > _SEGMENT_MAX
        assert memory < 100 << 20


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mapped", "in-chunks"])
def test_a_log_larger_than_kafka_opens_is_not_read(use_mmap: bool, tmp_path: Path, guard: Guard) -> None:
    """Two sparse files, by one byte and by far too large, each starting like a sound log; next to nothing is read."""
    log_dir = tmp_path / "kafka-logs"
    for base_offset, size in ((0, _SEGMENT_MAX + 1), (50, 1 << 40)):
        os.truncate(write_log(log_dir / "topic-0", base_offset, small_log(base_offset=base_offset)), size)
    write_log(log_dir / "topic-0", 100, small_log(base_offset=100))
    guard(log_dir)
    *ends, (memory, read) = run_child(children.build_measured, log_dir, tmp_path / "index", use_mmap)
    assert [(scan_end.status, scan_end.reason, published) for _, scan_end, published in ends] == [
        (Status.QUARANTINED, "segment-too-large", Published.NONE),
        (Status.QUARANTINED, "segment-too-large", Published.NONE),
        (Status.OK, None, Published.WRITTEN),
    ]
    assert "2147483648" in ends[0][1].detail
    assert read < 1 << 20 and memory < 100 << 20
    assert len(indexes(tmp_path / "index")) == 2


def test_whatever_length_a_header_claims_the_scan_ends_there(tmp_path: Path, guard: Guard, rng: random.Random) -> None:
    """Sound batches followed by a header with any size, negative ones too, in files that end there or soon after;
    mapped and in chunks.
    """
    sizes = [-(2**31), -1, 0, 13, 14, 48, 49, 2**31 - 1, *(rng.randrange(-(2**31), 2**31) for _ in range(40))]
    log_dir, sound = tmp_path / "kafka-logs", small_log()
    for partition, size in enumerate(sizes):
        directory = log_dir / f"topic-{partition}"
        lying_log(directory, 0, len(sound) + 61 + rng.randrange(40), sound, size)
        write_log(directory, 100, small_log(base_offset=100))
    guard(log_dir)
    *mapped, _ = run_child(children.build_measured, log_dir, tmp_path / "mapped", True)
    *in_chunks, _ = run_child(children.build_measured, log_dir, tmp_path / "in-chunks", False)
    assert mapped == in_chunks and indexes(tmp_path / "mapped") == indexes(tmp_path / "in-chunks")
    bad = [(scan_end.status, scan_end.position) for base_offset, scan_end, _ in mapped if base_offset == 0]
    assert bad == [(Status.TRUNCATED, len(sound))] * len(sizes)


@again_if_too_late
def test_logs_that_change_while_they_are_read_are_not_indexed(tmp_path: Path) -> None:
    """Logs that take a moment to be checked, the largest first. The one worker is stopped when it has begun with one,
    the log is changed, the worker goes on. Two of them are mapped, the active ones are read in chunks.
    """
    directory = Path(tempfile.mkdtemp(dir=tmp_path))
    log_dir, index_dir = directory / "kafka-logs", directory / "index"
    grown, touched, overwritten, shrunk = (
        lying_log(log_dir / f"topic-{partition}", 0, _SLOW - partition, small_log(100)) for partition in range(4)
    )
    for partition in (0, 1, 4):
        write_log(log_dir / f"topic-{partition}", 100, small_log(base_offset=100))
    command = ("build", log_dir, "--index-dir", index_dir, "--processes", "1", "--json")
    with in_memory(grown, touched), running_kidx(*command) as running:
        with running.stopped_within(grown), grown.open("ab") as file:
            file.write(b"more")
        with running.stopped_within(touched):
            os.utime(touched, ns=(0, 0))
        with stopped(running.reading(overwritten)), overwritten.open("r+b") as file:
            file.write(b"\1")
        with stopped(running.reading(shrunk)):
            os.truncate(shrunk, _PAGE)
    ended = running.ended
    assert (ended.code, ended.err) == (ExitCode.PROBLEMS_FOUND, ""), ended
    details = {row["log_path"]: row["reason_detail"] for row in ended.json["not_well"]}
    assert details.keys() == set(map(str, (grown, touched, overwritten, shrunk)))
    if "truncated" in ended.json["by_status"]:
        raise TooLateError(ended)
    assert {(row["status"], row["reason"]) for row in ended.json["not_well"]} == {("changed", "log-changed")}
    assert str(_SLOW) in details[str(grown)] and str(_SLOW + 4) in details[str(grown)]
    assert str(_SLOW - 3) in details[str(shrunk)]
    assert ended.json["by_published"] == {"none": 4, "written": 3}
    assert {Path(name).name for name in indexes(index_dir)} == {f"{100:020d}.index", f"{100:020d}.timeindex"}
    assert len(indexes(index_dir)) == 6 and staging_files(index_dir) == []


@again_if_too_late
def test_a_mapped_log_that_shrinks_kills_a_worker_and_nothing_else(tmp_path: Path) -> None:
    """A log that takes a moment to be checked is truncated within its sound batches while it is mapped and its worker
    is stopped. In the end its index is what a build of the truncated log writes.
    """
    directory = Path(tempfile.mkdtemp(dir=tmp_path))
    log_dir, index_dir = directory / "kafka-logs", directory / "index"
    log = lying_log(log_dir / "topic-0", 0, _SLOW, small_log(100))
    for name, base_offset in (("topic-0", 100), ("fine-0", 0), ("fine-1", 0)):
        write_log(log_dir / name, base_offset, small_log(base_offset=base_offset))
    command = ("build", log_dir, "--index-dir", index_dir, "--processes", "2", "--json")
    with in_memory(log), running_kidx(*command) as running, running.stopped_within(log):
        os.truncate(log, _PAGE)
    ended = running.ended
    (row,) = ended.json["not_well"]
    if row["status"] == "changed":
        raise TooLateError(ended)
    (line,) = ended.err.splitlines()
    assert ended.code == ExitCode.PROBLEMS_FOUND and line.startswith("warning: a worker process died"), ended
    assert (row["log_path"], row["status"], row["reason_position"]) == (str(log), "truncated", _PAGE // 100 * 100), row
    assert ended.json["by_status"] == {"ok": 3, "truncated": 1}
    assert kidx("build", log_dir, "--index-dir", directory / "again").code == ExitCode.PROBLEMS_FOUND
    assert indexes(index_dir) == indexes(directory / "again") and len(indexes(index_dir)) == 8


def test_what_is_called_like_a_log_and_is_none_is_unreadable(tmp_path: Path, guard: Guard) -> None:
    """Links to nowhere and to themselves, a directory, a pipe and a socket named like logs, mapped and active."""
    log_dir = tmp_path / "kafka-logs"
    write_log(log_dir / "topic-0", 0, small_log())
    write_log(log_dir / "topic-1", 0, small_log())
    write_log(log_dir / "topic-1", 100, small_log(base_offset=100))

    def nowhere(path: Path) -> None:
        path.symlink_to("nowhere.log")

    def loop(path: Path) -> None:
        path.symlink_to(path.name)

    def bind(path: Path) -> None:
        os.mknod(path, stat.S_IFSOCK | 0o644)

    makers = (nowhere, loop, bind, Path.mkdir, os.mkfifo)
    odd = [log_dir / f"topic-{partition}" / f"{n:020d}.log" for n in range(10, 15) for partition in (0, 1)]
    for path, make in zip(odd, [make for make in makers for _ in range(2)], strict=True):
        make(path)
    guard(log_dir)
    ended = kidx("build", log_dir, "--index-dir", tmp_path / "index", "--json")
    assert (ended.code, ended.err) == (ExitCode.PROBLEMS_FOUND, "")
    rows = {row["log_path"]: row for row in ended.json["not_well"]}
    assert rows.keys() == set(map(str, odd))
    assert {row["status"] for row in rows.values()} == {"unreadable"}
    assert all(row["reason"] and row["reason_detail"] for row in rows.values()), rows
    assert len(indexes(tmp_path / "index")) == 6 and staging_files(tmp_path) == []


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """For processes that have given up root's rights; pytest's own directories let nobody in."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user without rights")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def test_logs_that_may_not_be_read_are_unreadable(open_to_all: Path) -> None:
    log_dir, index_dir = open_to_all / "kafka-logs", open_to_all / "index"
    denied = write_log(log_dir / "topic-0", 0, small_log())
    fine = write_log(log_dir / "topic-0", 100, small_log(base_offset=100))
    write_log(log_dir / "topic-1", 0, small_log())
    denied.chmod(0)
    (log_dir / "topic-1").chmod(0)
    index_dir.mkdir()
    os.chown(index_dir, 65534, 65534)
    (denied_row, fine_row, changes) = run_child(children.build_as_nobody, log_dir, index_dir)
    path, scan_end, published = denied_row
    assert (path, scan_end.status, published) == (denied, Status.UNREADABLE, Published.NONE)
    assert (scan_end.reason, scan_end.detail) == ("cannot-read", "Permission denied")
    assert fine_row[0] == fine and fine_row[2] is Published.WRITTEN
    assert len(indexes(index_dir)) == 2
    assert [partition for _, _, partition in changes.to_finish] == [0]


def test_a_copy_that_may_not_be_read_is_not_comparable(open_to_all: Path) -> None:
    for name in ("a", "b"):
        for partition in ("topic-0", "topic-1"):
            write_log(open_to_all / name / partition, 0, small_log())
    next((open_to_all / "b" / "topic-0").glob("*.log")).chmod(0)
    (open_to_all / "b" / "topic-1").chmod(0)
    [(directories, problem)] = run_child(children.compare_as_nobody, open_to_all / "a", open_to_all / "b")
    assert directories == {"topic-0": None, "topic-1": f"{open_to_all / 'b' / 'topic-1'}: Permission denied"}
    assert problem is not None and problem.endswith("Permission denied")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, os.symlink], ids=["pipe", "folder", "loop"])
def test_a_partition_metadata_that_is_none_is_a_warning(
    make: Callable[..., None], tmp_path: Path, guard: Guard
) -> None:
    """A pipe, a directory and a link to itself of that name."""
    log_dir = tmp_path / "kafka-logs"
    write_log(log_dir / "topic-0", 0, small_log())
    metadata = log_dir / "topic-0" / "partition.metadata"
    make(*((metadata.name, metadata) if make is os.symlink else (metadata,)))
    guard(log_dir)
    ended = kidx("build", log_dir, "--index-dir", tmp_path / "index")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"warning: {metadata}: ") and "Errno" not in line
    assert ended.code == ExitCode.OK and len(indexes(tmp_path / "index")) == 2
