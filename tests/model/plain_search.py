"""The plain binary search that Kafka had before KAFKA-6432, to show what its search of today saves."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.index.abstract_index import PAGE_BYTES, Trace

_ENTRY: Final = layouts.as_struct(layouts.OFFSET_INDEX_ENTRY)


def plain_search(data: NDArray[np.uint8], offset: int) -> Trace:
    """Searches an offset index of base offset 0 for the last entry that is not above an offset: what that touches."""
    probed: list[int] = []
    slot = _lower_bound(data.data, offset, probed)
    pages = (each * _ENTRY.size // PAGE_BYTES for each in probed)
    return Trace(slot=slot, entries=tuple(probed), pages=tuple(dict.fromkeys(pages)))


def _lower_bound(data: memoryview, offset: int, probed: list[int]) -> int:
    """The first entry, then halves of them all. Adds each slot that it looks at to `probed`."""

    def offset_at(slot: int) -> int:
        probed.append(slot)
        return int(_ENTRY.unpack_from(data, slot * _ENTRY.size)[0])

    low, high = 0, len(data) // _ENTRY.size
    if high == 0 or offset_at(0) > offset:
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        found = offset_at(middle)
        if found == offset:
            return middle
        if found < offset:
            low = middle
        else:
            high = middle
    return low
