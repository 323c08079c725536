"""A segment's log on this machine, opened for reading: mapped, read in chunks, or by ranges if it is not in memory."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError
from kidxlib.format import layouts as formats
from kidxlib.storage.file_version import FileVersion
from kidxlib.storage.log_bytes import CHUNK_BYTES, Access, ChunkedLog, LogBytes, WholeLog
from kidxlib.storage.page_cache import CachedPages, DropBehind
from kidxlib.storage.ranged_log import RANGE_BYTES, RANGES_AHEAD, RangedLog, Reads

#: A file is mapped where so many of its pages are in memory: the kernel now and then takes back a few of them.
_IN_MEMORY: Final = 0.9


class OpenedFile:
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
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        wanted = self.version.size if size is None else size
        if access is Access.SEQUENTIAL and 0 < wanted <= formats.SEGMENT_BYTES_MAX:  # no more is ever read
            cached = CachedPages(map_log(self._descriptor, wanted).window(0)[1])
            if cached.share() < _IN_MEMORY:
                return self._cold(cached, wanted)
        if not use_mmap:
            return ChunkedLog(self._descriptor, wanted, chunk_bytes or CHUNK_BYTES)
        return map_log(self._descriptor, wanted, access=access)

    def _cold(self, cached: CachedPages, size: int) -> LogBytes:
        drop_behind = DropBehind(self._descriptor, cached.all())
        self._opened.callback(drop_behind.done)
        if size <= RANGE_BYTES:  # one request, sooner answered than threads are begun
            return WholeLog(ChunkedLog(self._descriptor, size, size).window(0)[1])
        threads = self._opened.enter_context(ThreadPoolExecutor(RANGES_AHEAD))
        log = RangedLog(self._read_into, size, Reads(), threads, done_to=drop_behind.done_to)
        self._opened.callback(log.release)
        return log

    def _read_into(self, position: int, room: NDArray[np.uint8]) -> int:
        filled = 0
        while filled < len(room):
            count = os.preadv(self._descriptor, [room[filled:].data], position + filled)
            if count == 0:
                break
            filled += count
        return filled

    def ensure_unchanged(self) -> None:
        ensure_unchanged(self._descriptor, self.version)

    def close(self) -> None:
        self._opened.close()


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


def ensure_unchanged(descriptor: int, version: FileVersion) -> None:
    """See `OpenedLog.ensure_unchanged`."""
    version_after = FileVersion.of_descriptor(descriptor)
    if version_after != version:
        raise LogChangedError(
            f"{version.size} bytes before the scan, {version_after.size} after; a broker seems to be writing to it"
        )


def map_log(descriptor: int, size: int, *, access: Access = Access.NORMAL) -> LogBytes:
    """The first `size` bytes of a file, mapped for as long as the result lives. A file that shrinks meanwhile kills the
    process (SIGBUS).

    Args:
        access: `RANDOM` reads no page ahead; the others leave that to the kernel.

    Raises:
        LogChangedError: the file shrank before it was mapped.
    """
    if size == 0:
        return WholeLog(np.empty(0, np.uint8))
    try:
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise LogChangedError(f"file had {size} bytes when it was opened and has fewer now") from error
    if access is Access.RANDOM and hasattr(mmap, "MADV_RANDOM"):
        memory.madvise(mmap.MADV_RANDOM)
    return WholeLog(np.frombuffer(memory, np.uint8))
