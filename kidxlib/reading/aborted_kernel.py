"""The compiled loop that looks for the transactions of batches among those that were aborted."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.format.batch_header import ATTRIBUTE_TRANSACTIONAL, MAGIC_V2
from kidxlib.jit.compiler import njit
from kidxlib.records.bulk.batch_table_kernel import BATCH
from kidxlib.records.header_kernel import OPTIONS

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
def mark_aborted(batches, producers, first_offsets, last_offsets, found):
    """Mark the batches that belong to aborted transactions.

    Args:
        producers, first_offsets, last_offsets: of these, sorted by producer, then by offset; the last ones are those of
            their markers. Those of one producer do not overlap.
        found: false.
    """
    for number in range(len(batches)):
        batch = batches[number]
        if batch.magic < MAGIC_V2 or (batch.attributes & ATTRIBUTE_TRANSACTIONAL) == 0:
            continue
        low, high = 0, len(producers)
        while low < high:  # after the last one of this producer that begins at the batch's last offset or before
            middle = (low + high) >> 1
            producer = producers[middle]
            if producer < batch.producer_id or (
                producer == batch.producer_id and first_offsets[middle] <= batch.last_offset
            ):
                low = middle + 1
            else:
                high = middle
        found[number] = (
            low > 0 and producers[low - 1] == np.int64(batch.producer_id) and last_offsets[low - 1] > batch.last_offset
        )
