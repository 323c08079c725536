"""Reads and writes past the page cache (`O_DIRECT`), where the file system can do that. To read a file that is not in
memory takes a tenth of the processor then; to write one was three times as fast, and what a broker has in memory stays.

Whole pages go past it, from a page's start on, of memory that begins at a page (`aligned_room`). The rest is read and
written as usual; so is all, where the file system or the device refuses it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kidxlib.storage.log_bytes import aligned_room

_PAGE: Final = mmap.PAGESIZE
_FLAG: Final = getattr(os, "O_DIRECT", None)
#: What a file system answers that has no such reads, or none of this size.
_REFUSED: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


class _Uncached:
    """An opened file. In the context, reads or writes go past the page cache; outside, they are as usual."""

    _access: int

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._uncached: int | None = None

    def __enter__(self) -> Self:
        if _FLAG is not None:
            with contextlib.suppress(OSError):  # not on this file system, or there is no /proc
                self._uncached = os.open(f"/proc/self/fd/{self._descriptor}", self._access | _FLAG | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        if self._uncached is not None:
            uncached, self._uncached = self._uncached, None  # the number may soon be another file's
            os.close(uncached)


class UncachedReads(_Uncached):
    _access = os.O_RDONLY

    def __call__(self, position: int, room: NDArray[np.uint8]) -> int:
        """Fill memory with the bytes at a file position, and return how many there were."""
        filled = self._read_pages(position, room)
        while filled < len(room):
            count = os.preadv(self._descriptor, [room[filled:].data], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def _read_pages(self, position: int, room: NDArray[np.uint8]) -> int:
        if self._uncached is None or position % _PAGE or room.ctypes.data % _PAGE:
            return 0
        whole = len(room) // _PAGE * _PAGE
        rest = mmap.mmap(-1, _PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # of the last page, which is read as a whole
        try:
            count = os.preadv(self._uncached, [room[:whole].data, rest], position)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            return 0
        if count > whole:
            room[whole:] = np.frombuffer(rest, np.uint8, len(room) - whole)
        return min(count, len(room))


class UncachedWrites(_Uncached):
    _access = os.O_WRONLY

    def __call__(self, position: int, content: NDArray[np.uint8]) -> None:
        """Write bytes at a file position."""
        written = self._write_pages(position, content)
        while written < len(content):
            written += os.pwrite(self._descriptor, content[written:].data, position + written)

    def _write_pages(self, position: int, content: NDArray[np.uint8]) -> int:
        pages = content[: len(content) // _PAGE * _PAGE]
        if self._uncached is None or position % _PAGE or not len(pages):
            return 0
        if pages.ctypes.data % _PAGE:
            aligned = aligned_room(len(pages))
            aligned[:] = pages
            pages = aligned
        try:
            return os.pwrite(self._uncached, pages.data, position)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            return 0
