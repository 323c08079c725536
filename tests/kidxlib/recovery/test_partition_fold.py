"""Plain segments that are folded together give what each of them gives by itself. Producers go on from a snapshot as if
they had never stopped.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib.format.checkpoint_files import EpochEntry
from kidxlib.recovery.outcome import Status
from kidxlib.recovery.partition_fold import FoldState, PartitionFold, PlainSegments, Producers, StateSource
from kidxlib.recovery.recover import recover
from kidxlib.recovery.scan.scan_state import LEADER_EPOCH, PRODUCER_EVENT, EventKind
from kidxlib.storage.log_bytes import WholeLog
from tests.support.logs import golden
from tests.support.logs.snapshots import Producer, producers_in

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


def event(kind: EventKind, producer_id: int, offset: int) -> tuple[int, ...]:
    sequence, coordinator_epoch = (-1, 5) if kind in (EventKind.COMMIT, EventKind.ABORT) else (offset % 7, -1)
    return offset * 100, producer_id, kind, 0, offset, offset + 1, 1, sequence, 1_000 + offset, coordinator_epoch


@st.composite
def histories(draw: st.DrawFn) -> NDArray[np.void]:
    """Transactions of some producers one after the other and side by side, some of them left open."""
    open_, events = set[int](), []
    for number, producer_id in enumerate(draw(st.lists(st.integers(1, 4), max_size=25))):
        kinds = [EventKind.TRANSACTIONAL_DATA]
        kinds += [EventKind.COMMIT, EventKind.ABORT] if producer_id in open_ else [EventKind.DATA]
        kind = draw(st.sampled_from(kinds))
        events.append(event(kind, producer_id, 2 * number))
        (open_.add if kind is EventKind.TRANSACTIONAL_DATA else open_.discard)(producer_id)
    return np.array(events, PRODUCER_EVENT)


@given(histories(), st.integers(0, 25))
def test_a_snapshot_on_the_way_changes_nothing(events: NDArray[np.void], cut: int) -> None:
    """In one go, or from the snapshot of a part: the same producers, open transactions and aborted ones."""
    whole, first = Producers(), Producers()
    expected = whole.apply(events)
    before = first.apply(events[:cut])
    second = Producers.from_snapshot(first.snapshot())
    after = second.apply(events[cut:])
    assert expected.failure is before.failure is after.failure is None
    assert second.snapshot() == whole.snapshot()
    assert sorted(second.ongoing) == sorted(whole.ongoing)
    fields = ["producer_id", "first_offset", "last_offset"]  # the last stable offset needs all that is open
    aborted = np.concatenate([before.aborted, after.aborted])
    assert aborted[fields].tolist() == expected.aborted[fields].tolist()


def test_kafkas_snapshots_come_of_the_segments_before_them() -> None:
    segments, compared, producers = golden.committed(), 0, Producers()
    for before, after in itertools.pairwise(segments):
        if before.base_offset == 0:
            producers = Producers()
        recovered = recover(WholeLog(np.fromfile(before.log, np.uint8)), before.base_offset, before.options)
        producers.apply(recovered.producer_events)
        if before.log.parent == after.log.parent and after.snapshot is not None:
            assert producers_in(producers.snapshot()) == producers_in(after.snapshot), after.name
            compared += bool(producers_in(after.snapshot))
    assert compared > 3


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ((EventKind.TRANSACTIONAL_DATA, EventKind.DATA), "non-transactional-in-transaction"),
        ((EventKind.TRANSACTIONAL_DATA, EventKind.TRANSACTIONAL_DATA, EventKind.COMMIT), None),
        ((EventKind.COMMIT, EventKind.ABORT), None),
    ],
)
def test_where_kafka_fails(kinds: tuple[EventKind, ...], reason: str | None) -> None:
    events = np.array([event(kind, 7, 2 * number) for number, kind in enumerate(kinds)], PRODUCER_EVENT)
    failure = Producers().apply(events).failure
    assert (failure and failure.reason) == reason
    if failure is not None:
        assert (failure.status, failure.position) == (Status.QUARANTINED, 200)


def test_a_producer_of_which_only_a_marker_is_known() -> None:
    """As Kafka's `ProducerStateEntry.empty` has it: no batch, and an offset delta of 0."""
    producers = Producers()
    producers.apply(np.array([event(EventKind.COMMIT, 7, 2)], PRODUCER_EVENT))
    assert producers_in(producers.snapshot()) == {
        Producer(
            producer_id=7,
            producer_epoch=0,
            last_sequence=-1,
            last_offset=-1,
            offset_delta=0,
            timestamp=1_002,
            coordinator_epoch=5,
            current_transaction_first_offset=-1,
        )
    }
