"""Small logs of this machine, opened together and all in memory, for a scan of many in one pass.

A small file that is in memory is copied: to map it, to look which of its pages are there and to touch them takes four
times as long.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kidxlib.storage.location import FileVersion
from kidxlib.storage.log_bytes import Access, LogBytes, WholeLog
from kidxlib.storage.opened_log import OpenedFile, ensure_unchanged, open_file

#: A log of more bytes is opened alone.
SMALL_BYTES: Final = 1024 * 1024
#: The most bytes of logs that are in memory for one pass over them, and the most items of a pass where nobody says.
TOGETHER_BYTES: Final = 32 * 1024 * 1024
_TOGETHER_ITEMS: Final = 300
#: The most logs that are mapped at a time. Each keeps two descriptors, and many systems allow a process 1,024.
_MAPPED_MOST: Final = 100
#: The number of Linux's system call, the same on all processors that kidx runs on. Elsewhere it is another call's.
_CACHESTAT: Final = 451 if sys.platform == "linux" else None
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _HasLogBytes(Protocol):
    @property
    def log_bytes(self) -> int: ...


_T = TypeVar("_T", bound=_HasLogBytes)


def passes(items: Iterable[_T], most_items: int = _TOGETHER_ITEMS) -> Iterator[list[_T]]:
    """Items whose small logs are read together: at most `TOGETHER_BYTES` of logs, or one item."""
    of_pass: list[_T] = []
    log_bytes = 0
    for item in items:
        log_bytes += item.log_bytes
        if of_pass and (log_bytes > TOGETHER_BYTES or len(of_pass) == most_items):
            yield of_pass
            of_pass, log_bytes = [], item.log_bytes
        of_pass.append(item)
    if of_pass:
        yield of_pass


def new_room() -> NDArray[np.uint8]:
    """The room for the logs of one pass after the other. No more of it takes memory than is used."""
    return np.empty(TOGETHER_BYTES, np.uint8)


class OpenedTogether:
    """Small logs, opened one after the other. Use as a context, at whose end they are closed.

    Args:
        room: for bytes that are copied, uint8 of shape (n,), which the logs use up to the end of the context.

    Attributes:
        logs: their bytes, in the order in which they were opened; valid within the context.
        versions: the version of each.
        statuses: the status of each.
    """

    def __init__(self, room: NDArray[np.uint8]) -> None:
        self.logs: list[LogBytes] = []
        self.versions: list[FileVersion] = []
        self.statuses: list[os.stat_result] = []
        self._room = room
        self._address = room.ctypes.data
        self._cached_pages = _CachedPages()
        self._mapped: dict[int, tuple[int, OpenedFile]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
        descriptor, status = open_file(path)
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


class _CachedPages:
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
