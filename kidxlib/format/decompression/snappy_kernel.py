"""Snappy's format (`format_description.txt`), as compiled loops read it: no wheel has the library's own functions.

A block is the size of its content as a varint, then elements: a literal, or a copy of what was written before.
"""

from __future__ import annotations

import numpy as np

from kidxlib.format.varint import uint8
from kidxlib.jit.compiler import njit
from kidxlib.jit.memory_kernel import copy_16_bytes, copy_bytes

_REFUSED = -2


@njit
def snappy_size(source, at, end):
    """The size that a block says its content has, and the byte after that; −1 in its place where that is no size."""
    size = np.int64(0)
    for number in range(5):
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(uint8(source, at))
        at += 1
        size |= (byte & 127) << (7 * number)
        if byte < 128:
            return size, np.int64(at)
    return np.int64(0), np.int64(-1)


@njit
def snappy_block(source, at, end, size, target, start):
    """Decompress the elements of a block.

    Args:
        source: read-only uint8; the elements stand from `at` to before `end`.
        size: what the block says that it holds.
        target: uint8; the content goes there from `start` on, and there is room for it.

    Returns:
        `size`, or `_REFUSED` where the elements do not come to exactly that.
    """
    source_address, target_address = np.int64(source.ctypes.data), np.int64(target.ctypes.data)
    room = len(target)
    stop = start + size
    to = start
    while at < end:
        tag = np.int64(uint8(source, at))
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                length_bytes = length - 60
                if at + length_bytes > end:
                    return np.int64(_REFUSED)
                length = np.int64(1)
                for number in range(length_bytes):
                    length += np.int64(uint8(source, at + number)) << (8 * number)
                at += length_bytes
            if length > end - at or length > stop - to:
                return np.int64(_REFUSED)
            if length <= 16 and at + 16 <= end and to + 16 <= room:
                copy_16_bytes(target_address + to, source_address + at)  # type: ignore[call-arg]
            else:
                copy_bytes(target_address + to, source_address + at, length)  # type: ignore[call-arg]
            at += length
            to += length
            continue
        offset_bytes = 4 if kind == 3 else kind
        if at + offset_bytes > end:
            return np.int64(_REFUSED)
        offset = np.int64(uint8(source, at))
        if kind == 1:
            length = ((tag >> 2) & 7) + 4
            offset |= (tag >> 5) << 8
        else:
            length = (tag >> 2) + 1
            for number in range(1, offset_bytes):
                offset |= np.int64(uint8(source, at + number)) << (8 * number)
        at += offset_bytes
        if offset == 0 or offset > to - start or length > stop - to:
            return np.int64(_REFUSED)
        if offset >= 16 and to + 64 <= room:
            address = target_address + to
            for copied in range(0, length, 16):
                copy_16_bytes(address + copied, address + copied - offset)  # type: ignore[call-arg]
            to += length
        else:
            for _ in range(length):
                target[to] = target[to - offset]
                to += 1
    return np.int64(size) if to == stop else np.int64(_REFUSED)
