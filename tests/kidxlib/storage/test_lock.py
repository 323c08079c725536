"""The lock of a log dir keeps others out, and stays the broker's own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kidxlib.errors import UsageError
from kidxlib.storage import lock
from kidxlib.storage.lock import locked


def test_the_lock_keeps_a_second_process_out_and_is_given_back(tmp_path: Path) -> None:
    """As a broker's `FileChannel.tryLock` does: one process at a time; the file itself stays."""
    other = (
        "import sys; from pathlib import Path; from kidxlib.storage.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('locked')"
    )
    command = [sys.executable, "-c", other, str(tmp_path)]
    with locked(tmp_path):
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "LockHeldError" in refused.stderr and "held by another process" in refused.stderr
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "locked\n"
    assert (tmp_path / ".lock").exists()
    (tmp_path / ".lock").chmod(0o606)
    with locked(tmp_path):
        pass
    assert stat.S_IMODE((tmp_path / ".lock").stat().st_mode) == 0o606, "one that is there is never changed"
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"\.lock: cannot be locked"), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


_KAFKA: tuple[int, int] = (65534, 65533)


def _locks(log_dir: Path, user: int) -> int:
    """Open and lock `.lock` as a broker of that user does at its start; 0, or the number of the error."""
    directory = os.open(log_dir, os.O_RDONLY)  # the user may not come through the directories above
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            descriptor = os.open(".lock", os.O_RDWR | os.O_CREAT, 0o666, dir_fd=directory)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    os.close(directory)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_lock_that_is_new_is_the_brokers(is_mount_point: bool, tmp_path: Path) -> None:
    """Made by root, whatever its umask, it belongs to whom the log dir belongs; in a mount point of root's to whom the
    partitions belong. Its broker can lock it then.
    """
    log_dir = tmp_path / "kafka-logs"
    (log_dir / "orders-0").mkdir(parents=True)
    for path in (log_dir / "orders-0",) if is_mount_point else (log_dir,):
        os.chown(path, *_KAFKA)
    log_dir.chmod(0o777)
    before = os.umask(0o077)
    try:
        with locked(log_dir):
            assert _locks(log_dir, _KAFKA[0]) != 0, "held"
    finally:
        os.umask(before)
    found = (log_dir / ".lock").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*_KAFKA, 0o644)
    assert _locks(log_dir, _KAFKA[0]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_lock_that_cannot_be_given_to_the_broker_is_not_left(tmp_path: Path) -> None:
    """Who may write into the log dir and is not its broker's user gets an error that says so, and leaves nothing."""
    tmp_path.chmod(0o777)
    os.chown(tmp_path, *_KAFKA)
    directory = os.open(tmp_path, os.O_RDONLY)
    child = os.fork()
    if child == 0:
        os.fchdir(directory)
        os.setgroups([])
        os.setuid(12345)
        try:
            with locked(Path()):
                os._exit(1)
        except UsageError as error:
            os._exit(0 if "cannot be given to user 65534" in str(error) else 2)
        os._exit(3)
    os.close(directory)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not (tmp_path / ".lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose mount point it is")
@pytest.mark.parametrize(("error", "message"), [(errno.ENOENT, None), (errno.EIO, "cannot be given to its owner, to")])
def test_what_lies_in_a_mount_point_may_vanish(
    error: int, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is looked at: then the next thing tells whose it is. Where nobody can say, no lock file is left."""

    class Vanishing:
        name = "a"

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise OSError(error, os.strerror(error))

    scandir = os.scandir
    (tmp_path / "orders-0").mkdir()
    os.chown(tmp_path / "orders-0", *_KAFKA)
    monkeypatch.setattr(os, "scandir", lambda path: contextlib.nullcontext([Vanishing(), *scandir(path)]))
    if message is None:
        with locked(tmp_path):
            assert (tmp_path / ".lock").stat().st_uid == _KAFKA[0]
    else:
        with pytest.raises(UsageError, match=message), locked(tmp_path):
            pass
        assert not (tmp_path / ".lock").exists()


def test_where_nobody_tells_the_file_system_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be one on which a lock keeps no broker of another machine out."""
    monkeypatch.setattr(lock, "MOUNTS", tmp_path / "mountinfo")
    with pytest.raises(UsageError, match="mount /proc"), locked(tmp_path):
        pass
    assert not (tmp_path / ".lock").exists()
