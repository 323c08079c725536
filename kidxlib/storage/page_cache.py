"""The kernel's page cache, which a scan leaves as it found it: on a broker's machine it is the broker's."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PAGE: Final = mmap.PAGESIZE
#: Whether a file is in memory is asked of a place in each so many bytes of it, of so many places at least and at most,
#: each of so many pages: of every page it takes a twentieth of the time of a scan.
_BYTES_A_PLACE: Final = 1024 * 1024
_PLACES_MIN: Final = 16
_PLACES_MAX: Final = 64
_PAGES_A_PLACE: Final = 16

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class CachedPages:
    """Which pages of a file are in memory (mincore(2)): all, where the kernel does not tell. Of a file that is another
    user's, and that one may not write, it says so itself.
    """

    def __init__(self, mapped: NDArray[np.uint8]) -> None:
        """
        Args:
            mapped: the bytes of the file, a byte at least, mapped from its start; none of them is touched.
        """
        self._mapped = mapped

    def share(self) -> float:
        """How many of all pages are, by a sample of them where they are many: 0 to 1."""
        pages = -(-len(self._mapped) // _PAGE)
        places = min(max(len(self._mapped) // _BYTES_A_PLACE, _PLACES_MIN), _PLACES_MAX)
        if pages <= places * _PAGES_A_PLACE:
            return float(self.all().mean())
        found = np.empty((places, _PAGES_A_PLACE), np.uint8)
        start, room = self._mapped.ctypes.data, found.ctypes.data
        for number in range(places):
            place = number * (pages - _PAGES_A_PLACE) // (places - 1)
            size = min(_PAGES_A_PLACE * _PAGE, len(self._mapped) - place * _PAGE)
            if _libc.mincore(start + place * _PAGE, size, room + number * _PAGES_A_PLACE) != 0:
                return 1.0
        return float((found & 1).mean())

    def where(self, first: int, end: int) -> NDArray[np.bool_]:
        """For each page from one to another, or to the last: whether it is."""
        size = min(end * _PAGE, len(self._mapped)) - first * _PAGE
        found = np.empty(-(-size // _PAGE), np.uint8)
        if _libc.mincore(self._mapped.ctypes.data + first * _PAGE, size, found.ctypes.data) != 0:
            found[:] = 1
        return (found & 1).astype(np.bool_)

    def all(self) -> NDArray[np.bool_]:
        """For each page, whether it is."""
        return self.where(0, -(-len(self._mapped) // _PAGE))


class DropBehind:
    """Drops the pages of a file that were not in memory when it was made, once they have been read."""

    def __init__(self, descriptor: int, cached: NDArray[np.bool_]) -> None:
        """
        Args:
            cached: `CachedPages.all`.
        """
        self._descriptor, self._cached = descriptor, cached
        self._done = 0

    def done_to(self, position: int) -> None:
        """What stands before a file position is not needed any more; the page that it lies in may be."""
        end = position // _PAGE
        self._drop(self._done, end)
        self._done = max(self._done, end)

    def done(self) -> None:
        """Nothing is needed any more, wherever it was read."""
        self._drop(0, len(self._cached))

    def _drop(self, first: int, end: int) -> None:
        absent = np.concatenate([[False], ~self._cached[first:end], [False]])
        edges = np.flatnonzero(absent[1:] != absent[:-1]) + first
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            os.posix_fadvise(self._descriptor, start * _PAGE, (stop - start) * _PAGE, os.POSIX_FADV_DONTNEED)
