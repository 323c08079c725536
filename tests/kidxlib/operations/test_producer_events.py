"""Events of producers and leader epochs come back from the catalog's rows as they were."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib.catalog.results import SCANNED, TO_FINISH
from kidxlib.catalog.rows import SEGMENT_KEY
from kidxlib.operations.producer_events import event_batches, from_leader_epochs, to_leader_epochs, with_events
from kidxlib.recovery.partition_fold import NO_EVENTS
from kidxlib.recovery.scan.scan_state import LEADER_EPOCH, PRODUCER_EVENT, EventKind
from tests.conftest import one_in
from tests.support.plans import listed_segment

_NUMBERS: Final = {"i4": st.integers(-(2**31), 2**31 - 1), "i8": st.integers(-(2**63), 2**63 - 1)}


def records(dtype: np.dtype[np.void]) -> st.SearchStrategy[NDArray[np.void]]:
    """Arrays with any numbers that their fields hold; a kind is one that there is, and a position is not negative."""
    special = {"kind": st.sampled_from(list(map(int, EventKind))), "position": st.integers(0, 2**63 - 1)}
    fields = [special.get(name, _NUMBERS[dtype[name].str[1:]]) for name in dtype.names or ()]
    return st.lists(st.tuples(*fields), max_size=4).map(lambda rows: np.array(rows, dtype))


@one_in(10)
@given(of_segments=st.lists(records(PRODUCER_EVENT), max_size=4), rows_per_batch=st.integers(1, 5))
def test_each_segment_gets_its_events(of_segments: list[NDArray[np.void]], rows_per_batch: int) -> None:
    """Rows as the catalog gives them, in batches that end anywhere."""
    segments = [listed_segment(base_offset, "p", None) for base_offset in range(len(of_segments))]
    keys: list[dict[str, Any]] = [
        dict(zip(SEGMENT_KEY, ("s", "t", 3, segment.base_offset), strict=True)) for segment in segments
    ]
    events_of: dict[int, list[dict[str, Any]]] = {segment.base_offset: [] for segment in segments}
    counts = [len(events) for events in of_segments]
    for batch in event_batches(segments, counts, np.concatenate([NO_EVENTS, *of_segments]), SCANNED):
        found_rows: list[Any] = batch.column("event").to_pylist()
        for row in found_rows:
            key = {name: row.pop(name) for name in SEGMENT_KEY}
            assert key == keys[key["base_offset"]]
            events_of[key["base_offset"]].append({**key, "position": row["position"], "event": row})
    rows = []
    for key in keys:
        rows += [{**key, "position": -1, "segment": {"status": "ok"}}, *events_of[key["base_offset"]]]
    table = pa.Table.from_pylist(rows, TO_FINISH)
    found = list(with_events(iter(table.to_batches(max_chunksize=rows_per_batch))))
    assert [head["base_offset"] for head, _ in found] == list(range(len(of_segments)))
    for (_, events), expected in zip(found, of_segments, strict=True):
        assert events.dtype == PRODUCER_EVENT and events.tolist() == expected.tolist()


@given(epochs=records(LEADER_EPOCH))
def test_leader_epochs_come_back(epochs: NDArray[Any]) -> None:
    assert to_leader_epochs(from_leader_epochs(epochs)).tolist() == epochs.tolist()
    assert len(to_leader_epochs(None)) == 0
