"""The compiled loops of Kafka's search in an index, warm end first: they read columns of its entries, search for one
target, and for many, several at the same time.

An index is in pages of 4 KiB. A plain binary search for one of the last entries starts at the middle. Each time that
the index has grown by a page, it would read pages that were not needed for long, and wait for the disk. Kafka searches
the last 8 KiB first (`AbstractIndex.indexSlotRangeFor`), which all such lookups read, so that these pages stay in
memory.

A search returns a slot, the number of an entry from 0 on:

- lower bound: the last entry that is not above the target; −1 if the first entry is above it, or there is none;
- upper bound: the first entry that is not below the target; −1 if there is none. An entry equal to the target is not
  found at slot 0, because the loop never probes where it begins: the answer is slot 1, or −1 if there is one entry.

This holds if the entries increase: all searches then give the same answers, and the fastest is used. If they do not, in
a damaged or zero-padded index, the answer depends on which entries are probed: the same ones as in Kafka, so the answer
is the same too.

For many targets a pass over all entries pays: sorted targets are merged with the entries, others are looked up in a
table. Few targets are searched for side by side.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import BYTES, LONGS, int32, int64, prefetch, wrapping_sum
from kidxlib.jit.compiler import OPTIONS, njit

#: The columns that can be searched, by number: Kafka's KEY and VALUE of an `OffsetIndex` and of a `TimeIndex`.
OFFSET: Final = 0
POSITION: Final = 1
TIMESTAMP: Final = 2
OFFSET_OF_TIMESTAMP: Final = 3

OFFSET_ENTRY_BYTES: Final = layouts.OFFSET_INDEX_ENTRY.itemsize
TIME_ENTRY_BYTES: Final = layouts.TIME_INDEX_ENTRY.itemsize
_POSITION_AT: Final = layouts.field_position(layouts.OFFSET_INDEX_ENTRY, "position")
_OFFSET_OF_TIMESTAMP_AT: Final = layouts.field_position(layouts.TIME_INDEX_ENTRY, "relative_offset")

_TARGETS: Final = types.Array(types.int64, 1, "C", readonly=True)


@njit(forceinline=True)
def _value_at(data, slot, column, base_offset):
    """The value in a column of an entry."""
    if column == OFFSET:
        return wrapping_sum(base_offset, np.int64(int32(data, slot * OFFSET_ENTRY_BYTES)))
    if column == POSITION:
        return np.int64(int32(data, slot * OFFSET_ENTRY_BYTES + _POSITION_AT))
    if column == TIMESTAMP:
        return int64(data, slot * TIME_ENTRY_BYTES)
    return wrapping_sum(base_offset, np.int64(int32(data, slot * TIME_ENTRY_BYTES + _OFFSET_OF_TIMESTAMP_AT)))


@njit(types.boolean(BYTES, types.int64, types.int64, types.int64), **OPTIONS)
def increases(data, entries, column, base_offset):
    """Whether the values in a column of an index increase from entry to entry. Arguments as of `warm_cold_slot`."""
    for slot in range(1, entries):
        if _value_at(data, slot, column, base_offset) <= _value_at(data, slot - 1, column, base_offset):
            return False
    return True


@njit(
    types.void(BYTES, types.int64, types.int64, types.int64, types.int64, types.Array(types.int64, 2, "C")),
    **OPTIONS,
)
def entries_at(data, key_column, base_offset, key_of_none, value_of_none, found):
    """Replace the slots that a search has found, in the second column of `found`, by the keys and values of these
    entries, in both columns, and slot −1 by the key and value that stand for none.
    """
    for number in range(len(found)):
        slot = found[number, 1]
        if slot < 0:
            found[number, 0], found[number, 1] = key_of_none, value_of_none
        else:
            found[number, 0] = _value_at(data, slot, key_column, base_offset)
            found[number, 1] = _value_at(data, slot, key_column + 1, base_offset)


#: Bytes at the end of an index that are searched first (`AbstractIndex.warmEntries`).
WARM_BYTES: Final = 8192


@njit(forceinline=True)
def _probe(data, slot, column, base_offset, touched, probes):
    """The value at a slot, and the number of probes; the slot is recorded if a trace is wanted."""
    if touched is not None:
        touched[probes] = slot
    return _value_at(data, slot, column, base_offset), probes + 1


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
def _warm_cold_search(data, entries, column, base_offset, target, upper, touched):
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
    BYTES, types.int64, types.int64, types.int64, types.int64, types.boolean, LONGS
)


@njit(_ONE, **OPTIONS)
def warm_cold_slot(data, entries, column, base_offset, target, upper):
    """The slot of one target. Python calls this loop itself: a function around it would double the time of a lookup.

    Args:
        data: the bytes of the index, uint8.
        entries: how many entries to search.
        column: its number, as above.
        base_offset: added to relative offsets.
        upper: search for the upper bound.
    """
    return _warm_cold_search(data, entries, column, base_offset, target, upper, None)[0]


@njit(_TRACED, **OPTIONS)
def warm_cold_traced(data, entries, column, base_offset, target, upper, touched):
    """The slot of one target, and how many slots were probed; these are put into `touched`."""
    return _warm_cold_search(data, entries, column, base_offset, target, upper, touched)


#: Answers may be a column of a table.
_ANSWERS: Final = types.Array(types.int64, 1, "A")
#: How many targets are searched for side by side, so that one waits for memory while the others compute.
_ABREAST: Final = 16
#: How many targets are looked up in the table before the first of them is searched for.
_LOT: Final = 64
#: Targets are many if there is at least one for this number of entries.
_ENTRIES_PER_TARGET: Final = 4


@njit(forceinline=True)
def _bound(data, entries, column, base_offset, target, upper, low):
    """The bound that Kafka's loop returns, from the last slot that is not above the target (or 0)."""
    value = _value_at(data, low, column, base_offset)
    if value > target:
        return np.int64(0) if upper else np.int64(-1)
    if not upper or (value == target and low > 0):
        return low
    return low + 1 if low + 1 < entries else np.int64(-1)


@njit
def _targets_abreast(data, entries, column, base_offset, targets, upper, increasing, slots):
    """Binary searches side by side, with the same number of steps and without branches.

    `increasing`: the targets increase. A group then starts where the group before it ended, and ends at the first entry
    above its last target.
    """
    lows = np.empty(_ABREAST, np.int64)
    wanted = np.empty(_ABREAST, np.int64)
    start, end = np.int64(0), entries
    for first in range(0, len(targets), _ABREAST):
        count = min(_ABREAST, len(targets) - first)
        if increasing:
            last = targets[first + count - 1]
            step = np.int64(1)
            while start + step < entries and _value_at(data, start + step, column, base_offset) <= last:
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
                lows[lane] = middle if _value_at(data, middle, column, base_offset) <= wanted[lane] else lows[lane]
            left -= half
        for lane in range(count):
            slots[first + lane] = _bound(data, entries, column, base_offset, wanted[lane], upper, lows[lane])
        if increasing:
            start = lows[count - 1]


@njit
def _values(data, entries, column, base_offset):
    """A column as an array."""
    values = np.empty(entries, np.int64)
    if column == OFFSET:  # the most frequent columns have loops of their own, without a branch in them
        for slot in range(entries):
            values[slot] = _value_at(data, slot, OFFSET, base_offset)
    elif column == TIMESTAMP:
        for slot in range(entries):
            values[slot] = _value_at(data, slot, TIMESTAMP, base_offset)
    else:
        for slot in range(entries):
            values[slot] = _value_at(data, slot, column, base_offset)
    return values


@njit(forceinline=True)
def _bound_of(values, target, upper, low):
    """`_bound` of an array."""
    value = values[np.uintp(low)]
    if value > target:
        return np.int64(0) if upper else np.int64(-1)
    if not upper or (value == target and low > 0):
        return low
    return low + 1 if low + 1 < len(values) else np.int64(-1)


@njit
def _merged(values, targets, upper, slots):
    """Merge entries and sorted targets. Each step passes an entry or a target, without a branch to predict."""
    low, number = np.int64(0), np.int64(0)
    while number < len(targets) and low + 1 < len(values):
        slots[np.uintp(number)] = low
        passes_entry = np.int64(values[np.uintp(low + 1)] <= targets[np.uintp(number)])
        low += passes_entry
        number += 1 - passes_entry
    slots[number:] = low
    for at in range(len(targets)):
        slots[at] = _bound_of(values, targets[at], upper, slots[at])


@njit
def _table(values):
    """Cut the range from the first to the last value into equal parts, at most as many as there are values.

    Returns:
        For each part its first entry, then the number of entries; and the shift in bits from a value's distance from
        the first value to the number of its part.
    """
    first = np.uint64(values[0])
    span = np.uint64(values[-1]) - first
    shift = np.uint64(0)
    while (span >> shift) >= np.uint64(len(values)):
        shift += np.uint64(1)
    parts = np.int64(span >> shift) + 1
    table = np.empty(parts + 1, np.int32)
    part = np.int64(0)
    for slot in range(len(values)):
        reached = np.int64((np.uint64(values[slot]) - first) >> shift)
        while part <= reached:
            table[part] = slot
            part += 1
    table[parts] = len(values)
    return table, shift


@njit
def _by_table(values, targets, upper, slots):
    """Search between two entries from a table. They are close, as offsets and timestamps are mostly evenly spread."""
    table, shift = _table(values)
    first, last = values[0], values[-1]
    address = np.int64(values.ctypes.data)
    lows = np.empty(_LOT, np.int64)
    highs = np.empty(_LOT, np.int64)
    for start in range(0, len(targets), _LOT):
        count = min(_LOT, len(targets) - start)
        for lane in range(count):
            within = min(max(targets[start + lane], first), last)
            part = np.uintp((np.uint64(within) - np.uint64(first)) >> shift)
            lows[lane] = max(np.int64(table[part]) - 1, 0)
            highs[lane] = np.int64(table[part + np.uintp(1)]) - 1
            prefetch(address + lows[lane] * values.itemsize)  # type: ignore[call-arg]
        for lane in range(count):
            target, low, high = targets[start + lane], lows[lane], highs[lane]
            while low < high:
                middle = (low + high + 1) >> 1
                if values[np.uintp(middle)] <= target:
                    low = middle
                else:
                    high = middle - 1
            slots[start + lane] = _bound_of(values, target, upper, low)


@njit
def _increase(targets):
    increase = True
    for number in range(1, len(targets)):
        increase &= targets[number] >= targets[number - 1]
    return increase


@njit(
    types.void(BYTES, types.int64, types.int64, types.int64, _TARGETS, types.boolean, types.boolean, _ANSWERS),
    **OPTIONS,
)
def many_slots(data, entries, column, base_offset, targets, upper, increasing, slots):
    """The slots of many targets, which is faster; fastest if they are sorted. `increasing`: the column is known to
    increase.
    """
    if entries == 0:
        slots[:] = -1
    elif not increasing:
        for number in range(len(targets)):
            slots[number] = _warm_cold_search(data, entries, column, base_offset, targets[number], upper, None)[0]
    elif len(targets) * _ENTRIES_PER_TARGET >= entries:
        values = _values(data, entries, column, base_offset)
        if _increase(targets):
            _merged(values, targets, upper, slots)
        else:
            _by_table(values, targets, upper, slots)
    else:
        _targets_abreast(data, entries, column, base_offset, targets, upper, _increase(targets), slots)
