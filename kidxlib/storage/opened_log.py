"""A segment's log, opened for reading wherever it is, at once or when it is first asked something."""

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
from kidxlib.storage.log_bytes import CHUNK_BYTES, Access, LogBytes
from kidxlib.storage.opened_file import OpenedFile, open_log
from kidxlib.storage.ranged_log import RANGE_BYTES, RANGES_AHEAD, RangedLog, Reads
from kidxlib.storage.store.s3 import ObjectPath, is_object, open_object, read_object_into


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
        use_mmap: bool,
        access: Access = Access.NORMAL,
        chunk_bytes: int | None = None,
    ) -> LogBytes:
        """The bytes of the log, as long as it is open.

        Args:
            size: only so many; None for all.
            use_mmap: see `map_log`. An object is never mapped.
            access: in which order its bytes are read.
            chunk_bytes: how many are read at once where it is not mapped; None for what suits a scan.
        """
        ...

    def ensure_unchanged(self) -> None:
        """To be asked when it was read."""
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
        # Who asks for small chunks searches, and reads on only by chance.
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
    """Open a segment's log, wherever it is."""
    if is_object(path):
        with contextlib.closing(_OpenedObject(ObjectPath.of(path))) as opened:
            yield opened
    else:
        with open_log(path) as (descriptor, version), contextlib.closing(OpenedFile(descriptor, version)) as opened:
            yield opened


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
        """Bytes of the file, when it was opened, or of its valid prefix."""
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
    def read_sequentially(self) -> Iterator[LogBytes]:
        """Itself, and while the context lasts much of it is read at once; of an object most, as each range costs a
        request.
        """
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
        """Take no notice of what follows the valid prefix, which a broker would truncate."""
        self._valid_bytes = valid_bytes
        self.close()

    def close(self) -> None:
        """Close the file; it is opened again if asked."""
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
            self._log = opened.log(valid_bytes, use_mmap=False, chunk_bytes=self._chunk_bytes)
        return self._log
