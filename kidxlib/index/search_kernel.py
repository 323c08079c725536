"""The compiled loops that search an index for one target."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.index.columns import BYTES, OFFSET_ENTRY_BYTES, OPTIONS, POSITION, TIME_ENTRY_BYTES, value_at
from kidxlib.jit.compiler import njit

#: Bytes at the end of an index that are searched first (`AbstractIndex.warmEntries`).
WARM_BYTES: Final = 8192
_SLOTS: Final = types.Array(types.int64, 1, "C")


@njit(forceinline=True)
def _probe(data, slot, column, base_offset, touched, probes):
    """The value at a slot, and the number of probes; the slot is recorded if a trace is wanted."""
    if touched is not None:
        touched[probes] = slot
    return value_at(data, slot, column, base_offset), probes + 1


@njit
def _binary_search(data, entries, column, base_offset, target, upper, low, high, touched, probes):
    """`AbstractIndex.binarySearch` from slot `low` to `high`: the slot, and the number of probes."""
    while low < high:
        middle = (low + high + 1) >> 1
        value, probes = _probe(data, middle, column, base_offset, touched, probes)
        if value > target:
            high = middle - 1
        elif value < target:
            low = middle
        else:
            return middle, probes
    if not upper:
        return low, probes
    return (np.int64(-1) if low == entries - 1 else low + 1), probes


@njit
def warm_cold_search(data, entries, column, base_offset, target, upper, touched):
    """`AbstractIndex.indexSlotRangeFor`: the slot, and the number of probes."""
    if entries == 0:
        return np.int64(-1), np.int64(0)
    entry_bytes = OFFSET_ENTRY_BYTES if column <= POSITION else TIME_ENTRY_BYTES
    first_warm = max(np.int64(0), entries - 1 - WARM_BYTES // entry_bytes)
    value, probes = _probe(data, first_warm, column, base_offset, touched, np.int64(0))
    if value < target:
        return _binary_search(
            data, entries, column, base_offset, target, upper, first_warm, entries - 1, touched, probes
        )
    value, probes = _probe(data, np.int64(0), column, base_offset, touched, probes)
    if value > target:
        return np.int64(0) if upper else np.int64(-1), probes
    return _binary_search(data, entries, column, base_offset, target, upper, np.int64(0), first_warm, touched, probes)


_ONE: Final = types.int64(BYTES, types.int64, types.int64, types.int64, types.int64, types.boolean)
_TRACED: Final = types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
    BYTES, types.int64, types.int64, types.int64, types.int64, types.boolean, _SLOTS
)


@njit(_ONE, **OPTIONS)
def warm_cold_slot(data, entries, column, base_offset, target, upper):
    return warm_cold_search(data, entries, column, base_offset, target, upper, None)[0]


@njit(_TRACED, **OPTIONS)
def warm_cold_traced(data, entries, column, base_offset, target, upper, touched):
    return warm_cold_search(data, entries, column, base_offset, target, upper, touched)
