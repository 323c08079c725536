"""A log that is read in ranges, with readahead: the next ranges are requested while one is processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError
from kidxlib.storage import rooms

#: Bytes of one request to an object, or to a file that is not in memory, and how many requests run at a time in a
#: sequential read.
RANGE_BYTES: Final = 8 * 1024 * 1024
RANGES_AHEAD: Final = 4
#: Room for the rest of a range before the next one: less than a batch, which by Kafka's default has at most 1 MiB.
_SPACE_BYTES: Final = 1024 * 1024 + 4096

#: Memory of a sequential read of one log, or of several small ones at a time: the current range and the requested ones.
OBJECT_BYTES_MAX: Final = (RANGES_AHEAD + 1) * (RANGE_BYTES + _SPACE_BYTES)


@dataclass(slots=True)
class Reads:
    """The requests of reading a log in ranges so far, and the bytes that they returned."""

    requests: int = 0
    read_bytes: int = 0


class ReadInto(Protocol):
    """Fills memory with the bytes at a file position, and returns how many there were."""

    def __call__(self, position: int, room: NDArray[np.uint8], /) -> int: ...


class RangedLog:
    """A log that is read in ranges. In a sequential read, the next ranges are requested while one is processed, and
    none is requested twice; a jump requests one range. The ranges bound memory, not the log's size.

    A range is processed in the buffer that it was read into. Only a rest at its end is copied, before the next range.

    Threads call `read_into`. A sequential read calls `done_to` with the position before which no byte is needed any
    more.
    """

    def __init__(
        self,
        read_into: ReadInto,
        size: int,
        reads: Reads,
        threads: ThreadPoolExecutor,
        range_bytes: int = RANGE_BYTES,
        ahead: int = RANGES_AHEAD,
        done_to: Callable[[int], None] | None = None,
    ) -> None:
        self._read_into, self._size, self._reads, self._threads = read_into, size, reads, threads
        self._range_bytes, self._ahead, self._done_to = max(1, min(range_bytes, size)), ahead, done_to
        # The bytes in memory, from `_start` to `_end`, and their buffer, if that can be used again.
        self._window = np.empty(0, np.uint8)
        self._room: NDArray[np.uint8] | None = None
        self._start = self._end = 0
        # The requested ranges, from `_end` on, each with its length and its buffer. Buffers are reused.
        self._coming: deque[tuple[Future[int], int, NDArray[np.uint8]]] = deque()
        self._free: list[NDArray[np.uint8]] = []
        self._asked_to = 0
        # In each buffer, space for the rest of the range before precedes the range.
        self._space = min(range_bytes, _SPACE_BYTES)

    @property
    def size(self) -> int:
        return self._size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """The bytes of a range from `position` on, or as many as there are; see `LogBytes.window`."""
        reads_on = self._start <= position <= self._end
        if not reads_on:
            self.release()
            self._start = self._end = self._asked_to = position
            self._window = self._window[:0]
        wanted_end = min(position + self._range_bytes, self._size)
        while self._end < wanted_end:
            self._ask(self._ahead if reads_on else 1)
            self._take(position)
        window = self._window[position - self._start :]
        window.setflags(write=False)
        return position, window

    def read(self, position: int, size: int) -> bytes:
        wanted = min(size, max(self._size - position, 0))
        if wanted > self._range_bytes:
            self._reads.requests += 1
            data = np.empty(wanted, np.uint8)
            self._count(self._read_into(position, data), position, wanted)
            return data.tobytes()
        if self._start <= position and position + wanted <= self._end:  # a window would ask for the next range
            return self._window[position - self._start :][:wanted].tobytes()
        _, window = self.window(position)
        return window[:wanted].tobytes()

    def release(self) -> None:
        """Wait for the requested ranges, and drop them."""
        for future, _, room in self._coming:
            if future.cancel():
                self._reads.requests -= 1
            elif future.exception() is None:
                self._reads.read_bytes += future.result()
            self._free.append(room)
        self._coming.clear()
        self._asked_to = self._end

    def _ask(self, ranges: int) -> None:
        while len(self._coming) < ranges and self._asked_to < self._size:
            length = min(self._range_bytes, self._size - self._asked_to)
            room = self._free.pop() if self._free else rooms.take(self._space + self._range_bytes)
            wanted = room[self._space : self._space + length]
            self._coming.append((self._threads.submit(self._read_into, self._asked_to, wanted), length, room))
            self._reads.requests += 1
            self._asked_to += length

    def _take(self, position: int) -> None:
        """Make the next range part of the window, which then starts at a position."""
        future, length, room = self._coming.popleft()
        try:
            self._count(future.result(), self._end, length)
        except (OSError, LogChangedError):
            self._free.append(room)
            self.release()  # the ranges after the one that failed
            raise
        left = self._window[position - self._start :]
        if self._done_to is not None:
            self._done_to(self._end - len(left))
        begin = self._space - len(left)
        if begin >= 0:
            room[begin : self._space] = left
            self._window = room[begin : self._space + length]
        else:
            self._window = np.concatenate([left, room[self._space : self._space + length]])
            self._free.append(room)
        if self._room is not None:
            self._free.append(self._room)
        self._room = room if begin >= 0 else None
        self._start, self._end = position, self._end + length

    def _count(self, read_bytes: int, position: int, wanted: int) -> None:
        self._reads.read_bytes += read_bytes
        if read_bytes < wanted:
            raise LogChangedError(f"log ends at byte {position + read_bytes}, it had {self._size} bytes when opened")
