"""The bytes of a segment's log, window by window: all in memory, or read in chunks.

Logs are only ever opened for reading.
"""

from __future__ import annotations

import enum
import os
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError

#: Bytes read at a time where a log is not mapped.
CHUNK_BYTES: Final = 4 * 1024 * 1024


class Access(enum.Enum):
    """The order in which a log is read, named as in madvise(2)."""

    NORMAL = enum.auto()
    #: Only single pages: without readahead.
    RANDOM = enum.auto()
    #: Once, from start to end. A file that is not in memory is read with much readahead, and its pages do not stay in
    #: the page cache.
    SEQUENTIAL = enum.auto()


class LogBytes(Protocol):
    """The bytes of a log, window by window."""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        ...

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """A read-only section of the file that holds the byte at `position`, and the position of its first byte.

        Its length is up to the implementation, and it is valid until the next call.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """A copy of up to `size` bytes at `position`: for callers that need few bytes."""
        ...


class WholeLog:
    """A log that is all in memory: mapped, read as a whole, or a test's bytes.

    Args:
        address: of the first byte, from whoever knows it: to ask an array takes 4 µs, a twentieth of what a small log
            costs.
    """

    def __init__(self, data: NDArray[np.uint8], *, is_mapped: bool = False, address: int | None = None) -> None:
        self.is_mapped = is_mapped
        self._data = data
        self._address = address
        self._data.setflags(write=False)

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def address(self) -> int:
        """The address of the first byte."""
        return self._data.ctypes.data if self._address is None else self._address

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        return 0, self._data

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size].tobytes()


class ChunkedLog:
    """A log that is read chunk by chunk into one buffer, so that memory does not depend on its size."""

    def __init__(self, descriptor: int, size: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.descriptor = descriptor
        self._size = size
        self._buffer = np.empty(min(chunk_bytes, size), np.uint8)

    @property
    def size(self) -> int:
        return self._size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        window = self._buffer[: max(self._size - position, 0)]
        self._fill(window, position)
        window.setflags(write=False)
        return position, window

    def read(self, position: int, size: int) -> bytes:
        data = np.empty(min(size, max(self._size - position, 0)), np.uint8)
        self._fill(data, position)
        return data.tobytes()

    def _fill(self, data: NDArray[np.uint8], position: int) -> None:
        filled = 0
        while filled < len(data):
            count = os.preadv(self.descriptor, [data[filled:].data], position + filled)
            if count == 0:
                raise LogChangedError(f"file ends at byte {position + filled}, it had {self._size} bytes when opened")
            filled += count


class LogTail:
    """The bytes of a log from a position on, as a log of its own."""

    def __init__(self, log: LogBytes, start: int) -> None:
        self._log = log
        self._start = start

    @property
    def size(self) -> int:
        return self._log.size - self._start

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        start, window = self._log.window(self._start + position)
        before = max(self._start - start, 0)
        return start + before - self._start, window[before:]

    def read(self, position: int, size: int) -> bytes:
        return self._log.read(self._start + position, size)
