"""Memory for the bytes of logs, used again and again: the kernel takes longer to give new pages than a scan takes to
read them. It begins at a page, as reads past the page cache need it (`uncached`).
"""

from __future__ import annotations

import mmap
import weakref
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Less memory is as quick from the C library.
_BYTES_LEAST: Final = 1024 * 1024
#: The bytes of a room.
ROOM_BYTES: Final = 9 * 1024 * 1024 + 4096
#: So many rooms are kept while nobody uses them.
_FREE_MOST: Final = 6

_free: list[mmap.mmap] = []


def take(size: int) -> NDArray[np.uint8]:
    """Writable memory of `size` bytes, with any content. It is free again once this array and all views of it are gone.
    Much less memory than a room, and more, is new, and begins anywhere.
    """
    if not _BYTES_LEAST <= size <= ROOM_BYTES:
        return np.empty(size, np.uint8)
    try:
        memory = _free.pop()
    except IndexError:
        memory = mmap.mmap(-1, ROOM_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # by default it is shared
    array = np.frombuffer(memory, np.uint8, size)
    weakref.finalize(array, _give_back, memory).atexit = False
    return array


def _give_back(memory: mmap.mmap) -> None:
    if len(_free) < _FREE_MOST:
        _free.append(memory)
