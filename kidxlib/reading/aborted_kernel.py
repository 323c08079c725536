"""The compiled loop that marks the batches of aborted transactions."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.format.layouts import ATTRIBUTE_TRANSACTIONAL, MAGIC_V2
from kidxlib.jit.compiler import OPTIONS, njit
from kidxlib.records.batch_table_kernel import BATCH

_LONGS: Final = types.Array(types.int64, 1, "C", readonly=True)


@njit(
    types.void(
        types.Array(from_dtype(BATCH), 1, "A", readonly=True),
        _LONGS,
        _LONGS,
        _LONGS,
        types.Array(types.boolean, 1, "C"),
    ),
    **OPTIONS,
)
def mark_aborted(batches, producers, first_offsets, last_offsets, is_aborted):
    """Mark the batches that belong to aborted transactions.

    Args:
        producers, first_offsets, last_offsets: the producer, the first offset and the marker's offset of each aborted
            transaction, sorted by producer, then by offset. Transactions of one producer do not overlap.
        is_aborted: the result, a flag for each batch; all false at first.
    """
    for number in range(len(batches)):
        batch = batches[number]
        if batch.magic < MAGIC_V2 or (batch.attributes & ATTRIBUTE_TRANSACTIONAL) == 0:
            continue
        low, high = 0, len(producers)
        while low < high:  # find the place behind the producer's last transaction that begins by the batch's end
            middle = (low + high) >> 1
            producer = producers[middle]
            if producer < batch.producer_id or (
                producer == batch.producer_id and first_offsets[middle] <= batch.last_offset
            ):
                low = middle + 1
            else:
                high = middle
        is_aborted[number] = (
            low > 0 and producers[low - 1] == np.int64(batch.producer_id) and last_offsets[low - 1] > batch.last_offset
        )
