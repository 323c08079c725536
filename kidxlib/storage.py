"""How the bytes of a segment's log are reached: mapped, read in chunks, or by ranges of an object. Logs are only ever
opened for reading.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kidxlib import formats
from kidxlib.errors import KidxError
from kidxlib.objects import Location, ObjectPath, ObjectStatus, is_object, open_object, read_object_into
from kidxlib.page_cache import CachedPages, DropBehind

#: Bytes read at a time where a log is not mapped.
CHUNK_BYTES: Final = 4 * 1024 * 1024

#: Bytes asked of an object, or of a file that is not in memory, at a time, and how many such requests are under way
#: where it is read from end to end.
RANGE_BYTES: Final = 8 * 1024 * 1024
RANGES_AHEAD: Final = 4
#: A file is mapped where so many of its pages are in memory: the kernel now and then takes back a few of them.
_IN_MEMORY: Final = 0.9
#: What is left of a range when the next one is looked at: less than a batch. Kafka's are 1 MiB at most by default.
_SPACE_BYTES: Final = 1024 * 1024 + 4096


class LogChangedError(KidxError):
    """The log was changed by another process while it was read; its row says `changed`."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What tells one state of a file from another: size in bytes, modification time in ns, inode number; an object has
    none, and its time is in whole seconds.
    """

    size: int
    mtime_ns: int
    inode: int | None

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> FileVersion:
        return cls.of(os.fstat(descriptor))

    @classmethod
    def of_object(cls, status: ObjectStatus) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, None)


def version_at(place: Location) -> FileVersion | None:
    """The version of what stands there; None where nothing does, or it cannot be looked at."""
    try:
        return FileVersion.of_object(place.stat()) if isinstance(place, ObjectPath) else FileVersion.of(place.stat())
    except OSError:
        return None


class LogBytes(Protocol):
    """The bytes of a log, a window at a time."""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        ...

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """A read-only stretch of the file that holds the byte at `position`, and the position of its first byte.

        It reaches as far as it conveniently can, and is valid until the next call.
        """
        ...

    def read(self, position: int, size: int) -> bytes:
        """A copy of the `size` bytes at `position`, or of as many as there are: for who needs few bytes at a place."""
        ...


class WholeLog:
    """A log that lies in memory as a whole: mapped, or the bytes of a test."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._data.setflags(write=False)

    @property
    def size(self) -> int:
        return len(self._data)

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        return 0, self._data

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size].tobytes()


class ChunkedLog:
    """A log that is read piece by piece into one buffer, so that memory does not depend on its size."""

    def __init__(self, descriptor: int, size: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._descriptor = descriptor
        self._size = size
        self._buffer = np.empty(min(chunk_bytes, size), np.uint8)

    @property
    def size(self) -> int:
        return self._size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """See `LogBytes.window`.

        Raises:
            LogChangedError: the file is shorter than it was when it was opened.
        """
        window = self._buffer[: max(self._size - position, 0)]
        self._fill(window, position)
        window.setflags(write=False)
        return position, window

    def read(self, position: int, size: int) -> bytes:
        """See `LogBytes.read`.

        Raises:
            LogChangedError: the file is shorter than it was when it was opened.
        """
        data = np.empty(min(size, max(self._size - position, 0)), np.uint8)
        self._fill(data, position)
        return data.tobytes()

    def _fill(self, data: NDArray[np.uint8], position: int) -> None:
        filled = 0
        while filled < len(data):
            count = os.preadv(self._descriptor, [data[filled:].data], position + filled)
            if count == 0:
                raise LogChangedError(f"file ends at byte {position + filled}, it had {self._size} bytes when opened")
            filled += count


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
            done_to: is told which position all before is not needed any more, as long as it is read on and on.
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
        # In each room the range stands behind space for what is left of the one before it.
        self._space = min(range_bytes, _SPACE_BYTES)

    @property
    def size(self) -> int:
        return self._size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """See `LogBytes.window`. It holds a range's bytes from `position` on, or all that there are.

        Raises:
            LogChangedError: the log is shorter than it was when it was opened.
            OSError: it cannot be read, or is there no longer.
        """
        reads_on = self._start <= position <= self._end
        if not reads_on:
            self.let_go()
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

    def let_go(self) -> None:
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
            self.let_go()  # what comes behind the one that failed
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


class LogTail:
    """What stands in a log from one position on, as a log of its own."""

    def __init__(self, log: LogBytes, start: int) -> None:
        self._log = log
        self._start = start

    @property
    def size(self) -> int:
        return self._log.size - self._start

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """See `LogBytes.window`."""
        start, window = self._log.window(self._start + position)
        before = max(self._start - start, 0)
        return start + before - self._start, window[before:]

    def read(self, position: int, size: int) -> bytes:
        """See `LogBytes.read`."""
        return self._log.read(self._start + position, size)


class LogFile:
    """A log that is opened when it is first asked something, and read a few bytes at a time: by a search that needs
    little of it. A file that shrinks meanwhile is an error, which kills nothing.

    Attributes:
        path: the file.
        bytes_read: how many bytes were read so far.
    """

    def __init__(self, path: str, chunk_bytes: int = CHUNK_BYTES, expected_bytes: int | None = None) -> None:
        """
        Args:
            expected_bytes: how long the file has to be; None where nobody knows.
        """
        self.path = path
        self.bytes_read = 0
        self._chunk_bytes = chunk_bytes
        self._expected_bytes = expected_bytes
        self._valid_bytes: int | None = None
        self._opened = contextlib.ExitStack()
        self._log: LogBytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the file, when it was opened, or of its valid prefix.

        Raises:
            OSError: it cannot be opened, or is not a regular file.
            LogChangedError: it has not the length that was expected.
        """
        return self._file().size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """See `ChunkedLog.window`, and `size`."""
        start, window = self._file().window(position)
        self.bytes_read += len(window)
        return start, window

    def read(self, position: int, size: int) -> bytes:
        """See `ChunkedLog.read`, and `size`."""
        data = self._file().read(position, size)
        self.bytes_read += len(data)
        return data

    @contextlib.contextmanager
    def read_from_end_to_end(self) -> Iterator[LogBytes]:
        """Itself, and while the context lasts an object is read by large ranges, as each costs a request."""
        chunk_bytes = self._chunk_bytes
        if is_object(self.path):
            self.close()
            self._chunk_bytes = RANGE_BYTES
        try:
            yield self
        finally:
            if self._chunk_bytes != chunk_bytes:
                self.close()
                self._chunk_bytes = chunk_bytes

    def keep_valid(self, valid_bytes: int) -> None:
        """Take no notice of what stands behind the valid prefix, which a broker would cut off."""
        self._valid_bytes = valid_bytes
        self.close()

    def close(self) -> None:
        """Let go of the file; it is opened again if asked."""
        self._log = None
        self._opened.close()

    def _file(self) -> LogBytes:
        if self._log is None:
            opened = self._opened.enter_context(opened_log(self.path))
            version = opened.version
            if self._expected_bytes not in (None, version.size):
                self.close()
                raise LogChangedError(f"{self.path}: {version.size} bytes, expected {self._expected_bytes}")
            valid_bytes = version.size if self._valid_bytes is None else min(self._valid_bytes, version.size)
            self._log = opened.log(valid_bytes, may_map=False, chunk_bytes=self._chunk_bytes)
        return self._log


class OpenedLog(Protocol):
    """A segment's log, opened for reading.

    Attributes:
        version: of the file that it shows.
        reads: what reading it took, of an object; None of a file of this machine.
        status: of a file of this machine; None of an object.
    """

    version: FileVersion

    @property
    def reads(self) -> Reads | None: ...

    @property
    def status(self) -> os.stat_result | None: ...

    def log(
        self,
        size: int | None = None,
        *,
        may_map: bool,
        few_pages: bool = False,
        end_to_end: bool = False,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        """Its bytes, as long as it is open.

        Args:
            size: only so many; None for all.
            may_map, few_pages: see `map_log`. An object is never mapped.
            end_to_end: it is read once, from end to end: of a file that is not in memory much is asked for ahead, and
                let go of behind.
            chunk_bytes: how many are read at once where it is not mapped; None for what suits a scan.

        Raises:
            LogChangedError: the file shrank before it was mapped.
        """
        ...

    def refuse_changed(self) -> None:
        """To be asked when it was read.

        Raises:
            LogChangedError: it is not the version that was opened any more.
            OSError: it cannot be looked at, or is there no longer.
        """
        ...


class _OpenedFile:
    def __init__(self, descriptor: int, version: FileVersion) -> None:
        self._descriptor = descriptor
        self.version = version
        self.reads = None
        self._opened = contextlib.ExitStack()

    @property
    def status(self) -> os.stat_result | None:
        return os.fstat(self._descriptor)

    def log(
        self,
        size: int | None = None,
        *,
        may_map: bool,
        few_pages: bool = False,
        end_to_end: bool = False,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        wanted = self.version.size if size is None else size
        if not may_map:
            return ChunkedLog(self._descriptor, wanted, chunk_bytes or CHUNK_BYTES)
        mapped = map_log(self._descriptor, wanted, few_pages=few_pages)
        if end_to_end and 0 < wanted <= formats.SEGMENT_BYTES_MAX:  # no more is ever read
            cached = CachedPages(mapped.window(0)[1])
            if cached.share() < _IN_MEMORY:
                return self._cold(cached, wanted)
        return mapped

    def _cold(self, cached: CachedPages, size: int) -> LogBytes:
        behind = DropBehind(self._descriptor, cached.all())
        self._opened.callback(behind.done)
        if size <= RANGE_BYTES:  # one request, sooner answered than threads are begun
            return WholeLog(ChunkedLog(self._descriptor, size, size).window(0)[1])
        threads = self._opened.enter_context(ThreadPoolExecutor(RANGES_AHEAD))
        log = RangedLog(self._read_into, size, Reads(), threads, done_to=behind.done_to)
        self._opened.callback(log.let_go)
        return log

    def _read_into(self, position: int, room: NDArray[np.uint8]) -> int:
        filled = 0
        while filled < len(room):
            count = os.preadv(self._descriptor, [room[filled:].data], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def refuse_changed(self) -> None:
        refuse_changed(self._descriptor, self.version)

    def close(self) -> None:
        self._opened.close()


class _OpenedObject:
    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._file, self._opened_status = open_object(path)
        self._threads = ThreadPoolExecutor(RANGES_AHEAD)
        self._logs: list[RangedLog] = []
        self.version = FileVersion.of_object(self._opened_status)
        self.reads = Reads(requests=1)

    @property
    def status(self) -> os.stat_result | None:
        return None

    def log(
        self,
        size: int | None = None,
        *,
        may_map: bool,
        few_pages: bool = False,
        end_to_end: bool = False,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        wanted = self.version.size if size is None else size
        # Who asks for small chunks searches, and reads on only by chance.
        ahead = RANGES_AHEAD if chunk_bytes is None or chunk_bytes >= CHUNK_BYTES else 1
        range_bytes = RANGE_BYTES if chunk_bytes is None else chunk_bytes
        read_into = partial(read_object_into, self._file, self._path)
        log = RangedLog(read_into, wanted, self.reads, self._threads, range_bytes, ahead)
        self._logs.append(log)
        return log

    def refuse_changed(self) -> None:
        self._let_go()
        self.reads.requests += 1
        _, status = open_object(self._path)
        if status != self._opened_status:
            raise LogChangedError(
                f"{self._opened_status.st_size} bytes before the scan, {status.st_size} after; the object was replaced"
            )

    def close(self) -> None:
        self._let_go()
        self._threads.shutdown()

    def _let_go(self) -> None:
        for log in self._logs:
            log.let_go()


@contextlib.contextmanager
def opened_log(path: str) -> Iterator[OpenedLog]:
    """Open a segment's log, wherever it is.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    if is_object(path):
        with contextlib.closing(_OpenedObject(ObjectPath.of(path))) as opened:
            yield opened
    else:
        with open_log(path) as (descriptor, version), contextlib.closing(_OpenedFile(descriptor, version)) as opened:
            yield opened


@contextlib.contextmanager
def open_log(path: str) -> Iterator[tuple[int, FileVersion]]:
    """Open a segment's log for reading: its descriptor, and the version of the file that it shows.

    Raises:
        OSError: it cannot be opened, or is not a regular file (never waits on a pipe).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield descriptor, FileVersion.of_descriptor(descriptor)
    finally:
        os.close(descriptor)


def refuse_changed(descriptor: int, version: FileVersion) -> None:
    """See `OpenedLog.refuse_changed`."""
    version_after = FileVersion.of_descriptor(descriptor)
    if version_after != version:
        raise LogChangedError(
            f"{version.size} bytes before the scan, {version_after.size} after; a broker seems to be writing to it"
        )


def map_log(descriptor: int, size: int, *, few_pages: bool = False) -> LogBytes:
    """The first `size` bytes of a file, mapped for as long as the result lives. A file that shrinks meanwhile kills the
    process (SIGBUS).

    Args:
        few_pages: only a page here and there is wanted, so none is read ahead.

    Raises:
        LogChangedError: the file shrank before it was mapped.
    """
    if size == 0:
        return WholeLog(np.empty(0, np.uint8))
    try:
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise LogChangedError(f"file had {size} bytes when it was opened and has fewer now") from error
    if few_pages and hasattr(mmap, "MADV_RANDOM"):
        memory.madvise(mmap.MADV_RANDOM)
    return WholeLog(np.frombuffer(memory, np.uint8))
