"""Small logs of this machine, opened together and all in memory, for a scan of many in one pass."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final, Self

import numpy as np

from kidxlib.storage.location import FileVersion
from kidxlib.storage.log_bytes import Access, LogBytes, WholeLog
from kidxlib.storage.opened_file import OpenedFile, open_file

#: A log of more bytes is opened alone.
SMALL_BYTES: Final = 1024 * 1024


class OpenedTogether:
    """Small logs, opened one after the other. Use as a context, at whose end they are closed.

    Attributes:
        logs: their bytes, in the order in which they were opened; valid within the context.
        versions: the version of each.
        statuses: the status of each.
    """

    def __init__(self) -> None:
        self.logs: list[LogBytes] = []
        self.versions: list[FileVersion] = []
        self.statuses: list[os.stat_result] = []
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
        """Open a log and have its bytes in memory: mapped, or read where it may not be mapped or is not in memory.
        Returns its position in `logs`; None: it is not small, and was not opened.

        Raises:
            OSError: it cannot be opened or read.
            LogChangedError: it has changed while it was read.
        """
        descriptor, status = open_file(path)
        file, stays_open = OpenedFile(descriptor, FileVersion.of(status)), False
        try:
            if status.st_size > SMALL_BYTES:
                return None
            log = file.log(use_mmap=use_mmap, access=Access.SEQUENTIAL, chunk_bytes=file.version.size)
            stays_open = use_mmap and isinstance(log, WholeLog)
            if not stays_open:
                log = WholeLog(np.frombuffer(log.read(0, log.size), np.uint8))
                file.ensure_unchanged()
        finally:
            if not stays_open:
                file.close()
                os.close(descriptor)
        if stays_open:
            self._mapped[len(self.logs)] = descriptor, file
        self.logs.append(log)
        self.versions.append(file.version)
        self.statuses.append(status)
        return len(self.logs) - 1

    def ensure_unchanged(self, number: int) -> None:
        """Raise `LogChangedError` if a log has changed since it was opened; called after its bytes were used."""
        if number in self._mapped:
            self._mapped[number][1].ensure_unchanged()
