"""Which pages of a file are in memory: the kernel's own word for it (mincore), so that "this page was not read" can be
tested, and files that stay there. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import KidxError

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_RESIDENT: Final = 1


def drop(path: Path) -> bool:
    """Let the kernel forget a file that is mapped nowhere; whether it did. It cannot where the file lives in memory
    alone (tmpfs).
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # what is not on disk yet stays
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return not resident(path)


def resident(path: Path) -> tuple[int, ...]:
    """The pages of a file that are in memory, by number, in the order of the file.

    The file must be this user's: of others' the kernel says that all is there.
    """
    content = mapped(path)  # to ask about a map touches nothing
    pages = -(-len(content) // mmap.PAGESIZE)
    flags = ctypes.create_string_buffer(pages)
    if _libc.mincore(content.ctypes.data, len(content), flags) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    return tuple(page for page in range(pages) if flags.raw[page] & _RESIDENT)


def mapped(path: Path, *, without_read_ahead: bool = False) -> NDArray[np.uint8]:
    """The bytes of a file, mapped for as long as the result lives.

    Args:
        without_read_ahead: have the kernel read a page when it is touched, and none of those around it (MADV_RANDOM).
    """
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if without_read_ahead:
        memory.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(memory, np.uint8)


@contextlib.contextmanager
def held_in_memory(*paths: Path) -> Iterator[None]:
    """Bring files into memory, and keep them there while the context lasts: else the kernel may take pages away again.
    They may grow or shrink meanwhile.

    Raises:
        KidxError: this user may not lock so much memory.
    """
    locked = [_locked(path) for path in paths]
    try:
        yield
    finally:
        locked.clear()  # taken down, and so unlocked, also where an error's traceback lives on


def _locked(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file, locked by the kernel, and touched by nobody: past the end of a truncated file that kills."""
    content = mapped(path)
    if _libc.mlock(content.ctypes.data, len(content)) != 0:
        error = os.strerror(ctypes.get_errno())
        raise KidxError(f"{path}: cannot be held in memory: {error}; run as root, or raise ulimit -l")
    return content
