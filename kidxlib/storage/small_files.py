"""Small files of a log dir, read whole: checkpoints and what says whose a directory is. No pipe is waited for."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left
from pathlib import Path
from typing import BinaryIO, Final

from kidxlib.storage.location import Location
from kidxlib.storage.store.s3 import ObjectPath

#: Bytes of the largest index that a topic may ask for (`segment.index.bytes`).
_BYTES_MAX: Final = 2**31 - 1
#: What is compared with zero at a time.
_BLOCK_BYTES: Final = 1024 * 1024


def lines_of(path: Location) -> list[str]:
    return small_file(path).decode(errors="replace").splitlines()


def small_file(path: Location) -> bytes:
    """The content of a small regular file or object; never waits on a pipe.

    Raises:
        OSError: it cannot be read, is not a regular file, or larger than any that Kafka writes.
    """
    if isinstance(path, ObjectPath):
        return path.read_bytes()
    with _opened(path) as file:
        if os.fstat(file.fileno()).st_size > _BYTES_MAX:
            raise OSError(errno.EFBIG, f"larger than {_BYTES_MAX:,} bytes", str(path))
        return file.read()


def filled_file(path: Location, entry_bytes: int) -> bytes:
    """The entries of a small regular file or object, without the room for more that a broker keeps at the end of an
    active segment's index: 10 MiB of zeros, which are not read. No entry of the file is all zeros.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    if isinstance(path, ObjectPath):
        return path.read_bytes()
    with _opened(path) as file:
        descriptor, empty = file.fileno(), bytes(entry_bytes)
        count = bisect_left(
            range(os.fstat(descriptor).st_size // entry_bytes),
            True,
            key=lambda number: os.pread(descriptor, entry_bytes, number * entry_bytes) in (empty, b""),
        )
        return file.read(count * entry_bytes)


def is_room(path: Path, position: int) -> bool:
    """Whether nothing but zeros stands in a file from a position on. Holes of the file are not read.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with _opened(path) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        while position < size:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole follows
                    return True
                raise
            end = min(os.lseek(descriptor, position, os.SEEK_HOLE), position + _BLOCK_BYTES)
            block = os.pread(descriptor, end - position, position)
            if block.strip(b"\0"):
                return False
            if not block:
                break
            position += len(block)
    return True


def _opened(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(descriptor, "rb")
