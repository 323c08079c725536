"""The compiled loop that folds facts of a batch from its records."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import from_dtype, types

from kidxlib.jit.compiler import njit
from kidxlib.records.bulk.place_kernel import PLACE
from kidxlib.records.header_kernel import OPTIONS

#: Facts from the records of a batch; in a malformed batch from some records, or none.
CONTENTS: Final = np.dtype(
    [
        ("records", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("largest_timestamp", "i8"),
        ("goes_back", "i1"),  # an offset is not above the one before
        ("is_well_formed", "i1"),
    ]
)


@njit(
    types.void(types.Array(from_dtype(PLACE), 1, "C"), types.int64, types.Array(from_dtype(CONTENTS), 1, "C")),
    **OPTIONS,
)
def fold_contents(places, first, contents):
    """Add records to the facts of their batches.

    Args:
        places: records, in the order of the log.
        first: the row in `contents` of the places' batch 0.
    """
    for number in range(len(places)):
        place = places[number]
        row = contents[first + place.batch]
        if row.records == 0:
            row.first_offset, row.largest_timestamp = place.offset, place.timestamp
        else:
            row.goes_back |= place.offset <= row.last_offset
            row.largest_timestamp = max(row.largest_timestamp, place.timestamp)
        row.last_offset = place.offset
        row.records += 1
