"""A segment's log, opened for reading, wherever it is: at once (`opened_log`), at the first read (`LogFile`), or small
ones of this machine together (`OpenedTogether`), for a scan of many in one pass.

A file of this machine is mapped, read in chunks, or in ranges if it is not in memory. The kernel's page cache is left
as it was: on a broker's machine it is the broker's. A small file that is in memory is copied: to map it, to look which
of its pages are there and to touch them takes four times as long.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError
from kidxlib.format import layouts
from kidxlib.storage.location import FileVersion, location, open_regular_file
from kidxlib.storage.log_bytes import (
    CHUNK_BYTES,
    RANGE_BYTES,
    RANGES_AHEAD,
    Access,
    ChunkedLog,
    LogBytes,
    RangedLog,
    RangeRequests,
    UncachedReads,
    WholeLog,
    aligned_room,
)
from kidxlib.storage.packed import is_packed
from kidxlib.storage.store.s3 import ObjectPath, is_object, open_object, read_object_into

#: A segment's log, opened for reading.
OpenedLog: TypeAlias = "OpenedFile | _OpenedObject"


@contextlib.contextmanager
def opened_log(path: str) -> Iterator[OpenedLog]:
    """A segment's log, opened for reading, and closed at the end of the context."""
    if is_object(path):
        with contextlib.closing(_OpenedObject(ObjectPath.of(path))) as opened:
            yield opened
    else:
        with (
            open_local_log(path) as (descriptor, version),
            contextlib.closing(OpenedFile(descriptor, version)) as opened,
        ):
            yield opened


class LogFile:
    """A log for a search that needs few of its bytes: opened at the first read, and read a few bytes at a time. A file
    that shrinks meanwhile is an error and does not kill the process; so is a file without the `expected_bytes`.
    """

    def __init__(self, path: str, chunk_bytes: int = CHUNK_BYTES, expected_bytes: int | None = None) -> None:
        self.path = path
        self.bytes_read = 0
        self._chunk_bytes = chunk_bytes
        self._expected_bytes = expected_bytes
        self._valid_bytes: int | None = None
        self._opened = contextlib.ExitStack()
        self._log: LogBytes | None = None

    @property
    def size(self) -> int:
        """The size of the file when it was opened, or of its valid prefix."""
        return self._log_bytes().size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        start, window = self._log_bytes().window(position)
        self.bytes_read += len(window)
        return start, window

    def read(self, position: int, size: int) -> bytes:
        data = self._log_bytes().read(position, size)
        self.bytes_read += len(data)
        return data

    @contextlib.contextmanager
    def read_sequentially(self) -> Iterator[LogBytes]:
        """This log, with larger reads within the context; largest for an object, where each range costs a request."""
        chunk_bytes = self._chunk_bytes
        large = RANGE_BYTES if is_object(self.path) else CHUNK_BYTES
        if chunk_bytes < large:
            self.close()
            self._chunk_bytes = large
        try:
            yield self
        finally:
            if self._chunk_bytes != chunk_bytes:
                self.close()
                self._chunk_bytes = chunk_bytes

    def keep_valid(self, valid_bytes: int) -> None:
        """Ignore the bytes after the valid prefix, which a broker would truncate."""
        self._valid_bytes = valid_bytes
        self.close()

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        self._log = None
        self._opened.close()

    def _log_bytes(self) -> LogBytes:
        if self._log is None:
            opened = self._opened.enter_context(opened_log(self.path))
            size = opened.version.size
            if self._expected_bytes not in (None, size):
                self.close()
                raise LogChangedError(f"{self.path}: {size} bytes, expected {self._expected_bytes}")
            valid_bytes = size if self._valid_bytes is None else min(self._valid_bytes, size)
            self._log = opened.log(valid_bytes, use_mmap=False, chunk_bytes=self._chunk_bytes)
        return self._log


#: A log of more bytes is opened alone.
SMALL_BYTES: Final = 1024 * 1024
#: The most bytes of logs that are in memory for one pass over them, and the most items of a pass where nobody says.
_TOGETHER_BYTES: Final = 32 * 1024 * 1024
_TOGETHER_ITEMS: Final = 300
#: The most logs that are mapped at a time. Each keeps two descriptors, and many systems allow a process 1,024.
_MAPPED_MOST: Final = 100


class _HasLogBytes(Protocol):
    @property
    def log_bytes(self) -> int: ...


_T = TypeVar("_T", bound=_HasLogBytes)


def small_log_passes(items: Iterable[_T], most_items: int = _TOGETHER_ITEMS) -> Iterator[list[_T]]:
    """Items whose small logs are read together: at most `_TOGETHER_BYTES` of logs, or one item."""
    of_pass: list[_T] = []
    log_bytes = 0
    for item in items:
        log_bytes += item.log_bytes
        if of_pass and (log_bytes > _TOGETHER_BYTES or len(of_pass) == most_items):
            yield of_pass
            of_pass, log_bytes = [], item.log_bytes
        of_pass.append(item)
    if of_pass:
        yield of_pass


def room_of_pass() -> NDArray[np.uint8]:
    """The room for the logs of one pass after the other. No more of it takes memory than is used."""
    return np.empty(_TOGETHER_BYTES, np.uint8)


class OpenedTogether:
    """Small logs, opened one after the other. Use as a context, at whose end they are closed.

    Args:
        room: for bytes that are copied, uint8 of shape (n,), which the logs use up to the end of the context.

    Attributes:
        logs: their bytes, in the order in which they were opened; valid within the context.
        versions, statuses: in the same order.
    """

    def __init__(self, room: NDArray[np.uint8]) -> None:
        self.logs: list[LogBytes] = []
        self.versions: list[FileVersion] = []
        self.statuses: list[os.stat_result] = []
        self._room = room
        self._address = room.ctypes.data
        self._cached_pages = _CachedPageCount()
        self._mapped: dict[int, tuple[int, OpenedFile]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor, file in self._mapped.values():
            file.close()
            os.close(descriptor)

    def open(self, path: str, *, use_mmap: bool) -> int | None:
        """Open a log and have its bytes in memory: copied, if they are in memory; else read or mapped, as a large log.
        Returns its position in `logs`; None: it is not small, and was not opened.

        Raises:
            OSError: it cannot be opened or read.
            LogChangedError: it has changed while it was read.
        """
        descriptor, status = open_regular_file(path)
        version, stays_open = FileVersion.of(status), False
        try:
            if status.st_size > SMALL_BYTES:
                return None
            log = self._copied(descriptor, status.st_size)
            if log is not None:
                ensure_unchanged(descriptor, version)
            else:
                may_map = use_mmap and len(self._mapped) < _MAPPED_MOST
                log = self._read_or_mapped(descriptor, version, use_mmap=may_map)
                stays_open = log.is_mapped
        finally:
            if not stays_open:
                os.close(descriptor)
        self.logs.append(log)
        self.versions.append(version)
        self.statuses.append(status)
        return len(self.logs) - 1

    def _read_or_mapped(self, descriptor: int, version: FileVersion, *, use_mmap: bool) -> WholeLog:
        """The bytes of the next log in `logs`; one that is mapped is in `_mapped` then."""
        file, stays_open = OpenedFile(descriptor, version), False
        try:
            log = file.log(use_mmap=use_mmap, access=Access.SEQUENTIAL)
            if not isinstance(log, WholeLog):
                log = WholeLog(np.frombuffer(log.read(0, log.size), np.uint8))
            stays_open = log.is_mapped
            if stays_open:
                self._mapped[len(self.logs)] = descriptor, file
            else:
                file.ensure_unchanged()
            return log
        finally:
            if not stays_open:
                file.close()

    def ensure_unchanged(self, number: int) -> None:
        """Raise `LogChangedError` if a log has changed since it was opened; called after its bytes were used."""
        if number in self._mapped:
            self._mapped[number][1].ensure_unchanged()

    def _copied(self, descriptor: int, size: int) -> WholeLog | None:
        """The bytes of a file that is in memory; None if it is not, or nobody can tell, or there is no room."""
        if size > len(self._room) or self._cached_pages.of(descriptor, size) < -(-size // mmap.PAGESIZE):
            return None
        bytes_of_log = self._room[:size]
        if os.preadv(descriptor, [bytes_of_log.data], 0) < size:
            return None
        log = WholeLog(bytes_of_log, address=self._address)
        self._room, self._address = self._room[size:], self._address + size
        return log


class _OpenedObject:
    """An object, opened for reading: what `OpenedFile` has.

    Attributes:
        reads: requests and bytes of reading it.
    """

    status = None

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._file, self._opened_status = open_object(path)
        self._threads = ThreadPoolExecutor(RANGES_AHEAD)
        self._logs: list[RangedLog] = []
        self.version = FileVersion.of_object(self._opened_status)
        self.reads = RangeRequests(requests=1)

    def log(
        self,
        size: int | None = None,
        *,
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        """See `OpenedFile.log`; an object is never mapped."""
        wanted = self.version.size if size is None else size
        # A caller that asks for small chunks searches: it rarely reads the next range.
        ahead = RANGES_AHEAD if chunk_bytes is None or chunk_bytes >= CHUNK_BYTES else 1
        range_bytes = RANGE_BYTES if chunk_bytes is None else chunk_bytes
        read_into = partial(read_object_into, self._file, self._path)
        log = RangedLog(read_into, wanted, self.reads, self._threads, range_bytes, ahead)
        self._logs.append(log)
        return log

    def ensure_unchanged(self) -> None:
        self._release()
        self.reads.requests += 1
        _, status = open_object(self._path)
        if status != self._opened_status:
            raise LogChangedError(
                f"{self._opened_status.st_size} bytes before the scan, {status.st_size} after; the object was replaced"
            )

    def close(self) -> None:
        self._release()
        self._threads.shutdown()

    def _release(self) -> None:
        for log in self._logs:
            log.release()


class OpenedFile:
    """A file of this machine, opened for reading. Whoever has opened its descriptor closes it."""

    reads = None

    def __init__(self, descriptor: int, version: FileVersion) -> None:
        self._descriptor = descriptor
        self.version = version
        self._opened = contextlib.ExitStack()

    @property
    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def log(
        self,
        size: int | None = None,
        *,
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        """The first `size` bytes of the log, or all, valid as long as it is open (`map_log`). A log that is not mapped
        is read `chunk_bytes` at a time; None: as a scan needs them.
        """
        size = self.version.size if size is None else size
        if access is Access.SEQUENTIAL and 0 < size <= layouts.SEGMENT_BYTES_MAX:  # longer logs are never read
            mapped = map_log(self._descriptor, size)
            cached = _CachedPages(mapped.window(0)[1])
            share = cached.share()
            if share < _IN_MEMORY:
                return self._cold(cached, size, is_on_disk=share <= _ON_DISK)
            if use_mmap:
                return mapped
        if not use_mmap:
            return ChunkedLog(self._descriptor, size, chunk_bytes or CHUNK_BYTES)
        return map_log(self._descriptor, size, access=access)

    def _cold(self, cached: _CachedPages, size: int, *, is_on_disk: bool) -> LogBytes:
        # Some file systems take reads past the page cache, and fill it all the same.
        drop_behind = _DropBehind(self._descriptor, cached.all())
        self._opened.callback(drop_behind.done)
        read_into = UncachedReads(self._descriptor)
        if is_on_disk:
            self._opened.enter_context(read_into)
        if size <= RANGE_BYTES:  # one request, which is faster than starting threads
            whole = aligned_room(size)
            if (count := read_into(0, whole)) < size:
                raise LogChangedError(f"file ends at byte {count}, it had {size} bytes when opened")
            return WholeLog(whole)
        threads = self._opened.enter_context(ThreadPoolExecutor(RANGES_AHEAD))
        log = RangedLog(read_into, size, RangeRequests(), threads, done_to=drop_behind.done_to)
        self._opened.callback(log.release)
        return log

    def ensure_unchanged(self) -> None:
        """Raise `LogChangedError` if the log has changed since it was opened; called after reading."""
        ensure_unchanged(self._descriptor, self.version)

    def close(self) -> None:
        self._opened.close()


def ensure_unchanged(descriptor: int, version: FileVersion) -> None:
    """Raise `LogChangedError` if an opened file has no longer this version."""
    after = os.fstat(descriptor)
    if (after.st_size, after.st_mtime_ns, after.st_ino) != (version.size, version.mtime_ns, version.inode):
        raise LogChangedError(
            f"{version.size} bytes before the scan, {after.st_size} after; a broker seems to be writing to it"
        )


@contextlib.contextmanager
def open_local_log(path: str, directory: int | None = None) -> Iterator[tuple[int, FileVersion]]:
    """Open a segment's log for reading, as `open_regular_file` does: the descriptor, and the file's version."""
    descriptor, status = open_regular_file(path, directory)
    try:
        yield descriptor, FileVersion.of(status)
    finally:
        os.close(descriptor)


def map_log(descriptor: int, size: int, *, access: Access = Access.NORMAL) -> LogBytes:
    """The first `size` bytes of a file, mapped for as long as the result lives; with `RANDOM` without readahead. A file
    that shrinks meanwhile kills the process (SIGBUS).
    """
    if size == 0:
        return WholeLog(np.empty(0, np.uint8))
    try:
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise LogChangedError(f"file had {size} bytes when it was opened and has fewer now") from error
    if access is Access.RANDOM and hasattr(mmap, "MADV_RANDOM"):
        memory.madvise(mmap.MADV_RANDOM)
    return WholeLog(np.frombuffer(memory, np.uint8), is_mapped=True)


def map_file(path: str) -> NDArray[np.uint8]:
    """The bytes of a file, opened as a log is, and mapped read-only for as long as the result lives; an object or a
    packed file is read as a whole.
    """
    if is_object(path) or is_packed(path):
        return np.frombuffer(location(path).read_bytes(), np.uint8)
    try:
        with open_local_log(path) as (descriptor, version):
            return map_log(descriptor, version.size).window(0)[1]
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, path) from error
        raise


#: A file is mapped if at least this share of its pages is in memory: the kernel reclaims a few now and then.
_IN_MEMORY: Final = 0.9
#: A file with more in memory is read through the page cache, as the disk is slower than what is in memory.
_ON_DISK: Final = 0.1

_PAGE: Final = mmap.PAGESIZE

#: A sample tells whether a file is in memory: one place in each MiB, within these bounds, each place of some pages.
#: Looking at every page takes a twentieth of the time of a scan.
_BYTES_A_PLACE: Final = 1024 * 1024
_PLACES_MIN: Final = 16
_PLACES_MAX: Final = 64
_PAGES_A_PLACE: Final = 16
#: The number of Linux's system call, the same on all processors that kidx runs on. Elsewhere it is another call's.
_CACHESTAT: Final = 451 if sys.platform == "linux" else None

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class _CachedPages:
    """Which pages of a file are in memory (mincore(2)): all, if the kernel does not tell, as for another user's file
    that this process may not write. The file, of at least one byte, is mapped from its start; no byte is touched.
    """

    def __init__(self, mapped: NDArray[np.uint8]) -> None:
        self._mapped, self._address = mapped, mapped.ctypes.data

    def share(self) -> float:
        """The share of pages in memory, 0 to 1; in a large file that of a sample."""
        pages = -(-len(self._mapped) // _PAGE)
        places = min(max(len(self._mapped) // _BYTES_A_PLACE, _PLACES_MIN), _PLACES_MAX)
        if pages <= places * _PAGES_A_PLACE:
            return np.count_nonzero(self.all()) / pages
        cached = np.empty((places, _PAGES_A_PLACE), np.uint8)
        start, room = self._address, cached.ctypes.data
        for number in range(places):
            place = number * (pages - _PAGES_A_PLACE) // (places - 1)
            size = min(_PAGES_A_PLACE * _PAGE, len(self._mapped) - place * _PAGE)
            if _libc.mincore(start + place * _PAGE, size, room + number * _PAGES_A_PLACE) != 0:
                return 1.0
        return float((cached & 1).mean())

    def all(self) -> NDArray[np.bool_]:
        """For each page, whether it is in memory."""
        cached = np.empty(-(-len(self._mapped) // _PAGE), np.uint8)
        if _libc.mincore(self._address, len(self._mapped), cached.ctypes.data) != 0:
            cached[:] = 1
        cached &= 1
        return cached.view(np.bool_)


class _CachedPageCount:
    """How many pages of a file are in memory (cachestat(2), of Linux 6.5), without mapping it."""

    def __init__(self) -> None:
        self._range = (ctypes.c_uint64 * 2)()  # the first byte and how many
        self._found = (ctypes.c_uint64 * 5)()  # first those in the page cache
        self._arguments = ctypes.byref(self._range), ctypes.byref(self._found), 0

    def of(self, descriptor: int, size: int) -> int:
        """The number of pages of the first `size` bytes; −1: the kernel does not tell."""
        if _CACHESTAT is None:
            return -1
        self._range[1] = size
        return self._found[0] if _libc.syscall(_CACHESTAT, descriptor, *self._arguments) == 0 else -1


class _DropBehind:
    """Drops the pages of a file after they were read, but for those that were in memory before (`_CachedPages.all`).
    Where the system drops none they stay (`kidx doctor` says so).
    """

    def __init__(self, descriptor: int, cached: NDArray[np.bool_]) -> None:
        self._descriptor, self._cached = descriptor, cached
        self._done = 0

    def done_to(self, position: int) -> None:
        """Drop the pages before the one of a file position, which may still be needed."""
        end = position // _PAGE
        self._drop(self._done, end)
        self._done = max(self._done, end)

    def done(self) -> None:
        self._drop(0, len(self._cached))

    def _drop(self, first: int, end: int) -> None:
        if not hasattr(os, "posix_fadvise"):
            return
        absent = np.concatenate([[False], ~self._cached[first:end], [False]])
        edges = np.flatnonzero(absent[1:] != absent[:-1]) + first
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            os.posix_fadvise(self._descriptor, start * _PAGE, (stop - start) * _PAGE, os.POSIX_FADV_DONTNEED)
