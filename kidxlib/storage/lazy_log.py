"""A segment's log that is opened when it is first asked something."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import LogChangedError
from kidxlib.storage.log_bytes import CHUNK_BYTES, LogBytes
from kidxlib.storage.opened_log import opened_log
from kidxlib.storage.ranged_log import RANGE_BYTES
from kidxlib.storage.store.s3 import is_object


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
