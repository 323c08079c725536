"""Compiled functions that read the header of a batch."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import int32, int64
from kidxlib.format.layouts import (
    MAGIC_AT,
    SIZE_AT,
    V1_ATTRIBUTES_AT,
    V1_TIMESTAMP_AT,
    V2_EPOCH_AT,
    V2_LAST_OFFSET_DELTA_AT,
    V2_MAX_TIMESTAMP_AT,
)
from kidxlib.jit.compiler import njit

ENDS: Final = -1
LEAVES_WINDOW: Final = -2
UNDETERMINED: Final = -3

_NO_EPOCH: Final = layouts.NO_LEADER_EPOCH
_NO_TIMESTAMP: Final = layouts.NO_TIMESTAMP
_MAGIC_V2: Final = layouts.MAGIC_V2
_HEADER_BYTES: Final = layouts.BATCH_V2.itemsize
_LOG_OVERHEAD: Final = layouts.LOG_OVERHEAD
_HEADER_SIZE_UP_TO_MAGIC: Final = layouts.HEADER_SIZE_UP_TO_MAGIC
_SIZE_MIN: Final = layouts.LOG_OVERHEAD + layouts.ENTRY_SIZE_MIN
_CODEC: Final = layouts.ATTRIBUTE_CODEC

BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
LONGS: Final = types.Array(types.int64, 1, "C")
OPTIONS: Final = {"cache": True, "boundscheck": False, "nogil": True}


@njit(forceinline=True)
def wrapping_sum(first, second):
    """The sum, which wraps as in Java. For signed numbers the compiler would assume that sums do not."""
    return np.int64(np.uint64(first) + np.uint64(second))


@njit
def next_size(window, window_position, log_bytes, walk):
    """The size of the batch at a walk's position (`batch_headers.batches`), or why it is not known."""
    position = walk.position
    if position >= log_bytes - _HEADER_SIZE_UP_TO_MAGIC:
        return np.int64(ENDS)
    header_bytes = min(_HEADER_BYTES, log_bytes - position)
    at = position - window_position
    if position < 0:
        return np.int64(UNDETERMINED)
    if at < 0 or at + header_bytes > len(window):
        return np.int64(LEAVES_WINDOW)
    walk.bytes_read += header_bytes
    size = np.int64(int32(window, at + SIZE_AT)) + _LOG_OVERHEAD
    if size < _SIZE_MIN:
        return np.int64(UNDETERMINED)
    if size > log_bytes - position:
        return np.int64(ENDS)
    magic = np.int8(window[at + MAGIC_AT])
    if magic < 0 or (magic >= _MAGIC_V2 and size < _HEADER_BYTES):
        return np.int64(UNDETERMINED)
    return size


@njit(forceinline=True)
def last_offset_of(window, at):
    """The last offset and the leader epoch of a batch, and whether it is a wrapper of magic 0 or 1."""
    offset = int64(window, at)
    if np.int8(window[at + MAGIC_AT]) >= _MAGIC_V2:
        delta = np.int64(int32(window, at + V2_LAST_OFFSET_DELTA_AT))
        return wrapping_sum(offset, delta), np.int64(int32(window, at + V2_EPOCH_AT)), False
    return offset, np.int64(_NO_EPOCH), window[at + V1_ATTRIBUTES_AT] & _CODEC != 0


@njit(forceinline=True)
def max_timestamp_of(window, at):
    """The largest timestamp in a batch's header; −1 for magic 0."""
    magic = np.int8(window[at + MAGIC_AT])
    if magic >= _MAGIC_V2:
        return int64(window, at + V2_MAX_TIMESTAMP_AT)
    return int64(window, at + V1_TIMESTAMP_AT) if magic == 1 else np.int64(_NO_TIMESTAMP)
