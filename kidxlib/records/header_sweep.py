"""What stands before and at file positions of a log, found by one walk over all its headers, compiled."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from kidxlib.format.varint import int64
from kidxlib.jit.compiler import njit
from kidxlib.records.header_kernel import BYTES, LEAVES_WINDOW, OPTIONS, last_offset_of, max_timestamp_of, next_size
from kidxlib.storage.log_bytes import LogBytes

#: What is asked of the batches before a file position, and of the one that starts there.
MEASURE: Final = np.dtype(
    [
        ("position", "i8"),
        ("is_batch", "i8"),  # a whole batch starts there
        ("base_offset", "i8"),  # its first field: of a wrapper the last offset
        ("last_offset", "i8"),
        ("last_offset_before", "i8"),  # the largest of the batches before it; `LEAST` where there are none
        ("max_timestamp_before", "i8"),  # their largest timestamp; `LEAST` where there are none
    ]
)
LEAST: Final = -(2**63)
#: One walk over the whole log, and the largest that it has met.
_SWEEP: Final = np.dtype([("position", "i8"), ("bytes_read", "i8"), ("last_offset", "i8"), ("max_timestamp", "i8")])


@njit(
    types.int64(
        BYTES,
        types.int64,
        types.int64,
        types.Array(from_dtype(_SWEEP), 1, "C"),
        types.Array(from_dtype(MEASURE), 1, "C"),
        types.int64,
    ),
    **OPTIONS,
)
def _sweep(window, window_position, log_bytes, sweeps, measures, number):
    """Take the measures from `number` on. Return the number of the first one whose position is after the window, or the
    number of all measures.
    """
    sweep = sweeps[0]
    while number < len(measures):
        size = next_size(window, window_position, log_bytes, sweep)
        if size == LEAVES_WINDOW:
            return number
        at = sweep.position - window_position
        while number < len(measures) and (size < 0 or measures[number].position <= sweep.position):
            measure = measures[number]
            measure.last_offset_before, measure.max_timestamp_before = sweep.last_offset, sweep.max_timestamp
            measure.is_batch = size >= 0 and measure.position == sweep.position
            if measure.is_batch:
                measure.base_offset, measure.last_offset = int64(window, at), last_offset_of(window, at)[0]
            number += 1
        if size >= 0:
            sweep.last_offset = max(sweep.last_offset, last_offset_of(window, at)[0])
            sweep.max_timestamp = max(sweep.max_timestamp, max_timestamp_of(window, at))
            sweep.position += size
    return number


def measure(log: LogBytes, positions: NDArray[np.int64]) -> NDArray[np.void]:
    """What stands before and at file positions, of dtype `MEASURE`; the headers of the log are read once.

    Args:
        positions: of shape (n,), ascending.

    Raises:
        OSError, LogChangedError: the log cannot be read.
    """
    measures = np.zeros(len(positions), MEASURE)
    measures["position"] = positions
    sweeps = np.array([(0, 0, LEAST, LEAST)], _SWEEP)
    log_bytes, number = log.size, 0
    window_position, window = 0, np.empty(0, np.uint8)
    while (number := _sweep(window, window_position, log_bytes, sweeps, measures, number)) < len(measures):
        window_position, window = log.window(int(sweeps[0]["position"]))
    return measures
