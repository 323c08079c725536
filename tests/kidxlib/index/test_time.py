"""The time index: what is ours of it. tests/kafka/test_lookup.py changes and asks Kafka's `TimeIndex` alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kidxlib.errors import (
    CorruptIndexError,
    IndexFullError,
    InvalidOffsetError,
    InvalidTimestampError,
    NoSuchEntryError,
    OffsetOverflowError,
)
from kidxlib.format import layouts
from kidxlib.index.time import TimeIndex, TimestampOffset

BASE_OFFSET: Final = 45
#: Kafka's tests give an index room for 30 entries.
ENTRIES_MAX: Final = 30


def new_index() -> TimeIndex:
    return TimeIndex.new(BASE_OFFSET, ENTRIES_MAX * TimeIndex.entry_bytes)


def filled(entries: int) -> TimeIndex:
    """Timestamps 10, 20, 30, … at offsets 55, 65, 75, …."""
    index = new_index()
    for number in range(1, entries + 1):
        index.maybe_append(number * 10, number * 10 + BASE_OFFSET)
    return index


def stored(entries: Sequence[tuple[int, int]]) -> bytes:
    """An index file with these timestamps and relative offsets."""
    return np.array(entries, layouts.TIME_INDEX_ENTRY).tobytes()


def test_errors_say_what_was_expected() -> None:
    index = filled(ENTRIES_MAX - 1)
    with pytest.raises(IndexFullError, match="full with 29 entries, expected room for one more and one in reserve"):
        index.maybe_append(10_000, 1000)
    with pytest.raises(InvalidTimestampError, match="timestamp 289 for entry 29, expected 290"):
        index.maybe_append(289, 335, skip_full_check=True)
    with pytest.raises(InvalidOffsetError, match="offset 334 for entry 29, expected 335"):
        index.maybe_append(10_000, 334, skip_full_check=True)
    with pytest.raises(CorruptIndexError, match=r"x\.timeindex: the last timestamp is 5, expected 10, .* rebuild it"):
        TimeIndex.from_bytes(stored([(10, 1), (5, 2)]), BASE_OFFSET, name="x.timeindex").sanity_check()
    with pytest.raises(CorruptIndexError, match="the last offset is 44, expected 45"):
        TimeIndex.from_bytes(stored([(10, 1), (15, -1)]), BASE_OFFSET).sanity_check()
    with pytest.raises(CorruptIndexError, match="17 bytes, expected a multiple of 12"):
        TimeIndex.from_bytes(bytes(17), 0).sanity_check()


def test_entry() -> None:
    index = filled(5)
    assert [index.entry(number) for number in range(5)] == [
        TimestampOffset(number * 10, number * 10 + BASE_OFFSET) for number in range(1, 6)
    ]
    for number in (5, -1):
        with pytest.raises(NoSuchEntryError, match=f"no entry {number}, expected 0 to below 5"):
            index.entry(number)


def test_order_of_checks() -> None:
    """Room, offset, timestamp; and only then whether there is anything to add."""
    index = filled(ENTRIES_MAX - 1)
    with pytest.raises(IndexFullError):
        index.maybe_append(0, 0)
    with pytest.raises(InvalidOffsetError):
        index.maybe_append(0, 0, skip_full_check=True)
    index.maybe_append(290, 400, skip_full_check=True)  # the same timestamp
    assert (len(index), index.last_entry) == (29, TimestampOffset(290, 335))
    index.maybe_append(291, 400, skip_full_check=True)
    index.maybe_append(291, 500, skip_full_check=True)  # nothing to add needs no room
    with pytest.raises(IndexFullError, match="full with 30 entries, expected room for one more;"):
        index.maybe_append(292, 500, skip_full_check=True)
    assert len(index) == ENTRIES_MAX


def test_no_timestamps() -> None:
    """Without a timestamp, as in message format v0, there are no entries; an offset below the base then is no error."""
    index = new_index()
    for timestamp in (-1, -2, -(2**63)):
        index.maybe_append(timestamp, 0)
    assert len(index) == 0
    index.maybe_append(0, BASE_OFFSET)
    assert index.last_entry == TimestampOffset(0, BASE_OFFSET)


def test_relative_offsets() -> None:
    """One that cannot be stored leaves the index as it was."""
    index = new_index()
    before = index.to_bytes()
    for offset in (BASE_OFFSET - 1, BASE_OFFSET + 2**31):
        with pytest.raises(OffsetOverflowError, match=f"offset {offset} cannot be stored"):
            index.maybe_append(1, offset)
    assert index.to_bytes() == before
    index.maybe_append(1, BASE_OFFSET + 2**31 - 1)
    assert index.lookup(1) == TimestampOffset(1, BASE_OFFSET + 2**31 - 1)


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000045.timeindex"
    path.write_bytes(stored([(10, 0), (20, 5)]))
    index = TimeIndex.open(path, BASE_OFFSET)
    assert index.lookup(15) == TimestampOffset(10, 45)
    assert index.trace(15).entries == (0, 1)
    index.truncate_to(50)
    assert path.stat().st_size == 24
