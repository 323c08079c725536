"""Small files of a log dir, which are read whole, and index files, of which a broker has preallocated most. Pipes do
not block.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from io import BufferedReader
from pathlib import Path
from typing import Final

from kidxlib.format.producer_snapshot import SNAPSHOT_BYTES_MAX
from kidxlib.storage.location import Listed, Location, open_regular_file, read_opened

#: The size of the largest index that a topic may have (`segment.index.bytes`), in bytes.
_BYTES_MAX: Final = 2**31 - 1
#: How many bytes are compared with zero at a time.
_BLOCK_BYTES: Final = 1024 * 1024


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
    return small_file(path).decode(errors="replace").splitlines()


def regular_file(path: Path) -> BufferedReader:
    """Open a regular file. Anything else is an OSError; a pipe does not block."""
    return open(open_regular_file(path)[0], "rb")


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


def is_preallocated(path: Path, position: int) -> bool:
    """Whether a file has only zeros from a position on. Its holes are not read."""
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
