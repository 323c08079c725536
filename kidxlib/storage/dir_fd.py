"""Files below an opened directory, reached part by part without following symlinks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import PurePath

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


def is_taken(directory: int, name: str) -> bool:
    """Whether anything in an opened directory has this name."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def opened_below(root: int, path: str) -> Iterator[int]:
    """A descriptor of an existing directory below an opened one, closed at the end of the context."""
    descriptor = open_below(root, path, make=False)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(root: int, path: str, *, make: bool) -> int:
    """Open the directory `path` below an opened one; no part of it may be a symlink."""
    descriptor = os.dup(root)
    try:
        for part in PurePath(path).parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            below = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def flush_file_systems(roots: Iterable[int]) -> None:
    """Flush the file systems of opened directories."""
    for root in roots:
        if not hasattr(_libc, "syncfs"):  # not Linux
            os.sync()
        elif _libc.syncfs(root) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def why_not_opened(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the path is a symbolic link or a file, expected directories only"
    return error.strerror or str(error)


def read_at(directory: int, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a regular file in an opened directory; None where there is no such file."""
    file = open_at(directory, name)
    if file is None:
        return None
    with file:
        return file.read(limit)


def open_at(directory: int, name: str) -> io.FileIO | None:
    """A regular file in an opened directory, to be read; None where there is no such file."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb", buffering=0)
