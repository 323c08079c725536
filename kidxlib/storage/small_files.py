"""Reads small files, whole or in part: those of a log dir, and index files, of which a broker has preallocated most.
Pipes do not block.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import PublishError
from kidxlib.format.segment_files import SNAPSHOT_BYTES_MAX
from kidxlib.storage.location import (
    Directory,
    Listed,
    Location,
    is_local,
    location,
    open_regular_file,
    opened_directory,
    regular_file,
)
from kidxlib.storage.store.s3 import ObjectPath, open_object, read_object

#: The size of the largest index that a topic may have (`segment.index.bytes`), in bytes.
_BYTES_MAX: Final = 2**31 - 1
#: How many bytes are compared with zero at a time.
_BLOCK_BYTES: Final = 1024 * 1024
#: The first read of a file, and each one after it. Room for more than 64 KiB is asked of the kernel, which takes ten
#: times as long as to read a small file.
_FIRST_BYTES: Final = 64 * 1024
_PIECE_BYTES: Final = 1024 * 1024


def small_file(path: Location | Listed) -> bytes:
    """The content of a small regular file or object. A pipe does not block."""
    if not isinstance(path, str | Path):
        return path.read_bytes()
    descriptor, status = open_regular_file(path)
    try:
        if status.st_size > _BYTES_MAX:
            raise OSError(errno.EFBIG, f"larger than {_BYTES_MAX:,} bytes", str(path))
        return read_opened(descriptor)
    finally:
        os.close(descriptor)


def snapshot_file(path: Location) -> bytes | None:
    """The content of a producer snapshot; None if it is no regular file, or larger than any snapshot."""
    if not path.is_file() or path.stat().st_size > SNAPSHOT_BYTES_MAX:
        return None
    return path.read_bytes()


def lines_of(path: Location | Listed) -> list[str]:
    """The lines of a small file. Bytes that are not UTF-8 are replaced."""
    return small_file(path).decode(errors="replace").splitlines()


def read_at(directory: int, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a small file in an opened directory; None: there is no such regular file."""
    descriptor = _open_at(directory, name)
    if descriptor is None:
        return None
    try:
        return read_opened(descriptor, limit)
    finally:
        os.close(descriptor)


def _open_at(directory: int, name: str) -> int | None:
    """A descriptor of a regular file in an opened directory, which the caller closes; None: there is no such file."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


def read_opened(descriptor: int, limit: int = -1) -> bytes:
    """Up to `limit` bytes, or all, of an opened small file. No object of `io` is made: for a small file that takes
    longer than the read.
    """
    if 0 <= limit <= _FIRST_BYTES:
        return os.read(descriptor, limit)
    pieces, left, piece_bytes = list[bytes](), limit, _FIRST_BYTES
    while piece := os.read(descriptor, piece_bytes if limit < 0 else min(left, piece_bytes)):
        pieces.append(piece)
        left, piece_bytes = left - len(piece), _PIECE_BYTES
    return b"".join(pieces)


def read_file(directory: Directory, name: str, limit: int = -1) -> bytes | None:
    """Up to `limit` bytes, or all, of a small regular file, opened without symlinks; None if it cannot be read."""
    if not is_local(directory):
        return _read_elsewhere(location(str(directory)) / name, limit)
    with opened_directory(directory) as descriptor:
        return None if descriptor is None else read_at(descriptor, name, limit)


def read_end(directory: Directory, name: str, size: int) -> bytes | None:
    """The last `size` bytes, or all, of a small regular file, opened without symlinks; None if it cannot be read."""
    if not is_local(directory):
        content = read_file(directory, name)
        return None if content is None else content[max(len(content) - size, 0) :]
    with opened_directory(directory) as descriptor:
        if descriptor is not None and (file := _open_at(descriptor, name)) is not None:
            try:
                os.lseek(file, max(os.fstat(file).st_size - size, 0), os.SEEK_SET)
                return read_opened(file, size)
            finally:
                os.close(file)
    return None


def _read_elsewhere(path: Location, limit: int) -> bytes | None:
    """Up to `limit` bytes, or all, of an object or a packed file; None: there is no such file."""
    try:
        if not isinstance(path, ObjectPath):
            content = path.read_bytes()
            return content if limit < 0 else content[:limit]
        file, status = open_object(path)
        return read_object(file, path, 0, status.st_size if limit < 0 else min(limit, status.st_size))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PublishError(f"{path}: not read: {error.strerror}") from error


def filled_file(path: Location, entry_bytes: int) -> bytes:
    """The entries of a small regular file or object, without the room for more that a broker keeps at the end of an
    active segment's index: 10 MiB of zeros, which are not read. No entry of the file is all zeros.
    """
    if not isinstance(path, Path):
        return path.read_bytes()
    with regular_file(path) as file:
        return file.read(_filled_entries(file.fileno(), entry_bytes) * entry_bytes)


def last_filled(path: Path, entry_bytes: int) -> bytes:
    """The last of the entries that `filled_file` reads; nothing where there is none."""
    with regular_file(path) as file:
        count = _filled_entries(file.fileno(), entry_bytes)
        return os.pread(file.fileno(), entry_bytes, (count - 1) * entry_bytes) if count else b""


def _filled_entries(descriptor: int, entry_bytes: int) -> int:
    empty = bytes(entry_bytes)
    return bisect_left(
        range(os.fstat(descriptor).st_size // entry_bytes),
        True,
        key=lambda number: os.pread(descriptor, entry_bytes, number * entry_bytes) in (empty, b""),
    )


def filled_bytes(content: NDArray[np.uint8], entry_bytes: int) -> int:
    """How many bytes of an index file its whole entries take, without the room of zeros at its end. No entry of an
    offset index is all zeros, because the batch at byte 0 is never indexed (`LogSegment.append`). Zeros between entries
    count: the file is compared with zero from its end on, at the speed of memory.
    """
    end = len(content)
    while end > 0:
        begin = (end - 1) // _BLOCK_BYTES * _BLOCK_BYTES
        block = content[begin:end]
        words = len(block) // 8 * 8
        if block[words:].any() or block[:words].view(np.uint64).any():
            used = begin + int(np.flatnonzero(block)[-1]) + 1
            return min(-(-used // entry_bytes) * entry_bytes, len(content))
        end = begin
    return 0


def without_room(content: bytes, entry_bytes: int) -> bytes:
    """The bytes of an index file without the room of zeros at its end."""
    return content[: filled_bytes(np.frombuffer(content, np.uint8), entry_bytes)]


def is_preallocated(path: Path, position: int) -> bool:
    """Whether an index file has only preallocated zeros from a position on. Its holes are not read."""
    with regular_file(path) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        while position < size:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # the rest is a hole
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
