"""Kafka's search in an index: warm end first.

An index is in pages of 4 KiB. A plain binary search for one of the last entries starts at the middle. Each time that
the index has grown by a page, it would read pages that were not needed for long, and wait for the disk. Kafka searches
the last 8 KiB first (`AbstractIndex.indexSlotRangeFor`), which all such lookups read, so that these pages stay in
memory. `trace` shows it.

A search returns a slot, the number of an entry from 0 on:

- lower bound: the last entry that is not above the target; −1 if the first entry is above it, or there is none;
- upper bound: the first entry that is not below the target; −1 if there is none. An entry equal to the target is not
  found at slot 0, because the loop never probes where it begins: the answer is slot 1, or −1 if there is one entry.

This holds if the entries increase. If they do not, in a damaged or zero-padded index, the answer depends on which
entries are probed: the same ones as in Kafka, so the answer is the same too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.index.search_kernel import (
    OFFSET_ENTRY_BYTES,
    POSITION,
    TIME_ENTRY_BYTES,
    many_slots,
    warm_cold_slot,
    warm_cold_traced,
)

#: Bytes of a page, the unit in which a file is read into memory.
PAGE_BYTES: Final = 4096

#: More probes than a search of 2**31 entries makes.
_PROBES_MAX: Final = 64
#: Checking whether the entries increase costs about an eighth of a search per entry: it pays from this ratio on.
_ENTRIES_PER_TARGET: Final = 8


@dataclass(frozen=True, slots=True)
class Trace:
    """The entries and pages that a search touched.

    Attributes:
        slot: the answer.
        entries: the probed slots, in order.
        pages: the pages of 4 KiB with these entries, numbered from the start of the file, in the order of first touch.
    """

    slot: int
    entries: tuple[int, ...]
    pages: tuple[int, ...]


_Slot: TypeAlias = Callable[[NDArray[np.uint8], int, int, int, int, bool], int]

#: (data, entries, column, base_offset, target, upper) → slot. `data`: the bytes of the index, uint8; `entries`: how
#: many entries to search; `column`: its number in `search_kernel`; `base_offset`: added to relative offsets; `upper`:
#: search for the upper bound. This is the compiled loop itself: a function around it would double the time of a lookup.
slot: Final[_Slot] = warm_cold_slot


def slots(
    data: NDArray[np.uint8],
    entries: int,
    column: int,
    base_offset: int,
    targets: NDArray[np.int64],
    upper: bool,
    increasing: bool = False,
    answers: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """`slot` for many targets, which is faster; fastest if they are sorted. If the column is known to increase
    (`search_kernel.increases`), all searches agree, and the fastest is used. Answers go into `answers`; None for a new
    array.
    """
    if answers is None:
        answers = np.empty(len(targets), np.int64)
    many_slots(data, entries, column, base_offset, targets, upper, increasing, answers)
    return answers


def trace(data: NDArray[np.uint8], entries: int, column: int, base_offset: int, target: int, upper: bool) -> Trace:
    """The entries and pages that `slot` touches."""
    touched = np.empty(_PROBES_MAX, np.int64)
    answer, probes = warm_cold_traced(data, entries, column, base_offset, target, upper, touched)
    probed = touched[:probes].tolist()
    entry_bytes = OFFSET_ENTRY_BYTES if column <= POSITION else TIME_ENTRY_BYTES
    # An entry of 12 bytes may lie on two pages.
    pages = [byte // PAGE_BYTES for at in probed for byte in (at * entry_bytes, (at + 1) * entry_bytes - 1)]
    return Trace(slot=answer, entries=tuple(probed), pages=tuple(dict.fromkeys(pages)))


def worth_asking(entries: int, targets: int) -> bool:
    """Whether the number of targets makes it pay to check whether the entries increase."""
    return targets * _ENTRIES_PER_TARGET >= entries
