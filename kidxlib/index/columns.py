"""The columns of an index's entries: their numbers, and compiled loops that read them and check whether they
increase.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import int32, int64
from kidxlib.jit.compiler import njit

#: The columns that can be searched, by number: Kafka's KEY and VALUE of an `OffsetIndex` and of a `TimeIndex`.
OFFSET: Final = 0
POSITION: Final = 1
TIMESTAMP: Final = 2
OFFSET_OF_TIMESTAMP: Final = 3

OFFSET_ENTRY_BYTES: Final = layouts.OFFSET_INDEX_ENTRY.itemsize
TIME_ENTRY_BYTES: Final = layouts.TIME_INDEX_ENTRY.itemsize
_POSITION_AT: Final = layouts.field_position(layouts.OFFSET_INDEX_ENTRY, "position")
_OFFSET_OF_TIMESTAMP_AT: Final = layouts.field_position(layouts.TIME_INDEX_ENTRY, "relative_offset")

BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
TARGETS: Final = types.Array(types.int64, 1, "C", readonly=True)
OPTIONS: Final = {"cache": True, "boundscheck": False, "nogil": True}


@njit(forceinline=True)
def _sum(base_offset, relative):
    """The sum, which wraps as in Java. For signed numbers the compiler would assume that sums do not."""
    return np.int64(np.uint64(base_offset) + np.uint64(relative))


@njit(forceinline=True)
def value_at(data, slot, column, base_offset):
    """The value in a column of an entry."""
    if column == OFFSET:
        return _sum(base_offset, np.int64(int32(data, slot * OFFSET_ENTRY_BYTES)))
    if column == POSITION:
        return np.int64(int32(data, slot * OFFSET_ENTRY_BYTES + _POSITION_AT))
    if column == TIMESTAMP:
        return int64(data, slot * TIME_ENTRY_BYTES)
    return _sum(base_offset, np.int64(int32(data, slot * TIME_ENTRY_BYTES + _OFFSET_OF_TIMESTAMP_AT)))


@njit(types.boolean(BYTES, types.int64, types.int64, types.int64), **OPTIONS)
def increases(data, entries, column, base_offset):
    """Whether each entry's value in a column is above the one before it. Arguments as of `search.slot`."""
    for slot in range(1, entries):
        if value_at(data, slot, column, base_offset) <= value_at(data, slot - 1, column, base_offset):
            return False
    return True


@njit(
    types.void(BYTES, types.int64, types.int64, types.int64, types.int64, types.Array(types.int64, 2, "C")),
    **OPTIONS,
)
def entries_at(data, key_column, base_offset, key_of_none, value_of_none, found):
    """Replace the slots in the second column of `found` by the keys and values of these entries, in both columns, and
    slot −1 by the key and value that stand for none.
    """
    for number in range(len(found)):
        slot = found[number, 1]
        if slot < 0:
            found[number, 0], found[number, 1] = key_of_none, value_of_none
        else:
            found[number, 0] = value_at(data, slot, key_column, base_offset)
            found[number, 1] = value_at(data, slot, key_column + 1, base_offset)
