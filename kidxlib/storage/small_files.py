"""Small files of a log dir, read whole: checkpoints and what says whose a directory is. No pipe is waited for."""

from __future__ import annotations

import errno
import os
import stat

from kidxlib.storage.location import Location
from kidxlib.storage.s3 import ObjectPath


def lines_of(path: Location) -> list[str]:
    return small_file(path).decode(errors="replace").splitlines()


def small_file(path: Location) -> bytes:
    """The content of a small regular file or object; never waits on a pipe.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    if isinstance(path, ObjectPath):
        return path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with open(descriptor, "rb") as file:
        return file.read()
