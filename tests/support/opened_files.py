"""The files that were opened, by the kernel's inotify, so that a test can say "this log was not read"."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tests.faults.watching import Did, Watch


class OpenedFiles(Watch):
    """Records every file that any process opens directly in one of the directories while the context lasts."""

    def __init__(self, directories: Iterable[Path]) -> None:
        super().__init__(directories, Did.OPEN)
        self._opened: set[Path] = set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.set_blocking(self._descriptor, False)
        try:
            while True:
                self._opened |= {event.directory / event.name for event in self._read()}
        except BlockingIOError:
            super().__exit__(kind, error, traceback)

    def logs(self) -> list[Path]:
        """The opened `.log` files, sorted."""
        return self.files(".log")

    def files(self, suffix: str) -> list[Path]:
        """The opened files with a suffix, sorted."""
        return sorted(path for path in self._opened if path.suffix == suffix)
