"""Two files compared byte for byte, each read once and in large pieces."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.storage.log_bytes import LogBytes

#: Bytes that are compared at once: as many as stay in a processor's cache while those that differ are counted.
_BLOCK_BYTES: Final = 256 * 1024
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(slots=True)
class Differences:
    """Bytes that differ, of those that both files have.

    Attributes:
        count: how many.
        first, last: positions; −1 where there is none.
    """

    count: int = 0
    first: int = -1
    last: int = -1

    def note(self, position: int, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> None:
        """Compare two pieces of the same length that begin at a position."""
        if _memcmp(left.ctypes.data, right.ctypes.data, len(left)) == 0:
            return
        for start in range(0, len(left), _BLOCK_BYTES):
            one, other = left[start : start + _BLOCK_BYTES], right[start : start + _BLOCK_BYTES]
            found = np.flatnonzero(one != other)
            if len(found):
                if not self.count:
                    self.first = position + start + int(found[0])
                self.last = position + start + int(found[-1])
                self.count += len(found)


class PairedLog:
    """A log that is compared with another one while it is read: `LogBytes`, for a walk over its batches.

    Attributes:
        differences: of what was compared so far, which is all below the end of the last window.
    """

    def __init__(self, one: LogBytes, other: LogBytes) -> None:
        self._one, self._other = one, other
        self._common = min(one.size, other.size)
        self._compared_to = 0
        self.differences = Differences()

    @property
    def size(self) -> int:
        return self._one.size

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        """See `LogBytes.window`."""
        self._compare_to(position)
        start, window = self._one.window(position)
        self._compare(start, window)
        return start, window

    def read(self, position: int, size: int) -> bytes:
        """See `LogBytes.read`."""
        self._compare_to(position + size)
        return self._one.read(position, size)

    def compare_rest(self) -> None:
        """Compare what no window has held."""
        self._compare_to(self._common)

    def _compare_to(self, end: int) -> None:
        while self._compared_to < min(end, self._common):
            self._compare(*self._one.window(self._compared_to))

    def _compare(self, start: int, window: NDArray[np.uint8]) -> None:
        end = min(start + len(window), self._common)
        while start <= self._compared_to < end:
            at = self._compared_to
            other_start, other = self._other.window(at)
            size = min(end, other_start + len(other)) - at
            left = window[at - start : at - start + size]
            self.differences.note(at, left, other[at - other_start : at - other_start + size])
            self._compared_to = at + size


def zeros_from(log: LogBytes, position: int) -> int:
    """How many of a log's bytes from a position on are zeros, up to the first that is not."""
    at = position
    while at < log.size:
        start, window = log.window(at)
        found = np.flatnonzero(window[at - start :])
        if len(found):
            return at + int(found[0]) - position
        at = start + len(window)
    return at - position
