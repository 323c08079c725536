"""The pages of a file in memory, by the kernel's mincore, so that a test can say "this page was not read"; and files
that stay in memory. Linux only.
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
#: A page that the kernel is just reading ahead is not dropped.
_DROPS: Final = 10


def drop(path: Path) -> bool:
    """Drop an unmapped file from the page cache; whether that succeeded, which it never does on tmpfs."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # pages that are not on disk yet would stay
        for _ in range(_DROPS):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if not resident(path):
                return True
    finally:
        os.close(descriptor)
    return False


def resident(path: Path) -> tuple[int, ...]:
    """The numbers of the pages of a file that are in memory. The file must be this user's: for others' files the kernel
    names all pages.
    """
    content = mapped(path)  # a map alone touches no page
    pages = -(-len(content) // mmap.PAGESIZE)
    flags = ctypes.create_string_buffer(pages)
    if _libc.mincore(content.ctypes.data, len(content), flags) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    return tuple(page for page in range(pages) if flags.raw[page] & _RESIDENT)


def mapped(path: Path, *, without_read_ahead: bool = False) -> NDArray[np.uint8]:
    """The bytes of a file, mapped for as long as the result lives; `without_read_ahead` lets the kernel read only
    touched pages, and none around them (MADV_RANDOM).
    """
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if without_read_ahead:
        memory.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(memory, np.uint8)


@contextlib.contextmanager
def held_in_memory(*paths: Path) -> Iterator[None]:
    """Bring files into memory, and lock them there while the context lasts: else the kernel may take pages away again.
    The files may grow or shrink meanwhile.
    """
    locked = [_locked(path) for path in paths]
    try:
        yield
    finally:
        locked.clear()  # unmaps and so unlocks the files, even if the traceback of an error lives on


def _locked(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file, locked by the kernel. Nobody touches them: past the end of a truncated file that kills."""
    content = mapped(path)
    if _libc.mlock(content.ctypes.data, len(content)) != 0:
        error = os.strerror(ctypes.get_errno())
        raise KidxError(f"{path}: cannot be held in memory: {error}; run as root, or raise ulimit -l")
    return content
