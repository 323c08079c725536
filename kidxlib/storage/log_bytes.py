"""The bytes of a segment's log, window by window: all in memory, read in chunks, or read in ranges ahead of the reader.
And files past the page cache (`UncachedReads`, `UncachedWrites`), where the file system can do that. Logs are only ever
opened for reading; what is written so are copies.

To read a file that is not in memory takes a tenth of the processor past the page cache; to write one was three times as
fast, and what a broker has in memory stays. Whole pages go past it, from a page's start on, of memory that begins at a
page (`aligned_room`). The rest is read and written as usual; so is all, where the file system or the device refuses it.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeAlias

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


class ReadAhead:
    """A log whose small reads, in sequence, are served from windows of another one: three small reads of a file for
    each batch take as long as all else that is done with a small batch.
    """

    def __init__(self, log: LogBytes) -> None:
        self._log, self.size = log, log.size
        self._start, self._window = 0, b""

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        return self._log.window(position)

    def read(self, position: int, size: int) -> bytes:
        size = min(size, max(self.size - position, 0))
        at = position - self._start
        if at < 0 or at + size > len(self._window):
            start, window = self._log.window(position)
            at, self._start, self._window = 0, position, window[position - start :].tobytes()
            if size > len(self._window):
                return self._log.read(position, size)
        return self._window[at : at + size]


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


def zeros_from(log: LogBytes, position: int) -> int:
    """How many of the bytes of a log are zeros from a position on, up to the first other byte."""
    at = position
    while at < log.size:
        start, window = log.window(at)
        others = np.flatnonzero(window[at - start :])
        if len(others):
            return at + int(others[0]) - position
        at = start + len(window)
    return at - position


#: Bytes of one request to an object, or to a file that is not in memory, and how many requests run at a time in a
#: sequential read.
RANGE_BYTES: Final = 8 * 1024 * 1024
RANGES_AHEAD: Final = 4
#: Room for the rest of a range before the next one: less than a batch, which by Kafka's default has at most 1 MiB.
_SPACE_BYTES: Final = 1024 * 1024 + 4096

#: Memory of a sequential read of one log, or of several small ones at a time: the current range and the requested ones.
OBJECT_BYTES_MAX: Final = (RANGES_AHEAD + 1) * (RANGE_BYTES + _SPACE_BYTES)


@dataclass(slots=True)
class RangeRequests:
    """The requests of reading a log in ranges so far, and the bytes that they returned."""

    requests: int = 0
    read_bytes: int = 0


#: Fills memory with the bytes at a file position, and returns how many there were.
_ReadInto: TypeAlias = Callable[[int, NDArray[np.uint8]], int]


class RangedLog:
    """A log that is read in ranges. In a sequential read, the next ranges are requested while one is processed, and
    none is requested twice; a jump requests one range. The ranges bound memory, not the log's size.

    A range is processed in the buffer that it was read into. Only a rest at its end is copied, before the next range.

    Threads call `read_into`. A sequential read calls `done_to` with the position before which no byte is needed any
    more.
    """

    def __init__(
        self,
        read_into: _ReadInto,
        size: int,
        reads: RangeRequests,
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
            room = self._free.pop() if self._free else aligned_room(self._space + self._range_bytes)
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


#: Memory for the bytes of logs is used again and again: the kernel takes longer to give new pages than a scan takes to
#: read them. The bytes of a room:
ROOM_BYTES: Final = 9 * 1024 * 1024 + 4096
#: Less memory is as quick from the C library.
_BYTES_LEAST: Final = 1024 * 1024
#: So many rooms are kept while nobody uses them.
_FREE_MOST: Final = 6

_free: list[mmap.mmap] = []


def aligned_room(size: int) -> NDArray[np.uint8]:
    """Writable memory of `size` bytes, with any content, free again once this array and all views of it are gone. From
    1 MiB to `ROOM_BYTES` it begins at a page, as reads past the page cache need it; other sizes are new memory, and
    begin anywhere.
    """
    if not _BYTES_LEAST <= size <= ROOM_BYTES:
        return np.empty(size, np.uint8)
    try:
        memory = _free.pop()
    except IndexError:
        memory = mmap.mmap(-1, ROOM_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # by default it is shared
    array = np.frombuffer(memory, np.uint8, size)
    weakref.finalize(array, _give_back, memory).atexit = False
    return array


def _give_back(memory: mmap.mmap) -> None:
    if len(_free) < _FREE_MOST:
        _free.append(memory)


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
