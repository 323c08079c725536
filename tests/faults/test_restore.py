"""`kidx restore --apply` with disks that fill up or spoil what is written, killed amid work, and beside brokers."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import shutil
import signal
import termios
import threading
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from kidxlib.errors import PublishError
from kidxlib.format.segment_files import BOOTSTRAP_SNAPSHOT
from kidxlib.operations.restore.new_nodes import UNFINISHED
from kidxlib.storage import file_copy
from kidxlib.storage.log_bytes import UncachedReads
from kidxlib.storage.publisher import FileOwner
from kidxlib.terminal.exit_codes import ExitCode
from tests.faults import children
from tests.faults.disks import mounted
from tests.faults.processes import (
    INTERRUPTED_AFTER,
    KIDX,
    Child,
    again_if_too_late,
    end,
    kidx,
    kill_session,
    start_kidx,
    while_it_runs,
)
from tests.support import page_cache
from tests.support.restored import (
    PARTITION,
    TOPIC_ID,
    WITHOUT_TRANSACTIONS,
    contents_of,
    formatted_log_dir,
    id_of,
    killed_log_dir,
    logs_in,
    write_folder,
)

#: So many partitions, which are copied one after the other.
_PARTITIONS: Final = 12
#: No record was read for `restore-check` then.
_KILLED_AS_IT_READS: Final = f"""
import os, signal
from kidxlib.operations.restore import apply
apply.digest_logs = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
{KIDX}
"""
_EACH_KIND: Final = pytest.mark.parametrize("old", [PARTITION, WITHOUT_TRANSACTIONS], indirect=True)
#: Workers read the records for `restore-check`, however few these are, and each log by itself; {0} is what they do.
_IN_WORKERS: Final = f"""
from kidxlib.operations.restore import apply
from tests.faults import children
apply.digest_logs = children.{{0}}
apply.reads_little = lambda *_: False
apply._GROUP_BYTES_A_CORE = 1
{KIDX}
"""


#: As on a file system that does not say how many files it has room for.
_WITHOUT_A_NUMBER_OF_FILES: Final = f"""
from kidxlib.operations.restore import new_nodes
new_nodes._free_files = lambda _: None
{KIDX}
"""


#: Ctrl-C just before the metadata is written onto a disk that is full by then.
_SIGNAL_AND_FULL_DISK: Final = f"""
import contextlib, os, signal
from kidxlib.operations.restore import apply
write = apply.write_metadata
def interrupted(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    with contextlib.suppress(OSError), open("{{disk}}/filled", "wb", 0) as file:
        while True:
            file.write(bytes(512))
    return write(*arguments)
apply.write_metadata = interrupted
{KIDX}
"""


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Records of logs without transactions are read as soon as these are copied, of others once all is ready."""
    log_dir = killed_log_dir(tmp_path, 1)
    sample: str = getattr(request, "param", PARTITION)
    topic, topic_id, first = ("txn-mixed", TOPIC_ID, 1) if sample == PARTITION else ("plain-zstd", id_of(sample), 0)
    for number in range(first, first + _PARTITIONS - 1):
        write_folder(log_dir, f"{topic}-{number}", topic_id, sample)
    return log_dir


def _arguments(old: Path, new: Path, *options: str) -> list[str | Path]:
    return ["restore", old, "--broker", f"1={new}", "--controller", new, *options, "--json"]


def _planned(old: Path, new: Path) -> str:
    ended = kidx(*_arguments(old, new))
    assert ended.code == ExitCode.OK, ended
    return str(ended.json["plan"])


def _ensure_only_an_empty_log_dir_helps(old: Path, new: Path, bootstrap: bytes) -> None:
    """No metadata was written, a plan into what is there is refused, and into an empty log dir all is restored."""
    assert (new / UNFINISHED).is_file() and (new / BOOTSTRAP_SNAPSHOT).read_bytes() == bootstrap
    again = kidx(*_arguments(old, new))
    assert again.code == ExitCode.USAGE
    assert any("a restore into it was broken off" in line for line in again.json["refused"])
    shutil.rmtree(new)
    formatted_log_dir(new.parent, 1)
    applied = kidx(*_arguments(old, new, "--apply", _planned(old, new)))
    assert applied.code == ExitCode.OK and not (new / UNFINISHED).exists()
    assert logs_in(new) == logs_in(old)


@again_if_too_late
def test_a_run_that_is_killed_writes_no_metadata(old: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "new1", ignore_errors=True)
    new = formatted_log_dir(tmp_path, 1)
    before, bootstrap = contents_of(old), (new / BOOTSTRAP_SNAPSHOT).read_bytes()
    process = start_kidx(*_arguments(old, new, "--apply", _planned(old, new)))
    try:
        while_it_runs(process, lambda: [*new.glob("*/*.log")] or None)
    finally:
        kill_session(process)
        end(process)
    assert contents_of(old) == before
    _ensure_only_an_empty_log_dir_helps(old, new, bootstrap)


@_EACH_KIND
def test_nor_does_one_that_is_killed_as_it_reads_the_copies_for_the_check(old: Path, tmp_path: Path) -> None:
    new = formatted_log_dir(tmp_path, 1)
    before, bootstrap = contents_of(old), (new / BOOTSTRAP_SNAPSHOT).read_bytes()
    ended = end(start_kidx(*_arguments(old, new, "--apply", _planned(old, new)), program=_KILLED_AS_IT_READS))
    assert ended.code == -signal.SIGKILL and contents_of(old) == before
    _ensure_only_an_empty_log_dir_helps(old, new, bootstrap)


@_EACH_KIND
def test_copies_are_restored_also_where_workers_die_as_they_read_them_for_the_check(old: Path, tmp_path: Path) -> None:
    """All was copied, flushed and read back by then: only the check has nothing to compare."""
    new = formatted_log_dir(tmp_path, 1)
    bootstrap = (new / BOOTSTRAP_SNAPSHOT).read_bytes()
    arguments = _arguments(old, new, "--processes", "1", "--apply", _planned(old, new))
    ended = end(start_kidx(*arguments, program=_IN_WORKERS.format("die_in_a_worker")))
    assert ended.code == ExitCode.OK and ended.json["applied"], ended
    assert not (new / UNFINISHED).exists() and (new / BOOTSTRAP_SNAPSHOT).read_bytes() != bootstrap
    assert logs_in(new) == logs_in(old)
    whys = [each["why"] for each in ended.json["contents"]]
    assert len(whys) == _PARTITIONS and {*whys} == {
        "the processes that read its records died, as where memory runs out (see dmesg)"
    }
    lines = [line for line in ended.err.splitlines() if "restore-check will not compare these records" in line]
    assert 0 < len(lines) < _PARTITIONS, "one line a partition is too many"
    assert ended.err.count("a worker process died") == 2, "later logs are not tried"


@_EACH_KIND
def test_ctrl_c_ends_a_restore_amid_a_partition(old: Path, tmp_path: Path) -> None:
    """What was begun is abandoned, and nothing looks complete."""
    new, begun = formatted_log_dir(tmp_path, 1), tmp_path / "begun"
    before, bootstrap = contents_of(old), (new / BOOTSTRAP_SNAPSHOT).read_bytes()
    arguments = _arguments(old, new, "--apply", _planned(old, new))
    process = start_kidx(*arguments, program=_IN_WORKERS.format("wait_for_good"), KIDX_TEST_BEGUN=begun)
    try:
        while_it_runs(process, lambda: begun.exists() or None)
        process.send_signal(signal.SIGINT)
    finally:
        ended = end(process)
    assert ended.code == 128 + signal.SIGINT and ended.out == "" and ended.left == (), ended
    assert "error: interrupted: the sources are as they were, and no metadata was written: empty the" in ended.err
    assert contents_of(old) == before
    _ensure_only_an_empty_log_dir_helps(old, new, bootstrap)


def test_ctrl_c_while_the_outcome_is_printed_says_that_all_is_restored(old: Path, tmp_path: Path) -> None:
    """Nobody reads what it prints, and the pipe is full."""
    new = formatted_log_dir(tmp_path, 1)
    process = start_kidx(*_arguments(old, new, "--apply", _planned(old, new)))
    try:
        assert process.stdout is not None
        pipe, waiting = process.stdout.fileno(), array("i", [0])
        room = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
        while_it_runs(process, lambda: fcntl.ioctl(pipe, termios.FIONREAD, waiting) or waiting[0] == room or None)
        process.send_signal(signal.SIGINT)
    finally:
        ended = end(process)
    assert ended.code == 128 + signal.SIGINT
    assert "error: interrupted: all is restored, and what restore-check needs was not printed" in ended.err
    assert not (new / UNFINISHED).exists() and logs_in(new) == logs_in(old)


def test_a_controllers_disk_that_fails_after_a_signal_is_named(old: Path, tmp_path: Path) -> None:
    """The metadata is written to its end, whatever is signalled; what has become of it is not to be guessed."""
    new = formatted_log_dir(tmp_path, 1)
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=64k") as disk:
        controller = formatted_log_dir(disk, 9)
        arguments = ("restore", old, "--broker", f"1={new}", "--controller", controller, "--json")
        program = _SIGNAL_AND_FULL_DISK.format(disk=str(disk))
        plan = str(kidx(*arguments).json["plan"])
        ended = end(start_kidx(*arguments, "--apply", plan, program=program))
    assert ended.code == 128 + signal.SIGINT and ended.out == "", ended
    assert "error: interrupted: the sources are as they were, and some controllers may have the metadata" in ended.err
    assert f"; after the signal this failed: {controller}/" in ended.err and "No space left on device" in ended.err


@pytest.mark.parametrize("name", ["apply_restore", "_tell_end", "restore"])
def test_ctrl_c_between_the_end_of_a_restore_and_its_printing_says_that_all_is_restored(
    name: str, tmp_path: Path
) -> None:
    """Nobody is to empty log dirs that are whole, or to believe that nothing is there."""
    old, new = killed_log_dir(tmp_path, 1), formatted_log_dir(tmp_path, 1)
    arguments = _arguments(old, new, "--apply", _planned(old, new))
    program = INTERRUPTED_AFTER.format(module="kidxlib.operations.restore.restore", name=name)
    ended = end(start_kidx(*arguments, program=program))
    assert ended.code == 128 + signal.SIGINT and ended.out == "", ended
    assert "error: interrupted: all is restored, and what restore-check needs was not printed" in ended.err
    assert not (new / UNFINISHED).exists() and logs_in(new) == logs_in(old)


def test_a_copy_that_is_interrupted_ends_amid_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread gets a signal while another one copies a large file piece by piece."""
    source, size = tmp_path / "source", 256 * 1024 * 1024
    source.touch()
    os.truncate(source, size)
    copy, main, pieces = (
        file_copy.FileCopy(source, tmp_path / "copy", size, FileOwner.of(source.stat())),
        threading.get_ident(),
        0,
    )

    def interrupted(checksum: int, _: NDArray[np.uint8]) -> int:
        nonlocal pieces
        pieces += 1
        if pieces == 1:
            signal.pthread_kill(main, signal.SIGINT)
        return checksum

    monkeypatch.setattr(file_copy, "extend_crc32c_in_memory", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background, a shell has it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            list(file_copy.copy_files([("", [copy])], 1))
    finally:
        signal.signal(signal.SIGINT, before)
    assert 0 < copy.target.stat().st_size < copy.size


@pytest.mark.parametrize("old", [WITHOUT_TRANSACTIONS], indirect=True)
def test_copies_are_read_from_the_disk_once(old: Path, tmp_path: Path) -> None:
    """The sources are read by the plan, and to be copied; the copies are read back, and are in memory for all else."""
    (tmp_path / "first").mkdir()
    first, new = formatted_log_dir(tmp_path / "first", 1), formatted_log_dir(tmp_path, 1)
    warm = kidx(*_arguments(old, first, "--apply", _planned(old, first)))
    assert warm.code == ExitCode.OK, "what it imports is in memory from now on"
    arguments = _arguments(old, new, "--apply", _planned(old, new))
    if not all(page_cache.drop(log) for log in old.glob("*/*.log")):
        pytest.skip("the file system keeps all in memory")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    ended = end(start_kidx(*arguments))
    assert ended.code == ExitCode.OK, ended
    read = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512
    assert 2.9 < read / sum(map(len, logs_in(old).values())) < 3.5
    in_memory = [len(page_cache.resident(log)) for log in new.glob("*/*.log")]
    assert max(in_memory) <= 2, "a start looks at the ends of logs"


def test_replicas_of_several_brokers_are_made_ready_together(old: Path, tmp_path: Path) -> None:
    """One worker makes those of the same partition."""
    other = killed_log_dir(tmp_path, 2)
    for number in range(1, _PARTITIONS):
        write_folder(other, f"txn-mixed-{number}")
    new, new_other = formatted_log_dir(tmp_path, 1), formatted_log_dir(tmp_path, 2)
    arguments = ("restore", old, other, "--broker", f"1={new}", "--broker", f"2={new_other}", "--controller", new)
    plan = kidx(*arguments, "--json")
    assert plan.code == ExitCode.OK, plan
    applied = kidx(*arguments, "--json", "--apply", plan.json["plan"])
    assert applied.code == ExitCode.OK and applied.json["applied"], applied
    assert logs_in(new) == logs_in(old) and logs_in(new_other) == logs_in(other)
    assert {path.name for path in new.glob("*/*")} == {path.name for path in new_other.glob("*/*")}


def test_a_disk_without_room_is_refused(old: Path, tmp_path: Path) -> None:
    """The copies alone would not fit."""
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=2m") as disk:
        new = formatted_log_dir(disk, 1)
        before = contents_of(new)
        refused = kidx(*_arguments(old, new))
        assert refused.code == ExitCode.USAGE and contents_of(new) == before
        [space] = refused.json["disks"]
        assert space["needed"] > sum(map(len, logs_in(old).values())) > space["free"]
        assert any("are free" in line for line in refused.json["refused"])


def test_larger_disks_get_more(old: Path, tmp_path: Path) -> None:
    """As many bytes for each would not fit onto the smaller one."""
    with (
        mounted(tmp_path / "small", "tmpfs", "tmpfs", "size=8m") as small,
        mounted(tmp_path / "large", "tmpfs", "tmpfs", "size=64m") as large,
    ):
        first, second = formatted_log_dir(small, 1), formatted_log_dir(large, 2)
        text = (second / "meta.properties").read_text()
        (second / "meta.properties").write_text(text.replace("node.id=2", "node.id=1"))
        planned = kidx("restore", old, "--broker", f"1={first},{second}", "--controller", first, "--json")
        assert planned.code == ExitCode.OK, planned
        by_log_dir = Counter(each["log_dir"] for each in planned.json["replicas"])
        assert by_log_dir[str(second)] > 3 * by_log_dir[str(first)] > 0


def test_a_disk_without_room_for_so_many_files_is_refused(old: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=512m,nr_inodes=60") as disk:
        new = formatted_log_dir(disk, 1)
        refused = kidx(*_arguments(old, new))
        [line] = refused.json["refused"]
        assert refused.code == ExitCode.USAGE and "files and directories, and its file system has room for" in line


def test_a_disk_that_fills_up_is_named(old: Path, tmp_path: Path) -> None:
    """The file system has no room, and does not say so beforehand."""
    with mounted(tmp_path / "disk", "tmpfs", "tmpfs", "size=512m,nr_inodes=60") as disk:
        new = formatted_log_dir(disk, 1)
        before, bootstrap = contents_of(old), (new / BOOTSTRAP_SNAPSHOT).read_bytes()
        plan = kidx(*_arguments(old, new)).json["plan"]
        ended = end(start_kidx(*_arguments(old, new, "--apply", plan), program=_WITHOUT_A_NUMBER_OF_FILES))
        ended.assert_one_line(ExitCode.FAILED, new, "No space left on device")
        assert (new / UNFINISHED).is_file() and (new / BOOTSTRAP_SNAPSHOT).read_bytes() == bootstrap
        assert contents_of(old) == before


@pytest.mark.parametrize("spoiled", ["first", "last"])
def test_a_copy_that_does_not_read_back_ends_the_restore(
    spoiled: str, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte changes on the disk once a copy was flushed. Each copy is flushed alone, and read back while others are
    copied.
    """
    [source, *_] = sorted(old.glob("*/*.log"))
    size, owner = source.stat().st_size, FileOwner.of(source.stat())
    copies = [file_copy.FileCopy(source, tmp_path / name / "copy", size, owner) for name in ("first", "amid", "last")]
    for copy in copies:
        copy.target.parent.mkdir()

    def spoil(directory: Path) -> None:
        if directory.name == spoiled:
            with (directory / "copy").open("r+b") as file:
                file.seek(100)
                file.write(b"\xff")

    monkeypatch.setattr(file_copy, "flush_file_system_of", spoil)
    with pytest.raises(PublishError, match=f"{spoiled}/copy: it does not read back"):
        list(file_copy.copy_files([(copy, [copy]) for copy in copies], 2))


def test_the_first_failure_is_told_and_not_what_comes_of_it(tmp_path: Path) -> None:
    """A directory for the next group cannot be made either."""
    owner = FileOwner.of(tmp_path.stat())

    def groups() -> Iterator[tuple[str, list[file_copy.FileCopy]]]:
        yield "first", [file_copy.FileCopy(tmp_path / "gone", tmp_path / "copy", 1, owner)]
        raise PublishError("what comes of it")

    with pytest.raises(PublishError, match=f"{tmp_path}/copy: not copied from {tmp_path}/gone"):
        list(file_copy.copy_files(groups(), 1))


def test_a_copy_that_cannot_be_read_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new disk that has taken the bytes, and does not give them back."""
    source, path = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(bytes(mmap.PAGESIZE))
    copy = file_copy.FileCopy(source, path, mmap.PAGESIZE, FileOwner.of(source.stat()))

    class BadSector(UncachedReads):
        def __call__(self, position: int, room: NDArray[np.uint8]) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(file_copy, "UncachedReads", BadSector)
    with pytest.raises(PublishError, match=f"{path}: it cannot be read back: Input/output error: check this disk"):
        list(file_copy.copy_files([("", [copy])], 1))


@pytest.fixture(params=["source", "target"])
def held(request: pytest.FixtureRequest, old: Path, tmp_path: Path) -> Iterator[Path]:
    """A log dir whose lock another process holds, as a running broker does."""
    log_dir = {"source": old, "target": formatted_log_dir(tmp_path, 1)}[request.param]
    with Child(children.hold_lock, log_dir / ".lock") as holder:
        assert holder.received.recv() == "held"
        yield log_dir


def test_a_log_dir_in_use_is_neither_read_nor_written(held: Path, old: Path, tmp_path: Path) -> None:
    before = contents_of(tmp_path)
    for options in ((), ("--apply", "0123456789ab")):
        ended = kidx(*_arguments(old, tmp_path / "new1", *options))
        ended.assert_one_line(ExitCode.USAGE, held / ".lock", "held by another process")
    assert contents_of(tmp_path) == before
