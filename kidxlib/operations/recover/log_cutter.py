"""The only place that opens a `.log` for writing: it cuts off what a broker would cut off (`LogSegment.recover`).

What is cut off has to be kept elsewhere before (`KeptCopies` of `kidxlib.operations.recover.make_ready`).
"""

from __future__ import annotations

import os
import stat

from kidxlib.errors import LogNotCutError
from kidxlib.storage.location import DIRECTORY, Directory, opened_below, why_not_opened


def cut_log(directory: Directory, name: str, *, size: int, to: int) -> None:
    """Cut a log that has `size` bytes to its first `to` bytes, durably. The caller holds the log dir's lock."""
    path = f"{directory}/{name}"
    try:
        root = os.open(directory.root, DIRECTORY)
        try:
            with opened_below(root, directory.path) as below:
                descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=below)
        finally:
            os.close(root)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size or not 0 <= to < size:
                raise LogNotCutError(
                    f"{path}: found {status.st_size} bytes, expected a file of {size}, to keep {to} of them; another "
                    "process writes there: stop it and run again"
                )
            if status.st_nlink != 1:
                raise LogNotCutError(
                    f"{path}: it has {status.st_nlink} names (hard links), and would be cut under all of them: put a "
                    "copy in its place and run again"
                )
            os.ftruncate(descriptor, to)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LogNotCutError(f"{path}: not cut to {to} bytes: {why_not_opened(error)}; run again") from error
