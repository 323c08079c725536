"""Both searches: their answers, and what they touch."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib import formats, search
from kidxlib.offset_index import OffsetIndex
from kidxlib.search import PLAIN, WARM_COLD, Search
from tests.support import page_cache

SEARCHES: Final = pytest.mark.parametrize("how", [WARM_COLD, PLAIN], ids=lambda how: how.name)

OFFSET_ENTRIES_PER_PAGE: Final = search.PAGE_BYTES // formats.OFFSET_INDEX_ENTRY.itemsize
WARM_OFFSET_ENTRIES: Final = 1024
WARM_TIME_ENTRIES: Final = 682
#: Sizes at which one or the other part of an index is empty, or almost.
SIZES: Final = (0, 1, 2, 3, 4, 681, 682, 683, 684, 685, 1023, 1024, 1025, 1026, 1027, 3000)


@dataclass(frozen=True)
class Column:
    """A column of an index, with the values that are to be found in it."""

    number: int
    values: list[int]
    base_offset: int
    data: NDArray[np.uint8]

    def slot(self, how: Search, target: int, upper: bool) -> int:
        return how.slot(self.data, len(self.values), self.number, self.base_offset, target, upper)

    def slots(self, how: Search, targets: Sequence[int], upper: bool, increasing: bool = False) -> list[int]:
        wanted = np.array(targets, np.int64)
        slots = how.slots(
            self.data, len(self.values), self.number, self.base_offset, wanted, upper, increasing=increasing
        )
        return [int(slot) for slot in slots]


def column(number: int, stored: NDArray[np.int64], base_offset: int) -> Column:
    """The entries of an index that has these values in one column, and other values in the other."""
    layout = formats.OFFSET_INDEX_ENTRY if number <= search.POSITION else formats.TIME_INDEX_ENTRY
    names = layout.names or ()
    entries = np.zeros(len(stored), layout)
    entries[names[(number + 1) % 2]] = np.arange(len(stored))[::-1]
    entries[names[number % 2]] = stored
    relative = number in (search.OFFSET, search.OFFSET_OF_TIMESTAMP)
    with np.errstate(over="ignore"):
        values = stored + np.int64(base_offset if relative else 0)
    return Column(number, values.tolist(), base_offset, np.frombuffer(entries.tobytes(), np.uint8))


@st.composite
def columns(draw: st.DrawFn, *, increasing: bool) -> Column:
    """Columns of all kinds, with 0 to 3,000 entries that increase, or do not."""
    number = draw(st.sampled_from([search.OFFSET, search.POSITION, search.TIMESTAMP, search.OFFSET_OF_TIMESTAMP]))
    size = draw(st.one_of(st.sampled_from(SIZES), st.integers(0, 20)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    stored = np.cumsum(random.integers(1, draw(st.sampled_from([2, 5, 1000])), size))
    stored += draw(st.sampled_from([0, -1, -500, 2**30]))
    if not increasing:
        damage = draw(st.sampled_from(["duplicates", "zeros behind", "noise", "swapped"]))
        if damage == "duplicates":
            stored //= 7
        elif damage == "zeros behind":
            stored[random.integers(0, size + 1) :] = 0
        elif damage == "noise":
            stored = random.integers(-(2**31), 2**31, size)
        else:
            random.shuffle(stored[size // 3 : size // 2])
    # With the last of these, offsets wrap.
    return column(number, stored, draw(st.sampled_from([0, 45, 2**40] if increasing else [0, 45, 2**63 - 100])))


def targets_for(drawn: int, values: Sequence[int]) -> list[int]:
    """Each of some values and what is next to it, the ends, and anything."""
    random = np.random.default_rng(drawn)
    chosen = [values[slot] for slot in random.integers(0, len(values), 12)] if values else []
    ends = [values[0], values[-1]] if values else []
    warm = [values[max(0, len(values) - 1 - count)] for count in (WARM_OFFSET_ENTRIES, WARM_TIME_ENTRIES) if values]
    targets = [value + step for value in [*chosen, *ends, *warm, 0] for step in (-1, 0, 1)]
    random.shuffle(targets)
    return [*targets, -(2**63), 2**63 - 1]


def kafkas_slot(number: int, values: Sequence[int], target: int, upper: bool) -> int:
    """`AbstractIndex.indexSlotRangeFor`, line by line."""
    if not values:
        return -1
    last = len(values) - 1
    first_hot = max(0, last - (WARM_OFFSET_ENTRIES if number <= search.POSITION else WARM_TIME_ENTRIES))
    if values[first_hot] < target:
        begin, end = first_hot, last
    elif values[0] > target:
        return 0 if upper else -1
    else:
        begin, end = 0, first_hot
    while begin < end:
        middle = (begin + end + 1) // 2
        if values[middle] > target:
            end = middle - 1
        elif values[middle] < target:
            begin = middle
        else:
            return middle
    if not upper:
        return begin
    return -1 if begin == last else begin + 1


def bound(values: Sequence[int], target: int, upper: bool) -> int:
    """What the bounds are of values that increase, with what is odd about the first entry."""
    if not upper:
        return bisect_right(values, target) - 1
    slot = bisect_left(values, target)
    if slot == 0 and values and values[0] == target:
        slot = 1
    return slot if slot < len(values) else -1


@SEARCHES
@given(column=columns(increasing=True), drawn=st.integers(0, 2**32 - 1))
def test_bounds(how: Search, column: Column, drawn: int) -> None:
    """One by one, all at once, in any order and sorted; told that the entries increase, and not."""
    assert search.increases(column.data, len(column.values), column.number, column.base_offset)
    targets = targets_for(drawn, column.values)
    for asked in (targets, sorted(targets)):
        for upper in (False, True):
            expected = [bound(column.values, target, upper) for target in asked]
            assert [column.slot(how, target, upper) for target in asked] == expected
            assert column.slots(how, asked, upper) == expected
            assert column.slots(how, asked, upper, increasing=True) == expected


@given(column=columns(increasing=False), drawn=st.integers(0, 2**32 - 1))
def test_entries_that_do_not_increase(column: Column, drawn: int) -> None:
    """Kafka's slots from Kafka's search; from both, many are as one by one. That they do not increase is seen."""
    targets = targets_for(drawn, column.values)
    for upper in (False, True):
        assert column.slots(WARM_COLD, targets, upper) == [
            kafkas_slot(column.number, column.values, target, upper) for target in targets
        ]
        for how in (WARM_COLD, PLAIN):
            one_by_one = [column.slot(how, target, upper) for target in targets]
            assert column.slots(how, targets, upper) == one_by_one
    increase = all(low < high for low, high in itertools.pairwise(column.values))
    assert search.increases(column.data, len(column.values), column.number, column.base_offset) == increase


@SEARCHES
def test_upper_bound_passes_over_the_first_entry(how: Search) -> None:
    """Positions 10, 23, 37: exactly 10 gives slot 1. With one entry there is then none."""
    positions = column(search.POSITION, np.array([10, 23, 37]), 45)
    asked = {9: 0, 10: 1, 11: 1, 22: 1, 23: 1, 24: 2, 37: 2, 38: -1}
    assert {target: positions.slot(how, target, True) for target in asked} == asked
    assert positions.slots(how, list(asked), True, increasing=True) == list(asked.values())
    one = column(search.POSITION, np.array([10]), 45)
    assert [one.slot(how, target, True) for target in (9, 10, 11)] == [0, -1, -1]


@SEARCHES
def test_offsets_wrap_as_javas_do(how: Search) -> None:
    """Above the largest offset there is the smallest."""
    base_offset = 2**63 - 2
    offsets = column(search.OFFSET, np.array([0, 1, 2]), base_offset)
    assert offsets.values == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert offsets.slot(how, 2**63 - 1, False) == kafkas_slot(search.OFFSET, offsets.values, 2**63 - 1, False)


@given(
    how=st.sampled_from([WARM_COLD, PLAIN]),
    column=columns(increasing=False),
    drawn=st.integers(0, 2**32 - 1),
    upper=st.booleans(),
)
def test_trace_says_what_is_probed(how: Search, column: Column, drawn: int, upper: bool) -> None:
    """Goal: a trace lists all entries that a search looks at.

    Method: change all others, and search again.
    """
    target = targets_for(drawn, column.values)[0]
    arguments = (len(column.values), column.number, column.base_offset, target, upper)
    trace = how.trace(column.data, *arguments)
    assert trace.slot == how.slot(column.data, *arguments)
    entry_bytes = 8 if column.number <= search.POSITION else 12
    others = np.random.default_rng(drawn).integers(0, 256, len(column.data)).astype(np.uint8)
    for slot in trace.entries:
        others[slot * entry_bytes : (slot + 1) * entry_bytes] = column.data[
            slot * entry_bytes : (slot + 1) * entry_bytes
        ]
    assert how.trace(others, *arguments) == trace


def full_pages(pages: int) -> Column:
    """An offset index of so many full pages."""
    return column(search.OFFSET, np.arange(pages * OFFSET_ENTRIES_PER_PAGE), 0)


@pytest.mark.parametrize(
    ("pages", "how", "touched"),
    [
        (13, PLAIN, (0, 6, 9, 11, 12)),
        (13, WARM_COLD, (10, 11, 12)),
        (14, PLAIN, (0, 7, 10, 12, 13)),
        (14, WARM_COLD, (11, 12, 13)),
    ],
)
def test_published_example(pages: int, how: Search, touched: tuple[int, ...]) -> None:
    """The one in the comment on `AbstractIndex.warmEntries`: with a 14th page, the plain search needs pages 7 and 10,
    which it has not touched for long.
    """
    index = full_pages(pages)
    last = len(index.values) - 1
    trace = how.trace(index.data, len(index.values), search.OFFSET, 0, last, False)
    assert (trace.slot, trace.pages) == (last, touched)


def test_pages_of_lookups_at_the_tail() -> None:
    """As an index grows from 13 to 2,560 pages, 10 MiB, the last entry costs 3 pages, or 5 to 13 without a warm end."""
    index = full_pages(2560)
    touched: dict[str, set[int]] = {how.name: set() for how in (WARM_COLD, PLAIN)}
    for pages in range(13, 2561):
        entries = pages * OFFSET_ENTRIES_PER_PAGE
        for how in (WARM_COLD, PLAIN):
            trace = how.trace(index.data, entries, search.OFFSET, 0, entries - 1, False)
            assert trace.slot == entries - 1
            touched[how.name].add(len(trace.pages))
    assert touched[WARM_COLD.name] == {3}
    assert (min(touched[PLAIN.name]), max(touched[PLAIN.name])) == (5, 13)


@pytest.mark.parametrize("number", [search.OFFSET, search.TIMESTAMP], ids=["offset index", "time index"])
def test_warm_lookups_touch_three_pages_at_most(number: int) -> None:
    """However full the last page is, and whatever is looked for in the warm end."""
    index = column(number, np.arange(5000), 0)
    warm = WARM_OFFSET_ENTRIES if number == search.OFFSET else WARM_TIME_ENTRIES
    for entries in range(3000, 5000, 7):
        for target in range(entries - warm, entries, 97):
            assert len(WARM_COLD.trace(index.data, entries, number, 0, target, False).pages) <= 3


@SEARCHES
def test_lookup_reads_the_pages_of_its_trace(how: Search, tmp_path: Path, rng: random.Random) -> None:
    """Goal: a trace lists all pages that a lookup needs from the disk.

    Method: look something up in a file of which nothing is in memory, and ask the kernel what is there afterwards.
    """
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(full_pages(640).data.tobytes())
    last = 640 * OFFSET_ENTRIES_PER_PAGE - 1
    for target in (last, 0, last // 2, *(rng.randrange(last) for _ in range(20))):
        if not page_cache.drop(path):
            pytest.skip(f"{tmp_path} keeps files in memory, expected a disk")
        index = OffsetIndex.from_bytes(page_cache.mapped(path, without_read_ahead=True), 0, search=how)
        assert index.lookup(target).offset == target
        in_memory = page_cache.resident(path)
        assert in_memory == tuple(sorted(index.trace(target).pages))
        del index  # what is mapped cannot be dropped
