"""What happens to files, in the kernel's own words (inotify): each event in order, none missed."""

from __future__ import annotations

import ctypes
import enum
import os
import select
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_OVERFLOW: Final = 0x4000
_EVENT: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Did(enum.IntFlag):
    """What was done to a file in a watched directory."""

    WRITE = 0x2
    CLOSE_WRITTEN = 0x8
    OPEN = 0x20
    RENAME_AWAY = 0x40
    RENAME_HERE = 0x80
    CREATE = 0x100
    DELETE = 0x200


#: All but that something was opened, which happens all the time.
_CHANGES: Final = sum(Did) & ~Did.OPEN


@dataclass(frozen=True, slots=True)
class Event:
    directory: Path
    name: str
    did: Did


class Watch:
    """Use as a context: what happens from its start to its end in directories that exist, by any process.

    Args:
        did: what is watched.
    """

    def __init__(self, directories: Iterable[Path], did: int = _CHANGES) -> None:
        self._directories, self._did = list(directories), did

    def __enter__(self) -> Self:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        self._watches = {}
        for directory in self._directories:
            watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(directory), self._did)
            assert watch >= 0, os.strerror(ctypes.get_errno())
            self._watches[watch] = directory
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def events(self, *ends: int) -> Iterator[Event]:
        """The events so far and those to come, until one of the descriptors `ends` becomes readable."""
        while True:
            readable, _, _ = select.select([self._descriptor, *ends], [], [])
            if self._descriptor in readable:
                yield from self._read()
            elif readable:
                return

    def _read(self) -> Iterator[Event]:
        data = os.read(self._descriptor, 1 << 16)
        position = 0
        while position < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, position)
            assert not mask & _OVERFLOW, "events were lost"
            position += _EVENT.size
            name = os.fsdecode(data[position : position + length].rstrip(b"\0"))
            position += length
            did = Did(mask & sum(Did))
            if did:
                yield Event(self._watches[watch], name, did)
