"""Plain segments that are folded together give what each of them gives by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.recovery.partition_fold import FoldState, PartitionFold, PlainSegments, StateSource
from kidxlib.recovery.producers import Producers
from kidxlib.recovery.scan.scan_state import LEADER_EPOCH

#: The epochs, and the starts of them, of a segment.
_EPOCHS = st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 60)), max_size=3)


@st.composite
def _plain(draw: st.DrawFn) -> PlainSegments:
    """Segments with gaps between some of them."""
    steps = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 0, 2]), _EPOCHS), min_size=1, max_size=8))
    base_offsets = np.cumsum([0, *(records + gap for records, gap, _ in steps[:-1])])
    next_offsets = base_offsets + [records for records, _, _ in steps]
    epochs = [(*epoch, position) for _, _, of_segment in steps for position, epoch in enumerate(of_segment)]
    return PlainSegments(
        base_offsets=base_offsets,
        next_offsets=next_offsets,
        map_end_offsets=next_offsets - draw(st.integers(0, 1)),
        leader_epochs=np.array(epochs, LEADER_EPOCH),
        epoch_bounds=np.cumsum([0, *(len(of_segment) for _, _, of_segment in steps)]),
    )


@st.composite
def _start(draw: st.DrawFn) -> FoldState | None:
    if draw(st.booleans()):
        return None
    return FoldState(
        base_offset=0,
        source=draw(st.sampled_from(StateSource)),
        expected_offset=draw(st.sampled_from([None, 0, 1])),
        map_end_offset=0,
        epochs_are_known=draw(st.booleans()),
        snapshot=Producers().snapshot(),
        leader_epochs=(EpochEntry(draw(st.integers(0, 3)), 0),),
    )


@given(
    segments=_plain(),
    start=_start(),
    snapshots=st.dictionaries(st.integers(0, 20), st.sampled_from([Producers().snapshot(), b"torn"])),
    recovered=st.frozensets(st.integers(0, 20), max_size=2),
    cut=st.integers(0, 8),
)
def test_plain_segments_fold_as_one_by_one(
    segments: PlainSegments, start: FoldState | None, snapshots: dict[int, bytes], recovered: frozenset[int], cut: int
) -> None:
    def results(fold: PartitionFold, sources: list[StateSource]) -> Any:
        return sources, fold.state, fold.leader_epochs.entries, fold.epochs_are_known, fold.end_source

    one_by_one = PartitionFold(snapshots.get, start, recovered)
    folded = [one_by_one.add(segments.segment(number)) for number in range(len(segments))]
    assert all(segment.failure is None and not len(segment.aborted) for segment in folded)
    together, sources = PartitionFold(snapshots.get, start, recovered), list[StateSource]()
    cut = min(cut, len(segments))
    for part in (segments.part(0, cut), segments.part(cut, len(segments))):
        if len(part):
            sources += together.add_plain(part)
    assert results(together, sources) == results(one_by_one, [segment.state_source for segment in folded])
