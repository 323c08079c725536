"""Logs in memory that reveals reads outside of them."""

from __future__ import annotations

import ctypes
import mmap
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.storage.log_bytes import ChunkedLog, LogBytes, WholeLog


class _GuardedMemory:
    """Memory before a page that nobody may touch: a read past the end stops the process with SIGSEGV."""

    def __init__(self, size: int) -> None:
        pages = -(-size // mmap.PAGESIZE)
        self._memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._memory, np.uint8)[: pages * mmap.PAGESIZE]
        guard = self._bytes.ctypes.data + len(self._bytes)
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def hold(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A read-only copy of `data` that ends at the guarded page, valid until the next call."""
        copy = self._bytes[len(self._bytes) - len(data) :]
        copy.setflags(write=True)
        copy[:] = data
        copy.setflags(write=False)
        return copy


_GUARDED: Final = _GuardedMemory(1 << 20)


def whole(log: bytes) -> LogBytes:
    """A log in memory; a read past its end stops the process."""
    return WholeLog(_GUARDED.hold(np.frombuffer(log, np.uint8)))


class GuardedChunks(ChunkedLog):
    """A log read in chunks; a read past a chunk stops the process, and a chunk past the file's end fails."""

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        assert position == 0 or position < self.size, f"asked for byte {position} of {self.size}"
        start, window = super().window(position)
        return start, _GUARDED.hold(window)
