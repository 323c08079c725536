"""Converts what producers did and leader epochs from arrays of the library to rows of the catalog, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kidxlib.catalog.matching import Flags, Values, lengths_of, runs
from kidxlib.catalog.partitions import EVENT_KINDS
from kidxlib.catalog.rows import PARTITION_KEY, SEGMENT_KEY, rows_of_kind
from kidxlib.catalog.segments import LeaderEpochEntry
from kidxlib.indexing.source import SourceLog
from kidxlib.records.arrow_columns import flags_array
from kidxlib.recovery.partition_fold import NO_EVENTS
from kidxlib.recovery.scan.scan_state import LEADER_EPOCH, PRODUCER_EVENT

_ROWS_PER_ARROW_BATCH: Final = 50_000
#: The `position` of a row that stands for a segment, and not for an event.
_OF_SEGMENT: Final = -1
_FIELDS: Final = tuple(name for name in PRODUCER_EVENT.names or () if name not in ("kind", "timestamp"))


def event_batches(
    segments: Sequence[SourceLog], counts: Sequence[int], events: NDArray[np.void], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The events of segments, an array of dtype `scan_state.PRODUCER_EVENT`, as rows of `schema` with `event` set.
    `counts` are how many each segment has, in the order of the events.
    """
    if not len(events):
        return
    segment_of = np.repeat(np.arange(len(segments)), counts)
    keys: dict[str, Values] = {
        "source": pa.array([segment.source for segment in segments], pa.string()),
        "topic": pa.array([segment.topic_partition.topic for segment in segments], pa.string()),
        "partition": pa.array([segment.topic_partition.partition for segment in segments]),
        "base_offset": pa.array([segment.base_offset for segment in segments]),
    }
    for start in range(0, len(events), _ROWS_PER_ARROW_BATCH):
        rows = slice(start, start + _ROWS_PER_ARROW_BATCH)
        part, of_part = events[rows], pa.array(segment_of[rows])
        columns = {
            **{name: values.take(of_part) for name, values in keys.items()},
            "kind": EVENT_KINDS.take(pa.array(part["kind"])),
            "timestamp_ms": pa.array(part["timestamp"]),
            **{name: pa.array(np.ascontiguousarray(part[name])) for name in _FIELDS},
        }
        yield rows_of_kind("event", columns, len(part), schema)


def segment_rows(segments: pa.Table, schema: pa.Schema) -> pa.Table:
    """One row for each segment, which is sorted before the rows of the segment's events.

    Args:
        segments: their keys, and all columns of a segment that the schema has.
        schema: by `segments_with_events`.
    """
    return _filled(segments, schema, "segment", pa.repeat(_OF_SEGMENT, segments.num_rows))


def event_rows(events: pa.Table, schema: pa.Schema) -> pa.Table:
    """One row for each event, which is sorted after the row of its segment.

    Args:
        events: of `producer_events`.
        schema: by `segments_with_events`.
    """
    return _filled(events, schema, "event", events["position"])


def _filled(rows: pa.Table, schema: pa.Schema, kind: str, positions: Values) -> pa.Table:
    inside = schema.field(kind).type
    struct = pa.StructArray.from_arrays(
        [rows[field.name].combine_chunks().cast(field.type) for field in inside], fields=list(inside)
    )
    columns = {name: rows[name] for name in SEGMENT_KEY} | {"position": positions, kind: struct}
    nothing = pa.nulls(rows.num_rows)
    return pa.table([columns.get(field.name, nothing).cast(field.type) for field in schema], schema=schema)


def _to_events(rows: pa.Array[pa.StructScalar]) -> NDArray[np.void]:
    """Structs with the columns of `producer_events`, without its key, as an array of `scan_state.PRODUCER_EVENT`."""
    assert isinstance(rows, pa.StructArray)
    events = np.empty(len(rows), PRODUCER_EVENT)
    columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    for name in _FIELDS:
        events[name] = columns[name].to_numpy(zero_copy_only=False)
    events["timestamp"] = columns["timestamp_ms"].to_numpy(zero_copy_only=False)
    events["kind"] = pc.index_in(columns["kind"], EVENT_KINDS).to_numpy(zero_copy_only=False)
    return events


def plain_runs(
    batches: Iterator[pa.RecordBatch], is_plain: Callable[[Values], Flags]
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """Divide rows of segments and their producer events (`segments_with_events`) into runs, plain or not, in their
    order. A plain run has rows of segments of one partition, which `is_plain` by the column `segment` and have no
    events. The last row of a batch is never plain, as its events may follow.
    """
    for batch in batches:
        position = batch.column("position").to_numpy()
        plain = is_plain(batch.column("segment")) & (position == _OF_SEGMENT)
        plain &= np.append(position[1:] == _OF_SEGMENT, False)
        columns = [*(batch.column(name) for name in PARTITION_KEY), flags_array(plain)]
        for start, end in runs(columns):
            yield bool(plain[start]), batch.slice(start, end - start)


def with_events(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[dict[str, Any], NDArray[np.void]]]:
    """Each segment's row (its `position` is −1), with the events of the rows that follow it."""
    head: dict[str, Any] | None = None
    events: list[NDArray[np.void]] = []
    for batch in batches:
        is_head = batch.column("position").to_numpy() == _OF_SEGMENT
        start = 0
        for place, next_head in zip(np.flatnonzero(is_head).tolist(), batch.filter(is_head).to_pylist(), strict=True):
            events += _events(batch, start, place)
            if head is not None:
                yield head, _all(events)
            head, events, start = next_head, [], place + 1
        events += _events(batch, start, len(batch))
    if head is not None:
        yield head, _all(events)


def _events(batch: pa.RecordBatch, start: int, end: int) -> list[NDArray[np.void]]:
    return [_to_events(batch.column("event").slice(start, end - start))] if start < end else []


def _all(events: list[NDArray[np.void]]) -> NDArray[np.void]:
    return np.concatenate(events) if events else NO_EVENTS


def to_leader_epochs(rows: Sequence[LeaderEpochEntry] | None) -> NDArray[np.void]:
    """A value of the column `leader_epochs` as an array of `scan_state.LEADER_EPOCH`."""
    epochs = [(epoch["epoch"], epoch["start_offset"], epoch["position"]) for epoch in rows or ()]
    return np.array(epochs, LEADER_EPOCH)


def leader_epoch_columns(lists: Values) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """A column `leader_epochs` as one array of `scan_state.LEADER_EPOCH`; and where those of each row begin in it, and
    where the last ones end.
    """
    entries: Values = lists.flatten()
    epochs = np.empty(len(entries), LEADER_EPOCH)
    for name in LEADER_EPOCH.names or ():
        epochs[name] = entries.field(name).to_numpy()
    return epochs, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_of(lists))])


def from_leader_epochs(leader_epochs: NDArray[np.void]) -> list[LeaderEpochEntry]:
    """The value of the column `leader_epochs`, from an array of `scan_state.LEADER_EPOCH`."""
    return [
        {"epoch": epoch, "start_offset": start_offset, "position": position}
        for epoch, start_offset, position in leader_epochs.tolist()
    ]
