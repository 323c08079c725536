"""The compiled loops that search an index for many targets, several at the same time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.index.columns import BYTES, OPTIONS, TARGETS, value_at
from kidxlib.index.search_kernel import SLOTS, warm_cold_search
from kidxlib.jit.compiler import njit

#: Targets that are searched for at the same time, so that one waits for memory while the others compute.
_ABREAST: Final = 16


@njit(inline="always")
def _bound(data, entries, column, base_offset, target, upper, low):
    """Either bound, from the last slot that is not above the target or 0: what the loops would say."""
    value = value_at(data, low, column, base_offset)
    if value > target:
        return np.int64(0) if upper else np.int64(-1)
    if not upper or (value == target and low > 0):
        return low
    return low + 1 if low + 1 < entries else np.int64(-1)


@njit
def _targets_abreast(data, entries, column, base_offset, targets, upper, increasing, slots):
    """Binary searches that take as many steps each and no branch, some of them at a time.

    `increasing`: the targets do. Each lot then starts where the one before it ended, and looks no further than to where
    an entry is above its last target.
    """
    lows = np.empty(_ABREAST, np.int64)
    wanted = np.empty(_ABREAST, np.int64)
    start, end = np.int64(0), entries
    for first in range(0, len(targets), _ABREAST):
        count = min(_ABREAST, len(targets) - first)
        if increasing:
            last = targets[first + count - 1]
            step = np.int64(1)
            while start + step < entries and value_at(data, start + step, column, base_offset) <= last:
                step <<= 1
            end = min(start + step, entries)
        for lane in range(_ABREAST):
            lows[lane] = start
            wanted[lane] = targets[first + min(lane, count - 1)]
        left = end - start
        while left > 1:
            half = left >> 1
            for lane in range(_ABREAST):
                middle = lows[lane] + half
                lows[lane] = middle if value_at(data, middle, column, base_offset) <= wanted[lane] else lows[lane]
            left -= half
        for lane in range(count):
            slots[first + lane] = _bound(data, entries, column, base_offset, wanted[lane], upper, lows[lane])
        if increasing:
            start = lows[count - 1]


@njit(types.void(BYTES, types.int64, types.int64, types.int64, TARGETS, types.boolean, types.boolean, SLOTS), **OPTIONS)
def many_slots(data, entries, column, base_offset, targets, upper, increasing, slots):
    """The slots of many targets. `increasing`: the entries do, so that any way to search gives the same answers."""
    if entries == 0:
        slots[:] = -1
        return
    if not increasing:
        for number in range(len(targets)):
            slots[number] = warm_cold_search(data, entries, column, base_offset, targets[number], upper, None)[0]
        return
    targets_increase = True
    for number in range(1, len(targets)):
        if targets[number] < targets[number - 1]:
            targets_increase = False
            break
    _targets_abreast(data, entries, column, base_offset, targets, upper, targets_increase, slots)
