"""The room that a broker keeps after the entries of an active segment's index: zeros, until it trims the file."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

#: What is compared with zero at a time, from the end of a file on.
_BLOCK_BYTES: Final = 1024 * 1024


def filled_bytes(content: NDArray[np.uint8], entry_bytes: int) -> int:
    """How many bytes the entries take, each whole. Zeros at the end are no entries: of an offset index no entry is all
    zeros, because the batch at byte 0 is never indexed (`LogSegment.append`). What stands behind zeros is found: all of
    the file is compared with zero, at the speed of memory.
    """
    end = len(content)
    while end > 0:
        begin = (end - 1) // _BLOCK_BYTES * _BLOCK_BYTES
        block = content[begin:end]
        words = len(block) // 8 * 8
        if block[words:].any() or block[:words].view(np.uint64).any():
            used = begin + int(np.flatnonzero(block)[-1]) + 1
            return min(-(-used // entry_bytes) * entry_bytes, len(content))
        end = begin
    return 0


def without_room(content: bytes, entry_bytes: int) -> bytes:
    """The entries alone, each whole."""
    return content[: filled_bytes(np.frombuffer(content, np.uint8), entry_bytes)]
