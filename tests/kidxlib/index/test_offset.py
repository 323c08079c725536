"""The offset index: what is ours of it. tests/kafka/test_lookup.py changes and asks Kafka's `OffsetIndex` alike."""

from __future__ import annotations

import mmap
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import numpy as np
import pytest

from kidxlib.errors import (
    CorruptIndexError,
    IndexFullError,
    IndexSizeError,
    InvalidOffsetError,
    NoSuchEntryError,
    OffsetOverflowError,
)
from kidxlib.format import layouts
from kidxlib.index import search_kernel
from kidxlib.index.offset import OffsetIndex, OffsetPosition, last_filled_entry, read_last_entry

BASE_OFFSET: Final = 45
#: Kafka's tests give an index room for 30 entries.
ENTRIES_MAX: Final = 30


def new_index(base_offset: int = BASE_OFFSET) -> OffsetIndex:
    return OffsetIndex.new(base_offset, ENTRIES_MAX * OffsetIndex.entry_bytes)


def filled(base_offset: int, entries: Sequence[tuple[int, int]]) -> OffsetIndex:
    index = new_index(base_offset)
    for offset, position in entries:
        index.append(offset, position)
    return index


def stored(entries: Sequence[tuple[int, int]]) -> bytes:
    """An index file with these relative offsets and positions."""
    return np.array(entries, layouts.OFFSET_INDEX_ENTRY).tobytes()


def test_errors_say_what_was_expected() -> None:
    full = filled(BASE_OFFSET, [(BASE_OFFSET + number + 1, number) for number in range(ENTRIES_MAX)])
    with pytest.raises(IndexFullError, match="full with 30 entries"):
        full.append(BASE_OFFSET + ENTRIES_MAX + 1, 0)
    with pytest.raises(InvalidOffsetError, match="offset 50 for entry 1, expected one above 51"):
        filled(BASE_OFFSET, [(51, 0)]).append(50, 1)
    with pytest.raises(CorruptIndexError, match=r"x\.index: the last offset is 44, expected 45, .* rebuild it"):
        OffsetIndex.from_bytes(stored([(3, 0), (-1, 0)]), BASE_OFFSET, name="x.index").sanity_check()
    with pytest.raises(CorruptIndexError, match=r"17 bytes, expected a multiple of 8: .* rebuild it"):
        OffsetIndex.from_bytes(bytes(17), 0).sanity_check()


def test_entry() -> None:
    index = new_index()
    with pytest.raises(NoSuchEntryError, match=r"no entry 0, expected 0 to below 0"):
        index.entry(0)
    index.append(46, 10)
    assert index.entry(0) == index.last_entry == OffsetPosition(46, 10)
    for number in (1, -1):
        with pytest.raises(NoSuchEntryError):
            index.entry(number)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", None),
        (bytes(800), None),
        (stored([(1, 10), (3, 20)]), OffsetPosition(BASE_OFFSET + 3, 20)),
        (stored([(1, 10), (3, 20)]) + bytes(800), OffsetPosition(BASE_OFFSET + 3, 20)),
        (stored([(1, 10), (3, 20)]) + b"abc", OffsetPosition(BASE_OFFSET + 3, 20)),
        (stored([(1, 10), (3, 20)]) + bytes(800) + b"abc", OffsetPosition(BASE_OFFSET + 3, 20)),
        (stored([(1, 10), (-1, 20)]) + bytes(800), None),
    ],
)
def test_the_last_entry_before_the_room_of_a_broker(
    content: bytes, expected: OffsetPosition | None, tmp_path: Path
) -> None:
    """In memory, as an audit has an index, and in a file, as reads and the forecast of a start look at it."""
    path = tmp_path / "00000000000000000045.index"
    assert read_last_entry(path, BASE_OFFSET) is None
    path.write_bytes(content)
    in_memory = last_filled_entry(np.frombuffer(content, np.uint8), BASE_OFFSET)
    assert (in_memory, read_last_entry(path, BASE_OFFSET)) == (expected, expected)


def test_room_is_rounded_down() -> None:
    index = OffsetIndex.new(0, 10 * 2**20 + 7)
    assert (index.length, index.max_entries, len(index)) == (10 * 2**20, 1_310_720, 0)
    with pytest.raises(IndexSizeError, match="room for 7 bytes, expected 8 or more"):
        OffsetIndex.new(0, 7)


@pytest.mark.parametrize(
    ("base_offset", "offset", "fits"),
    [
        (0, -(2**31), False),
        (0, 2**31, False),
        (0, 2**31 - 1, True),
        (1, 0, False),
        (100, 10, False),
        (2**31, 0, False),
        (-(2**31), 0, False),
        (2**31, 2**32, False),
        (2**63 - 5, -(2**63), True),  # wraps, as in Java
    ],
)
def test_relative_offsets(base_offset: int, offset: int, fits: bool) -> None:
    """Kafka's pairs of base offset and offset (`testAppendForLogSegmentOffsetOverflowException`), and more."""
    index = new_index(base_offset)
    assert index.can_append_offset(offset) is fits
    if fits:
        index.append(offset, 0)
        assert index.last_offset == offset
        return
    with pytest.raises(OffsetOverflowError, match=f"offset {offset} cannot be stored, expected {base_offset}"):
        index.append(offset, 0)
    assert len(index) == 0


def test_bytes_given_are_not_changed() -> None:
    content = bytearray(stored([(1, 1), (2, 2)]))
    before = bytes(content)
    index = OffsetIndex.from_bytes(content, 0)
    index.truncate_to(2)
    index.append(9, 9)
    assert index.to_bytes() == stored([(1, 1), (9, 9)])
    assert content == before


def test_files_are_opened_when_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And mapped, not read; what changes is a copy."""
    path = tmp_path / "00000000000000000045.index"
    index = OffsetIndex.open(path, BASE_OFFSET)  # there is no such file yet
    path.write_bytes(stored([(1, 10), (2, 20)]))
    mapped = Mock(wraps=mmap.mmap)
    monkeypatch.setattr(mmap, "mmap", mapped)
    assert index.lookup(47) == OffsetPosition(47, 20)
    assert [index.lookup(46), len(index), mapped.call_count] == [OffsetPosition(46, 10), 2, 1]
    index.truncate_to(47)
    index.append(48, 30)
    assert index.to_bytes() == stored([(1, 10), (3, 30)])
    assert path.read_bytes() == stored([(1, 10), (2, 20)])
    with pytest.raises(FileNotFoundError, match=r"no\.index"):
        len(OffsetIndex.open(tmp_path / "no.index", 0))
    with pytest.raises(OSError, match=rf"not a regular file: '{tmp_path}'"):
        len(OffsetIndex.open(tmp_path, 0))
    path.write_bytes(b"")
    assert OffsetIndex.open(path, BASE_OFFSET).lookup(47) == OffsetPosition(BASE_OFFSET, 0)


def test_lookup_many(rng: random.Random) -> None:
    """As `lookup` says one by one: in sound indexes of all sizes, in one of zeros; any integers, any order."""
    for size in (0, 1, 2, 1024, 1025, 1026, 5000):
        offsets = np.cumsum(np.array([rng.randrange(1, 9) for _ in range(size)], np.int64))
        for content in (stored(list(zip(offsets.tolist(), range(size), strict=True))), bytes(8 * size)):
            index = OffsetIndex.from_bytes(content, BASE_OFFSET)
            targets = [rng.randrange(BASE_OFFSET - 2, BASE_OFFSET + 5 * size + 9) for _ in range(1000)]
            for asked in (targets, sorted(targets), targets[:3]):
                expected = [index.lookup(target) for target in asked]
                for integers in (np.int64, np.int32):
                    found = index.lookup_many(np.array(asked, integers))
                    assert [OffsetPosition(*entry) for entry in found.tolist()] == expected
    index.resize(index.length + 8)
    index.append(BASE_OFFSET + 2**30, 7)
    assert index.lookup_many(np.full(9000, BASE_OFFSET + 2**30))["position"].tolist() == [7] * 9000
    with pytest.raises(TypeError):
        index.lookup_many(np.array([1.5]))


def test_trace() -> None:
    index = OffsetIndex.from_bytes(stored([(number, 100 * number) for number in range(13 * 512)]), 0)
    assert index.trace(13 * 512 - 1).pages == (10, 11, 12)
    assert index.trace(100, by_value=True, upper=True).slot == 1
    assert index.trace(0).entries[:2] == (13 * 512 - 1 - search_kernel.WARM_BYTES // 8, 0)
