"""How the bytes of a segment's log are reached: mapped, or read in chunks. Logs are only ever opened for reading."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import KidxError

#: Bytes read at a time where a log is not mapped.
CHUNK_BYTES: Final = 4 * 1024 * 1024


class LogChangedError(KidxError):
    """The log was changed by another process while it was read; its row says `changed`."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What tells one state of a file from another: size in bytes, modification time in ns, inode number."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> FileVersion:
        return cls.of(os.fstat(descriptor))


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
        self._log: ChunkedLog | None = None

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

    def keep_valid(self, valid_bytes: int) -> None:
        """Take no notice of what stands behind the valid prefix, which a broker would cut off."""
        self._valid_bytes = valid_bytes
        self.close()

    def close(self) -> None:
        """Let go of the file; it is opened again if asked."""
        self._log = None
        self._opened.close()

    def _file(self) -> ChunkedLog:
        if self._log is None:
            descriptor, version = self._opened.enter_context(open_log(self.path))
            if self._expected_bytes not in (None, version.size):
                self.close()
                raise LogChangedError(f"{self.path}: {version.size} bytes, expected {self._expected_bytes}")
            valid_bytes = version.size if self._valid_bytes is None else min(self._valid_bytes, version.size)
            self._log = ChunkedLog(descriptor, valid_bytes, self._chunk_bytes)
        return self._log


@contextlib.contextmanager
def open_log(path: str) -> Iterator[tuple[int, FileVersion]]:
    """Open a segment's log for reading: its descriptor, and the version of the file that it shows.

    Raises:
        OSError: it cannot be opened, or is not a regular file (never waits on a pipe).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        yield descriptor, FileVersion.of_descriptor(descriptor)
    finally:
        os.close(descriptor)


def refuse_changed(descriptor: int, version: FileVersion) -> None:
    """To be asked when a log was read.

    Raises:
        LogChangedError: it is not the version that was opened any more.
    """
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
