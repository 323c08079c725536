"""Kafka's search in an index: warm end first.

An index lies in pages of 4 KiB. A plain binary search for one of its last entries starts at the middle, so each time
the index has grown by a page it reads pages that nobody has needed for long, and waits for the disk. Kafka looks into
the last 8 KiB first (`AbstractIndex.indexSlotRangeFor`), which every such lookup reads: its pages stay in memory.
`trace` shows it.

A search returns the slot, the number of an entry from 0 on, where it finds a bound of the target:

- lower: the last entry that is not above the target; −1 where the first one is above, or there is none;
- upper: the first entry that is not below the target; −1 where there is none. An entry equal to the target is not found
  at slot 0, because a loop never probes where it begins: the answer is slot 1, or −1 where there is but one entry.

That is so where the entries increase. Where they do not, in a damaged or zero-padded index, the answer depends on which
entries are probed. These are Kafka's, so the answer is too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.index.bulk_search_kernel import many_slots
from kidxlib.index.columns import OFFSET_ENTRY_BYTES, POSITION, TIME_ENTRY_BYTES
from kidxlib.index.search_kernel import warm_cold_slot, warm_cold_traced

#: Bytes of a page, the unit in which a file comes into memory.
PAGE_BYTES: Final = 4096

#: More probes than a search of 2**31 entries makes.
_PROBES_MAX: Final = 64
#: Seeing whether the entries increase costs about an eighth of a search per entry; below that it does not pay.
_ENTRIES_PER_TARGET: Final = 8


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

#: (data, entries, column, base_offset, target, upper) → slot. `data` are the bytes of the index, uint8; `entries` how
#: many entries they hold, nothing after them is looked at; `column` is one of the numbers of `kidxlib.index.columns`;
#: `base_offset` is added to relative offsets; `upper` asks for the upper bound. The compiled loop itself: a function
#: around it would cost each lookup as much again.
slot: Final[_Slot] = warm_cold_slot


def slots(
    data: NDArray[np.uint8],
    entries: int,
    column: int,
    base_offset: int,
    targets: NDArray[np.int64],
    upper: bool,
    increasing: bool = False,
    found: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """What `slot` says for each of the targets, faster; fastest if they are sorted.

    Args:
        found: where the answers go, of as many as there are targets; None: into a new array.
        increasing: what `columns.increases` says, where it was asked. All ways to search then agree, and the fastest is
            taken.
    """
    answers = np.empty(len(targets), np.int64) if found is None else found
    many_slots(data, entries, column, base_offset, targets, upper, increasing, answers)
    return answers


def trace(data: NDArray[np.uint8], entries: int, column: int, base_offset: int, target: int, upper: bool) -> Trace:
    """What `slot` touches."""
    touched = np.empty(_PROBES_MAX, np.int64)
    answer, probes = warm_cold_traced(data, entries, column, base_offset, target, upper, touched)
    probed = touched[:probes].tolist()
    entry_bytes = OFFSET_ENTRY_BYTES if column <= POSITION else TIME_ENTRY_BYTES
    # An entry of 12 bytes may lie on two pages.
    pages = [byte // PAGE_BYTES for at in probed for byte in (at * entry_bytes, (at + 1) * entry_bytes - 1)]
    return Trace(slot=answer, entries=tuple(probed), pages=tuple(dict.fromkeys(pages)))


def worth_asking(entries: int, targets: int) -> bool:
    """Whether so many targets are worth a look at all entries, to see whether they increase."""
    return targets * _ENTRIES_PER_TARGET >= entries
