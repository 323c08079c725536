"""A segment's log, opened for reading wherever it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Protocol

from kidxlib.storage.file_version import FileVersion
from kidxlib.storage.log_bytes import Access, LogBytes
from kidxlib.storage.opened_file import OpenedFile, open_log
from kidxlib.storage.ranged_log import Reads
from kidxlib.storage.store.opened_object import OpenedObject
from kidxlib.storage.store.s3 import ObjectPath, is_object


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

        Raises:
            LogChangedError: the file shrank before it was mapped.
        """
        ...

    def ensure_unchanged(self) -> None:
        """To be asked when it was read.

        Raises:
            LogChangedError: it is not the version that was opened any more.
            OSError: it cannot be looked at, or is there no longer.
        """
        ...


@contextlib.contextmanager
def opened_log(path: str) -> Iterator[OpenedLog]:
    """Open a segment's log, wherever it is.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    if is_object(path):
        with contextlib.closing(OpenedObject(ObjectPath.of(path))) as opened:
            yield opened
    else:
        with open_log(path) as (descriptor, version), contextlib.closing(OpenedFile(descriptor, version)) as opened:
            yield opened
