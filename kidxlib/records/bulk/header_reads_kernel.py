"""The compiled loop that makes rows of batch headers as it reads them from a file; of large batches them alone."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
from llvmlite import binding
from numba import from_dtype, types

from kidxlib.format.layouts import BATCH_V2_BYTES_MIN
from kidxlib.jit.compiler import njit
from kidxlib.records.bulk.batch_table_kernel import BATCH, OUTSIDE, TABLE_WALK, fill_batches
from kidxlib.records.header_kernel import OPTIONS

# A compiled function loaded from numba's cache calls this symbol by name, so it must be known before any is loaded.
binding.add_symbol("kidx_pread", ctypes.cast(ctypes.CDLL(None).pread, ctypes.c_void_p).value)
_pread = types.ExternalFunction("kidx_pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))

#: To ask for a header takes as long as to copy so many bytes, about. Of smaller batches many are read at once.
_LARGE_BYTES: Final = 8 * 1024
_HEADER_BYTES: Final = BATCH_V2_BYTES_MIN


@njit(
    types.void(
        types.int32,
        types.Array(types.uint8, 1, "C"),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.Array(from_dtype(TABLE_WALK), 1, "C"),
        types.Array(from_dtype(BATCH), 1, "C"),
    ),
    **OPTIONS,
)
def fill_batches_of_file(descriptor, room, log_bytes, first_offset, last_offset, first_ms, last_ms, walks, rows):
    """Make rows of the batches from the walk's position on, as `fill_batches` does where headers alone are looked at.

    It ends with `OUTSIDE` where a header cannot be read.

    Args:
        descriptor: of the file.
        room: for what is read at once, a header at least.
        log_bytes: of the file; it may have more.
    """
    walk = walks[0]
    start, filled = walk.position, np.int64(0)
    while True:
        headers_bytes = walk.bytes_read
        fill_batches(
            room[:filled], start, log_bytes, False, False, first_offset, last_offset, first_ms, last_ms, walks, rows
        )
        if walk.why != OUTSIDE:
            return
        headers = (walk.bytes_read - headers_bytes) // _HEADER_BYTES
        is_dense = walk.position - start < headers * _LARGE_BYTES
        start, left = walk.position, log_bytes - walk.position
        wanted = min(left, np.int64(len(room)) if is_dense else np.int64(_HEADER_BYTES))
        filled = np.int64(_pread(np.int32(descriptor), np.uintp(room.ctypes.data), np.uintp(wanted), start))
        if filled < min(left, _HEADER_BYTES):
            return
