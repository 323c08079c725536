"""Kafka's search in an index, compiled, and the plain binary search that it replaced.

An index lies in pages of 4 KiB. A plain binary search for one of its last entries starts at the middle, so each time
the index has grown by a page it reads pages that nobody has needed for long, and waits for the disk. Kafka looks into
the last 8 KiB first (`AbstractIndex.indexSlotRangeFor`), which every such lookup reads: its pages stay in memory.
`Search.trace` shows it.

Both searches return the slot, the number of an entry from 0 on, where they find a bound of the target:

- lower: the last entry that is not above the target; −1 where the first one is above, or there is none;
- upper: the first entry that is not below the target; −1 where there is none. An entry equal to the target is not found
  at slot 0, because a loop never probes where it begins: the answer is slot 1, or −1 where there is but one entry.

That is so where the entries increase. Where they do not, in a damaged or zero-padded index, the answer depends on which
entries were probed, and is Kafka's only from `WARM_COLD`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

from kidxlib import formats
from kidxlib.compiled import njit
from kidxlib.wire_numbers import int32, int64

#: Bytes at the end of an index that are searched first (`AbstractIndex.warmEntries`).
WARM_BYTES: Final = 8192
#: Bytes of a page, the unit in which a file comes into memory.
PAGE_BYTES: Final = 4096

#: What is searched: a column of an index, by number. Kafka's KEY and VALUE of an `OffsetIndex` and of a `TimeIndex`.
OFFSET: Final = 0
POSITION: Final = 1
TIMESTAMP: Final = 2
OFFSET_OF_TIMESTAMP: Final = 3

_OFFSET_ENTRY_BYTES: Final = formats.OFFSET_INDEX_ENTRY.itemsize
_TIME_ENTRY_BYTES: Final = formats.TIME_INDEX_ENTRY.itemsize
_POSITION_AT: Final = formats.field_position(formats.OFFSET_INDEX_ENTRY, "position")
_OFFSET_OF_TIMESTAMP_AT: Final = formats.field_position(formats.TIME_INDEX_ENTRY, "relative_offset")

#: More probes than a search of 2**31 entries makes.
_PROBES_MAX: Final = 64
#: Targets that are searched for at the same time, so that one waits for memory while the others compute.
_ABREAST: Final = 16
#: Seeing whether the entries increase costs about an eighth of a search per entry; below that it does not pay.
_ENTRIES_PER_TARGET: Final = 8

_BYTES: Final = types.Array(types.uint8, 1, "C", readonly=True)
_TARGETS: Final = types.Array(types.int64, 1, "C", readonly=True)
_SLOTS: Final = types.Array(types.int64, 1, "C")
_OPTIONS: Final = {"cache": True, "boundscheck": False, "nogil": True}


@njit(inline="always")
def _sum(base_offset, relative):
    """It wraps, as Java's does. Of signed numbers the compiler takes for granted that sums do not."""
    return np.int64(np.uint64(base_offset) + np.uint64(relative))


@njit(inline="always")
def _value(data, slot, column, base_offset):
    """What stands in a column of an entry."""
    if column == OFFSET:
        return _sum(base_offset, np.int64(int32(data, slot * _OFFSET_ENTRY_BYTES)))
    if column == POSITION:
        return np.int64(int32(data, slot * _OFFSET_ENTRY_BYTES + _POSITION_AT))
    if column == TIMESTAMP:
        return int64(data, slot * _TIME_ENTRY_BYTES)
    return _sum(base_offset, np.int64(int32(data, slot * _TIME_ENTRY_BYTES + _OFFSET_OF_TIMESTAMP_AT)))


@njit(inline="always")
def _probe(data, slot, column, base_offset, touched, probes):
    """The value at a slot, and how many probes there were; noted down where somebody wants to know."""
    if touched is not None:
        touched[probes] = slot
    return _value(data, slot, column, base_offset), probes + 1


@njit
def _binary_search(data, entries, column, base_offset, target, upper, low, high, touched, probes):
    """`AbstractIndex.binarySearch` from slot `low` to `high`: the slot, and how many probes there were."""
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
def _warm_cold(data, entries, column, base_offset, target, upper, touched):
    """`AbstractIndex.indexSlotRangeFor`: the slot, and how many probes there were."""
    if entries == 0:
        return np.int64(-1), np.int64(0)
    entry_bytes = _OFFSET_ENTRY_BYTES if column <= POSITION else _TIME_ENTRY_BYTES
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


@njit
def _plain(data, entries, column, base_offset, target, upper, touched):
    """The first entry, then halves of them all, as Kafka did before KAFKA-6432: the slot, and how many probes."""
    if entries == 0:
        return np.int64(-1), np.int64(0)
    low, high = np.int64(0), entries
    value, probes = _probe(data, low, column, base_offset, touched, np.int64(0))
    if value > target:
        return np.int64(0) if upper else np.int64(-1), probes
    while high - low > 1:  # what is not above the target ends between them
        middle = (low + high) >> 1
        value, probes = _probe(data, middle, column, base_offset, touched, probes)
        if value == target:
            return middle, probes
        if value < target:
            low = middle
        else:
            high = middle
    if not upper:
        return low, probes
    return (high if high < entries else np.int64(-1)), probes


_ONE: Final = types.int64(_BYTES, types.int64, types.int64, types.int64, types.int64, types.boolean)
_TRACED: Final = types.UniTuple(types.int64, 2)(  # type: ignore[no-untyped-call]
    _BYTES, types.int64, types.int64, types.int64, types.int64, types.boolean, _SLOTS
)


@njit(_ONE, **_OPTIONS)
def _warm_cold_slot(data, entries, column, base_offset, target, upper):
    return _warm_cold(data, entries, column, base_offset, target, upper, None)[0]


@njit(_ONE, **_OPTIONS)
def _plain_slot(data, entries, column, base_offset, target, upper):
    return _plain(data, entries, column, base_offset, target, upper, None)[0]


@njit(_TRACED, **_OPTIONS)
def _warm_cold_traced(data, entries, column, base_offset, target, upper, touched):
    return _warm_cold(data, entries, column, base_offset, target, upper, touched)


@njit(_TRACED, **_OPTIONS)
def _plain_traced(data, entries, column, base_offset, target, upper, touched):
    return _plain(data, entries, column, base_offset, target, upper, touched)


@njit(types.boolean(_BYTES, types.int64, types.int64, types.int64), **_OPTIONS)
def increases(data, entries, column, base_offset):
    """Whether each entry's value in a column is above the one before it. Arguments as of `Search.slot`."""
    for slot in range(1, entries):
        if _value(data, slot, column, base_offset) <= _value(data, slot - 1, column, base_offset):
            return False
    return True


@njit(inline="always")
def _bound(data, entries, column, base_offset, target, upper, low):
    """Either bound, from the last slot that is not above the target or 0: what the loops would say."""
    value = _value(data, low, column, base_offset)
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
            while start + step < entries and _value(data, start + step, column, base_offset) <= last:
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
                lows[lane] = middle if _value(data, middle, column, base_offset) <= wanted[lane] else lows[lane]
            left -= half
        for lane in range(count):
            slots[first + lane] = _bound(data, entries, column, base_offset, wanted[lane], upper, lows[lane])
        if increasing:
            start = lows[count - 1]


@njit(
    types.void(
        _BYTES, types.int64, types.int64, types.int64, _TARGETS, types.boolean, types.boolean, types.boolean, _SLOTS
    ),
    **_OPTIONS,
)
def _many_slots(data, entries, column, base_offset, targets, upper, plain, increasing, slots):
    """The slots of many targets. `increasing`: the entries do, so that any way to search gives the same answers."""
    if entries == 0:
        slots[:] = -1
        return
    if not increasing:
        for number in range(len(targets)):
            if plain:
                slots[number] = _plain(data, entries, column, base_offset, targets[number], upper, None)[0]
            else:
                slots[number] = _warm_cold(data, entries, column, base_offset, targets[number], upper, None)[0]
        return
    targets_increase = True
    for number in range(1, len(targets)):
        if targets[number] < targets[number - 1]:
            targets_increase = False
            break
    _targets_abreast(data, entries, column, base_offset, targets, upper, targets_increase, slots)


@njit(
    types.void(_BYTES, types.int64, types.int64, _TARGETS, types.int64, types.int64, types.Array(types.int64, 2, "C")),
    **_OPTIONS,
)
def entries_at(data, key_column, base_offset, slots, key_of_none, value_of_none, found):
    """Write keys and values of the entries at `slots` into the columns of `found`, and what stands for slot −1."""
    for number in range(len(slots)):
        slot = slots[number]
        if slot < 0:
            found[number, 0], found[number, 1] = key_of_none, value_of_none
        else:
            found[number, 0] = _value(data, slot, key_column, base_offset)
            found[number, 1] = _value(data, slot, key_column + 1, base_offset)


@dataclass(frozen=True, slots=True)
class Trace:
    """What a search touched.

    Attributes:
        slot: its answer.
        entries: the slots that it probed, in this order.
        pages: the pages of 4 KiB, counted from the start of the file, that hold these entries; each once, in the order
            in which they were first touched.
    """

    slot: int
    entries: tuple[int, ...]
    pages: tuple[int, ...]


_Slot: TypeAlias = Callable[[NDArray[np.uint8], int, int, int, int, bool], int]
_Traced: TypeAlias = Callable[[NDArray[np.uint8], int, int, int, int, bool, NDArray[np.int64]], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Search:
    """A way to search an index.

    Attributes:
        name: what it is called.
        slot: (data, entries, column, base_offset, target, upper) → slot. `data` are the bytes of the index, uint8;
            `entries` how many entries they hold, nothing behind them is looked at; `column` is one of this module's
            numbers; `base_offset` is added to relative offsets; `upper` asks for the upper bound.
    """

    name: str
    slot: _Slot
    _traced: _Traced
    _plain: bool

    def slots(
        self,
        data: NDArray[np.uint8],
        entries: int,
        column: int,
        base_offset: int,
        targets: NDArray[np.int64],
        upper: bool,
        increasing: bool = False,
    ) -> NDArray[np.int64]:
        """What `slot` says for each of the targets, faster; fastest if they are sorted.

        Args:
            increasing: what `increases` says, where it was asked. All ways to search then agree, and the fastest is
                taken.
        """
        slots = np.empty(len(targets), np.int64)
        _many_slots(data, entries, column, base_offset, targets, upper, self._plain, increasing, slots)
        return slots

    def trace(
        self, data: NDArray[np.uint8], entries: int, column: int, base_offset: int, target: int, upper: bool
    ) -> Trace:
        """What `slot` touches."""
        touched = np.empty(_PROBES_MAX, np.int64)
        slot, probes = self._traced(data, entries, column, base_offset, target, upper, touched)
        probed = touched[:probes].tolist()
        entry_bytes = _OFFSET_ENTRY_BYTES if column <= POSITION else _TIME_ENTRY_BYTES
        # An entry of 12 bytes may lie on two pages.
        pages = [byte // PAGE_BYTES for at in probed for byte in (at * entry_bytes, (at + 1) * entry_bytes - 1)]
        return Trace(slot=slot, entries=tuple(probed), pages=tuple(dict.fromkeys(pages)))


def worth_asking(entries: int, targets: int) -> bool:
    """Whether so many targets are worth a look at all entries, to see whether they increase."""
    return targets * _ENTRIES_PER_TARGET >= entries


#: Kafka's.
WARM_COLD: Final = Search("warm/cold", _warm_cold_slot, _warm_cold_traced, False)
#: The same answers on entries that increase, for more pages.
PLAIN: Final = Search("plain", _plain_slot, _plain_traced, True)
