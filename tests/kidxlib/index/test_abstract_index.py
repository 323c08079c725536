"""An index that is changed holds what was appended and not truncated, whatever was done before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import IndexSizeError
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex

BASE_OFFSET, ROOM = 45, 12
STEPS = st.lists(
    st.tuples(st.just("append"), st.integers(1, 5))
    | st.tuples(st.just("truncate"), st.integers(-2, 40))
    | st.tuples(st.sampled_from(["trim", "resize", "reset"]), st.just(0)),
    max_size=30,
)


@given(STEPS)
def test_an_offset_index_is_a_list_of_offsets(steps: list[tuple[str, int]]) -> None:
    index, offsets = OffsetIndex.new(BASE_OFFSET, ROOM * OffsetIndex.entry_bytes), list[int]()
    for what, number in steps:
        if what == "append" and not index.is_full:
            offsets.append((offsets[-1] if offsets else BASE_OFFSET) + number)
            index.append(offsets[-1], offsets[-1] * 2)
        elif what == "truncate":
            index.truncate_to(BASE_OFFSET + number)
            offsets = [offset for offset in offsets if offset < BASE_OFFSET + number]
        elif what == "trim":
            index.trim_to_valid_size()
            assert index.length == len(offsets) * OffsetIndex.entry_bytes
            assert index.is_full
        elif what == "resize":
            index.resize(ROOM * OffsetIndex.entry_bytes)
        elif what == "reset":
            index.reset()
            offsets = []
            assert index.length == ROOM * OffsetIndex.entry_bytes
        assert [index.entry(number).offset for number in range(len(index))] == offsets
        assert index.lookup(2**40).offset == (offsets[-1] if offsets else BASE_OFFSET)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=ROOM - 1), st.integers(-2, 70))
def test_a_time_index_is_truncated_by_offset(steps: list[tuple[int, int]], until: int) -> None:
    index, entries = TimeIndex.new(BASE_OFFSET, ROOM * TimeIndex.entry_bytes), list[tuple[int, int]]()
    for time, offset in steps:
        last = entries[-1] if entries else (0, BASE_OFFSET)
        entries.append((last[0] + time, last[1] + offset))
        index.maybe_append(*entries[-1])
    index.truncate_to(BASE_OFFSET + until)
    kept = [entry for entry in entries if entry[1] < BASE_OFFSET + until]
    found = [index.entry(number) for number in range(len(index))]
    assert [(entry.timestamp, entry.offset) for entry in found] == kept


def test_entries_are_never_cut_off() -> None:
    index = OffsetIndex.new(BASE_OFFSET, ROOM * OffsetIndex.entry_bytes)
    for number in (1, 2):
        index.append(BASE_OFFSET + number, number)
    before = index.length
    with pytest.raises(IndexSizeError, match="expected 16 or more, its entries"):
        index.resize(15)
    assert index.length == before
    assert index.resize(23) and index.length == 16 and not index.resize(16)
