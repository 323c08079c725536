"""The lock that a broker takes on its log dir.

Source: `LogManager.lockLogDirs`. Java's `FileChannel.lock` takes a POSIX record lock, and so does `fcntl.lockf`. A lock
of flock(2), which the package filelock takes, would say nothing to a broker.

`fcntl` is imported where a lock is asked for: what takes none works on systems that have no such module
(`ensure_locks`).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kidxlib.errors import LockHeldError, UsageError
from kidxlib.storage.location import Location

LOCK_FILE: Final = ".lock"

#: The mode with which Kafka's `FileLock` makes the file under brokers' umask.
_LOCK_MODE: Final = 0o644

MOUNTS: Final = Path("/proc/self/mountinfo")
#: File systems on which another machine may not see a lock.
_REMOTE_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "fuse.")


def ensure_locks(path: Path) -> None:
    """See that this system has locks of files, before anything is made at `path` that needs one."""
    try:
        import fcntl  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"{path}: no lock can be taken: this system has no POSIX locks of files (Python's module fcntl), and "
            "without one two writers spoil each other's work; run this on Linux"
        ) from error


@contextlib.contextmanager
def locked(log_dir: Path) -> Iterator[None]:
    """Hold the lock that a broker takes on its log dir, so that kidx and the broker exclude each other.

    The lock file is made if it is missing, and stays, as a broker leaves it. It gets the log dir's owner: a broker that
    may not open it does not start.
    """
    ensure_locks(log_dir)
    file_system = _file_system(log_dir)
    if file_system.startswith(_REMOTE_FILE_SYSTEMS):
        raise UsageError(
            f"{log_dir}: on a {file_system} file system, where a lock does not keep a broker on another machine out; "
            "write to an --index-dir instead"
        )
    path = log_dir / LOCK_FILE
    try:
        descriptor, is_new = _open_lock(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be locked: {error.strerror}") from error
    try:
        is_held = _is_held_by_another(descriptor)
        if is_new:  # another run may hold the lock of a file that this run has just made
            _give_to_owner(descriptor, path, may_remove=not is_held)
        if is_held:
            raise _held(path)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_to_read(log_dir: Path) -> Iterator[str | None]:
    """Hold the lock while a log dir is read, if it has a lock file. Nothing is written. If the lock cannot be taken, as
    on a read-only disk, check that no other process of this machine holds it, and yield why it is not held.
    """
    with contextlib.ExitStack() as stack:
        why: str | None = None
        if os.statvfs(log_dir).f_flag & os.ST_RDONLY:
            why = (
                f"{log_dir}: mounted read-only; a broker that starts so takes the log dir out of use, and ends if it "
                "has no other"
            )
            _ensure_free(log_dir)
        elif os.path.lexists(log_dir / LOCK_FILE):
            try:
                stack.enter_context(locked(log_dir))
            except LockHeldError:
                raise
            except UsageError as error:
                why = str(error)
                _ensure_free(log_dir)
        yield why


#: `struct flock`, as Linux has it: type, whence, start, length and process. 0, 0 is the whole file.
_FLOCK: Final = struct.Struct("@hhqqi0q")


def is_locked(log_dir: Path) -> bool:
    """Whether another process holds the lock of a log dir, as a running broker does. The lock is not taken, which would
    need a writable file, so a broker may start right afterwards. `UsageError` where the system has no such locks.
    """
    try:
        descriptor = os.open(log_dir / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        ensure_locks(log_dir)
        import fcntl

        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)


def is_in_use(log_dir: Location) -> bool:
    """Whether a broker runs on a log dir of this machine. True also if its lock may not be looked at."""
    try:
        return isinstance(log_dir, Path) and is_locked(log_dir)
    except (OSError, UsageError):
        return True


def _ensure_free(log_dir: Path) -> None:
    with contextlib.suppress(OSError):
        if is_locked(log_dir):
            raise _held(log_dir / LOCK_FILE)


def _held(path: Path) -> LockHeldError:
    return LockHeldError(f"{path}: held by another process; stop the broker that uses {path.parent} first")


def _open_lock(path: Path) -> tuple[int, bool]:
    """A descriptor of the lock file, and whether the file is new. An existing file is never changed."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, _LOCK_MODE), True
        with contextlib.suppress(FileNotFoundError):  # another run has removed it, as it could not change the owner
            return os.open(path, flags), False


def _is_held_by_another(descriptor: int) -> bool:
    """Try to take the lock; whether another process holds it."""
    import fcntl

    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _give_to_owner(descriptor: int, path: Path, *, may_remove: bool) -> None:
    """Give a lock file that was just made the owner, group and mode that its broker would have given it.

    Until then a broker does not start in any case, as the lock is held.
    """
    whom = "its owner"
    try:
        owner = _owner(path.parent)
        whom = f"user {owner.st_uid}"
        os.fchmod(descriptor, _LOCK_MODE)  # whatever the umask
        if owner.st_uid != os.fstat(descriptor).st_uid:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    except OSError as error:
        if may_remove:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise UsageError(
            f"{path}: cannot be given to {whom}, to whom the log dir belongs, so that its broker can lock "
            f"it: {error.strerror}; run it as that user, or as root"
        ) from error


def _owner(log_dir: Path) -> os.stat_result:
    """The owner of a log dir. A mount point may be root's; then the owner of its entries."""
    status = os.stat(log_dir)
    if status.st_uid == 0:
        with os.scandir(log_dir) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if (inside := entry.stat(follow_symlinks=False)).st_uid != 0:
                        return inside
    return status


def _file_system(path: Path) -> str:
    """The type of the file system of `path`; empty if no mount has its device, as in a subvolume of btrfs."""
    try:
        mounts = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(
            f"{path}: {MOUNTS} cannot be read ({error.strerror}), so it is not known whether a lock keeps a broker on "
            "another machine out; mount /proc, or write to an --index-dir instead"
        ) from error
    try:
        device = os.stat(path).st_dev
    except OSError:  # which opening the lock says
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounts:
        fields = mount.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1]
    return ""
