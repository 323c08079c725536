"""A segment's log, opened for reading on a disk or in an object store, at once or at the first read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError
from kidxlib.storage.location import FileVersion
from kidxlib.storage.log_bytes import CHUNK_BYTES, RANGE_BYTES, RANGES_AHEAD, Access, LogBytes, RangedLog, Reads
from kidxlib.storage.opened_file import OpenedFile, open_log
from kidxlib.storage.store.s3 import ObjectPath, is_object, open_object, read_object_into


class OpenedLog(Protocol):
    """A segment's log, opened for reading.

    Attributes:
        version: the file's version.
        reads: requests and bytes of reading an object; None for a file of this machine.
        status: of a file of this machine; None for an object.
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
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        """The first `size` bytes of the log, or all, valid as long as it is open. An object is never mapped
        (`map_log`). A log that is not mapped is read `chunk_bytes` at a time; None: as a scan needs them.
        """
        ...

    def ensure_unchanged(self) -> None:
        """Raise `LogChangedError` if the log has changed since it was opened; called after reading."""
        ...


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
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
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


@contextlib.contextmanager
def opened_log(path: str) -> Iterator[OpenedLog]:
    if is_object(path):
        with contextlib.closing(_OpenedObject(ObjectPath.of(path))) as opened:
            yield opened
    else:
        with open_log(path) as (descriptor, version), contextlib.closing(OpenedFile(descriptor, version)) as opened:
            yield opened


class LogFile:
    """A log for a search that needs few of its bytes: opened at the first read, and read a few bytes at a time. A file
    that shrinks meanwhile is an error and does not kill the process; so is a file without the `expected_bytes`.

    Attributes:
        bytes_read: the bytes that were read so far.
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
