"""What consumers get of remote segments, against a broker that is asked for each offset by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import RemoteLogMetadataError
from kidxlib.log.remote.visible import EpochRead, VisibleOffsets, visible_offsets

_OFFSETS = 40


def _broker(reads: Sequence[EpochRead]) -> dict[int, str]:
    """The segment that a broker gives for each offset: it asks for the offset's epoch, and then for the last segment of
    that epoch that begins at the offset or before it.
    """
    found = {}
    for offset in range(_OFFSETS):
        begun = [read.epoch for read in reads if min(_starts(reads, read.epoch)) <= offset]
        if not begun:
            continue
        of_epoch = [read for read in reads if read.epoch == max(begun) and read.start_offset <= offset]
        floor = max(of_epoch, key=lambda read: read.start_offset)
        if offset <= floor.end_offset:
            found[offset] = floor.segment_id
    return found


def _starts(reads: Sequence[EpochRead], epoch: int) -> list[int]:
    return [read.start_offset for read in reads if read.epoch == epoch]


@st.composite
def _reads(draw: st.DrawFn) -> list[EpochRead]:
    """Segments of up to three epochs; of an epoch no two begin at one offset, as the metadata keeps one."""
    reads: dict[tuple[int, int], EpochRead] = {}
    for number in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, _OFFSETS - 2))
        end = draw(st.integers(start, _OFFSETS - 1))
        epoch = draw(st.integers(0, 2))
        middle = draw(st.one_of(st.none(), st.integers(start + 1, end))) if end > start else None
        pieces = [(epoch, start, end)] if middle is None else [(epoch, start, middle - 1), (epoch + 1, middle, end)]
        for of_epoch, first, last in pieces:
            reads[of_epoch, first] = EpochRead(f"s{number}", of_epoch, first, last)
    return sorted(reads.values(), key=lambda read: (read.epoch, read.start_offset))


@given(_reads())
def test_each_offset_is_visible_in_the_segment_that_a_broker_gives(reads: list[EpochRead]) -> None:
    by_broker = _broker(reads)
    try:
        visible = visible_offsets(reads)
    except RemoteLogMetadataError:
        of_segments = [[o for o, of in by_broker.items() if of == each] for each in set(by_broker.values())]
        assert any(max(each) - min(each) >= len(each) for each in of_segments), "none has a gap"
        return
    ours = {o: each for each, of in visible.items() for o in range(of.first_offset, of.last_offset + 1)}
    assert ours == by_broker
    for each, of in visible.items():
        own = [read for read in reads if read.segment_id == each]
        first, last = min(read.start_offset for read in own), max(read.end_offset for read in own)
        assert of.is_whole == ((first, last) == (of.first_offset, of.last_offset))


def test_a_later_leader_ends_an_epoch() -> None:
    reads = [EpochRead("a", 0, 0, 9), EpochRead("b", 0, 10, 19), EpochRead("c", 1, 15, 29)]
    assert visible_offsets(reads) == {
        "a": VisibleOffsets(0, 9, True),
        "b": VisibleOffsets(10, 14, False),
        "c": VisibleOffsets(15, 29, True),
    }
    assert visible_offsets([]) == {}


def test_a_segment_that_consumers_get_around_another_is_refused() -> None:
    reads = [EpochRead("a", 0, 0, 4), EpochRead("b", 0, 5, 7), EpochRead("a", 1, 8, 9)]
    with pytest.raises(RemoteLogMetadataError, match="a: consumers get offsets up to 4 of it and from 8 on"):
        visible_offsets(reads)
