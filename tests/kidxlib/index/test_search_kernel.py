"""The search: its answers, and what it touches."""

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

from kidxlib.format import layouts
from kidxlib.index.abstract_index import PAGE_BYTES, trace_search
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.search_kernel import (
    OFFSET,
    OFFSET_OF_TIMESTAMP,
    POSITION,
    TIMESTAMP,
    increases,
    many_slots,
    warm_cold_slot,
)
from tests.model.plain_search import plain_search
from tests.support import page_cache

OFFSET_ENTRIES_PER_PAGE: Final = PAGE_BYTES // layouts.OFFSET_INDEX_ENTRY.itemsize
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

    def slot(self, target: int, upper: bool) -> int:
        return int(warm_cold_slot(self.data, len(self.values), self.number, self.base_offset, target, upper))

    def slots(self, targets: Sequence[int], upper: bool, increasing: bool = False) -> list[int]:
        wanted, slots = np.array(targets, np.int64), np.empty(len(targets), np.int64)
        many_slots(self.data, len(self.values), self.number, self.base_offset, wanted, upper, increasing, slots)
        return [int(slot) for slot in slots]


def column(number: int, stored: NDArray[np.int64], base_offset: int) -> Column:
    """The entries of an index that has these values in one column, and other values in the other."""
    layout = layouts.OFFSET_INDEX_ENTRY if number <= POSITION else layouts.TIME_INDEX_ENTRY
    names = layout.names or ()
    entries = np.zeros(len(stored), layout)
    entries[names[(number + 1) % 2]] = np.arange(len(stored))[::-1]
    entries[names[number % 2]] = stored
    relative = number in (OFFSET, OFFSET_OF_TIMESTAMP)
    with np.errstate(over="ignore"):
        values = stored + np.int64(base_offset if relative else 0)
    return Column(number, values.tolist(), base_offset, np.frombuffer(entries.tobytes(), np.uint8))


@st.composite
def drawn_columns(draw: st.DrawFn, *, increasing: bool) -> Column:
    """Columns of all kinds, with 0 to 3,000 entries that increase, or do not."""
    number = draw(st.sampled_from([OFFSET, POSITION, TIMESTAMP, OFFSET_OF_TIMESTAMP]))
    size = draw(st.one_of(st.sampled_from(SIZES), st.integers(0, 20)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    stored = np.cumsum(random.integers(1, draw(st.sampled_from([2, 5, 1000])), size))
    stored += draw(st.sampled_from([0, -1, -500, 2**30]))
    if draw(st.booleans()):  # a gap: nearly all values are close together
        stored[size // 3 :] += 2**29
    if not increasing:
        damage = draw(st.sampled_from(["duplicates", "zeros after", "noise", "swapped"]))
        if damage == "duplicates":
            stored //= 7
        elif damage == "zeros after":
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
    near = [value + step for value in [*chosen, *ends, *warm, 0] for step in (-1, 0, 1)]
    targets = [target for target in near if -(2**63) <= target < 2**63]  # offsets that wrap have the smallest there is
    random.shuffle(targets)
    return [*targets, -(2**63), 2**63 - 1]


def kafkas_slot(number: int, values: Sequence[int], target: int, upper: bool) -> int:
    """`AbstractIndex.indexSlotRangeFor`, line by line."""
    if not values:
        return -1
    last = len(values) - 1
    first_hot = max(0, last - (WARM_OFFSET_ENTRIES if number <= POSITION else WARM_TIME_ENTRIES))
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


@given(column=drawn_columns(increasing=True), drawn=st.integers(0, 2**32 - 1))
def test_bounds(column: Column, drawn: int) -> None:
    """One by one, all at once, in any order and sorted, a few and more than there are entries; with and without the
    promise that entries increase.
    """
    assert increases(column.data, len(column.values), column.number, column.base_offset)
    targets = targets_for(drawn, column.values)
    times = len(column.values) // len(targets) + 1
    for asked in (targets, sorted(targets)):
        for upper in (False, True):
            expected = [bound(column.values, target, upper) for target in asked]
            assert [column.slot(target, upper) for target in asked] == expected
            assert column.slots(asked, upper) == expected
            assert column.slots(asked, upper, increasing=True) == expected
            assert column.slots(asked * times, upper, increasing=True) == expected * times
            repeated = [slot for slot in expected for _ in range(times)]
            assert column.slots([target for target in asked for _ in range(times)], upper, increasing=True) == repeated


@given(column=drawn_columns(increasing=False), drawn=st.integers(0, 2**32 - 1))
def test_entries_that_do_not_increase(column: Column, drawn: int) -> None:
    """Kafka's slots, one by one and all at once. That they do not increase is seen."""
    targets = targets_for(drawn, column.values)
    for upper in (False, True):
        slots = [kafkas_slot(column.number, column.values, target, upper) for target in targets]
        assert [column.slot(target, upper) for target in targets] == slots
        assert column.slots(targets, upper) == slots
    increase = all(low < high for low, high in itertools.pairwise(column.values))
    assert increases(column.data, len(column.values), column.number, column.base_offset) == increase


def test_upper_bound_passes_over_the_first_entry() -> None:
    """Positions 10, 23, 37: exactly 10 gives slot 1. With one entry there is then none."""
    positions = column(POSITION, np.array([10, 23, 37]), 45)
    asked = {9: 0, 10: 1, 11: 1, 22: 1, 23: 1, 24: 2, 37: 2, 38: -1}
    assert {target: positions.slot(target, True) for target in asked} == asked
    assert positions.slots(list(asked), True, increasing=True) == list(asked.values())
    one = column(POSITION, np.array([10]), 45)
    assert [one.slot(target, True) for target in (9, 10, 11)] == [0, -1, -1]


def test_offsets_wrap_as_javas_do() -> None:
    """Above the largest offset there is the smallest."""
    base_offset = 2**63 - 2
    offsets = column(OFFSET, np.array([0, 1, 2]), base_offset)
    assert offsets.values == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert offsets.slot(2**63 - 1, False) == kafkas_slot(OFFSET, offsets.values, 2**63 - 1, False)


@given(column=drawn_columns(increasing=False), drawn=st.integers(0, 2**32 - 1), upper=st.booleans())
def test_trace_says_what_is_probed(column: Column, drawn: int, upper: bool) -> None:
    """Goal: a trace lists all entries that a search looks at.

    Method: change all others, and search again.
    """
    target = targets_for(drawn, column.values)[0]
    arguments = (len(column.values), column.number, column.base_offset, target, upper)
    trace = trace_search(column.data, *arguments)
    assert trace.slot == warm_cold_slot(column.data, *arguments)
    entry_bytes = 8 if column.number <= POSITION else 12
    others = np.random.default_rng(drawn).integers(0, 256, len(column.data)).astype(np.uint8)
    for slot in trace.entries:
        others[slot * entry_bytes : (slot + 1) * entry_bytes] = column.data[
            slot * entry_bytes : (slot + 1) * entry_bytes
        ]
    assert trace_search(others, *arguments) == trace


def full_pages(pages: int) -> Column:
    """An offset index of so many full pages."""
    return column(OFFSET, np.arange(pages * OFFSET_ENTRIES_PER_PAGE), 0)


@pytest.mark.parametrize(
    ("pages", "plain", "warm"), [(13, (0, 6, 9, 11, 12), (10, 11, 12)), (14, (0, 7, 10, 12, 13), (11, 12, 13))]
)
def test_published_example(pages: int, plain: tuple[int, ...], warm: tuple[int, ...]) -> None:
    """The one in the comment on `AbstractIndex.warmEntries`: with a 14th page, the plain search needs pages 7 and 10,
    which it has not touched for long.
    """
    index = full_pages(pages)
    last = len(index.values) - 1
    trace = trace_search(index.data, len(index.values), OFFSET, 0, last, False)
    assert (trace.slot, trace.pages) == (last, warm)
    before = plain_search(index.data, last)
    assert (before.slot, before.pages) == (last, plain)


def test_pages_of_lookups_at_the_tail() -> None:
    """As an index grows from 13 to 2,560 pages, 10 MiB, the last entry costs 3 pages, or 5 to 13 without a warm end."""
    index = full_pages(2560)
    plain: set[int] = set()
    for pages in range(13, 2561):
        entries = pages * OFFSET_ENTRIES_PER_PAGE
        trace = trace_search(index.data, entries, OFFSET, 0, entries - 1, False)
        assert (trace.slot, len(trace.pages)) == (entries - 1, 3)
        plain.add(len(plain_search(index.data[: pages * PAGE_BYTES], entries - 1).pages))
    assert (min(plain), max(plain)) == (5, 13)


def test_plain_search() -> None:
    """The model finds what the search finds, where entries increase."""
    for size in (0, 1, 2, 3, 700):
        offsets = column(OFFSET, np.arange(size) * 3, 0)
        for target in range(-1, 3 * size + 1):
            assert plain_search(offsets.data, target).slot == offsets.slot(target, False)


@pytest.mark.parametrize("number", [OFFSET, TIMESTAMP], ids=["offset index", "time index"])
def test_warm_lookups_touch_three_pages_at_most(number: int) -> None:
    """However full the last page is, and whatever is looked for in the warm end."""
    index = column(number, np.arange(5000), 0)
    warm = WARM_OFFSET_ENTRIES if number == OFFSET else WARM_TIME_ENTRIES
    for entries in range(3000, 5000, 7):
        for target in range(entries - warm, entries, 97):
            assert len(trace_search(index.data, entries, number, 0, target, False).pages) <= 3


def test_lookup_reads_the_pages_of_its_trace(tmp_path: Path, rng: random.Random) -> None:
    """Goal: a trace lists all pages that a lookup needs from the disk.

    Method: look something up in a file of which nothing is in memory, and ask the kernel what is there afterwards.
    """
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(full_pages(640).data.tobytes())
    last = 640 * OFFSET_ENTRIES_PER_PAGE - 1
    for target in (last, 0, last // 2, *(rng.randrange(last) for _ in range(20))):
        if not page_cache.drop(path):
            pytest.skip(f"{tmp_path} keeps files in memory, expected a disk")
        index = OffsetIndex.from_bytes(page_cache.mapped(path, without_read_ahead=True), 0)
        assert index.lookup(target).offset == target
        in_memory = page_cache.resident(path)
        assert in_memory == tuple(sorted(index.trace(target).pages))
        del index  # what is mapped cannot be dropped
