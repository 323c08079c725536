"""A log that is read by ranges, the next ones while one is looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError

#: Bytes asked of an object, or of a file that is not in memory, at a time, and how many such requests are under way
#: where it is read from end to end.
RANGE_BYTES: Final = 8 * 1024 * 1024
RANGES_AHEAD: Final = 4
#: What is left of a range when the next one is looked at: less than a batch. Kafka's are 1 MiB at most by default.
_SPACE_BYTES: Final = 1024 * 1024 + 4096

#: What is held of a log that is read from end to end, and of several small ones that are read at the same time: the
#: range that is looked at, and those under way.
OBJECT_BYTES_MAX: Final = (RANGES_AHEAD + 1) * (RANGE_BYTES + _SPACE_BYTES)


@dataclass(slots=True)
class Reads:
    """What reading a log by ranges took so far: requests, and the bytes that they gave."""

    requests: int = 0
    read_bytes: int = 0


class ReadInto(Protocol):
    """Fill memory with what stands at a file position, and say how many bytes there were."""

    def __call__(self, position: int, room: NDArray[np.uint8], /) -> int: ...


class RangedLog:
    """A log that is read by ranges. As long as it is read on and on, the next ranges are on their way while one is
    looked at, and none is asked for twice; a jump asks for one. Memory is bounded by the ranges, not by the log's size.

    A range is looked at where it was read into; only what lies across the end of one is copied, before the next.
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
        """
        Args:
            read_into: is called from the threads.
            done_to: called with the position before which nothing is needed any more, as long as it is read on and on.
        """
        self._read_into, self._size, self._reads, self._threads = read_into, size, reads, threads
        self._range_bytes, self._ahead, self._done_to = max(1, min(range_bytes, size)), ahead, done_to
        # What is in memory, from `_start` to `_end`, and the room that it is in, if that can be used again.
        self._window = np.empty(0, np.uint8)
        self._room: NDArray[np.uint8] | None = None
        self._start = self._end = 0
        # What is under way, from `_end` on, each with its length and its room, which is used again and again.
        self._coming: deque[tuple[Future[int], int, NDArray[np.uint8]]] = deque()
        self._free: list[NDArray[np.uint8]] = []
        self._asked_to = 0
        # In each room the range follows space for what is left of the one before it.
        self._space = min(range_bytes, _SPACE_BYTES)

    @property
    def size(self) -> int:
        return self._size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """See `LogBytes.window`. It holds a range's bytes from `position` on, or all that there are."""
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
        """See `LogBytes.read`, and `window` for what it raises."""
        wanted = min(size, max(self._size - position, 0))
        if wanted > self._range_bytes:
            self._reads.requests += 1
            data = np.empty(wanted, np.uint8)
            self._count(self._read_into(position, data), position, wanted)
            return data.tobytes()
        start, window = self.window(position)
        return window[position - start : position - start + wanted].tobytes()

    def release(self) -> None:
        """Wait for what is under way, and forget it."""
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
            room = self._free.pop() if self._free else np.empty(self._space + self._range_bytes, np.uint8)
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
            self.release()  # what comes after the one that failed
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
