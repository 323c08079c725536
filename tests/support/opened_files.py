"""The files that were opened, by the kernel's inotify, so that a test can say "this log was not read"."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_IN_OPEN: Final = 0x20
_IN_Q_OVERFLOW: Final = 0x4000
_EVENT: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class OpenedFiles:
    """Records every file that any process opens directly in one of the directories while the context lasts."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._directories = list(directories)
        self._opened: set[Path] = set()

    def __enter__(self) -> Self:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watches = {
            _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _IN_OPEN): directory
            for directory in self._directories
        }
        assert self._descriptor >= 0 and -1 not in self._watches, os.strerror(ctypes.get_errno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._drain()
        os.close(self._descriptor)

    def logs(self) -> list[Path]:
        """The opened `.log` files, sorted."""
        return self.files(".log")

    def files(self, suffix: str) -> list[Path]:
        """The opened files with a suffix, sorted."""
        return sorted(path for path in self._opened if path.suffix == suffix)

    def _drain(self) -> None:
        while True:
            try:
                events = os.read(self._descriptor, 1 << 20)
            except BlockingIOError:
                return
            position = 0
            while position < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, position)
                position += _EVENT.size
                assert not mask & _IN_Q_OVERFLOW, "too many files were opened to note them all"
                name = events[position : position + length].rstrip(b"\0")
                position += length
                self._opened.add(self._watches[watch] / os.fsdecode(name))
