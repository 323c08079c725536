"""Producer events between the arrays of the library and the rows of the table `producer_events`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.common.tables import SCANNED_ARROW_SCHEMA
from kidxlib.build import BuiltSegment
from kidxlib.fold import NO_EVENTS
from kidxlib.kernels import PRODUCER_EVENT, EventKind

_ROWS_PER_ARROW_BATCH: Final = 50_000
#: How the table calls each kind, by its number.
_KINDS: Final = pa.array([kind.name.lower().replace("_", "-") for kind in sorted(EventKind)])
_FIELDS: Final = tuple(name for name in PRODUCER_EVENT.names or () if name not in ("kind", "timestamp"))


def event_batches(built: BuiltSegment) -> Iterator[pa.RecordBatch]:
    """The events of a segment as rows of `SCANNED_SCHEMA`."""
    events = built.recovered.producer_events if built.recovered else NO_EVENTS
    segment = built.task.segment
    event_type, segment_type = SCANNED_ARROW_SCHEMA.field("event").type, SCANNED_ARROW_SCHEMA.field("segment").type
    for start in range(0, len(events), _ROWS_PER_ARROW_BATCH):
        part = events[start : start + _ROWS_PER_ARROW_BATCH]
        columns = {
            "source": pa.repeat(segment.source, len(part)),
            "topic": pa.repeat(segment.topic_partition.topic, len(part)),
            "partition": pa.repeat(segment.topic_partition.partition, len(part)),
            "base_offset": pa.repeat(segment.base_offset, len(part)),
            "kind": _KINDS.take(pa.array(part["kind"])),
            "timestamp_ms": pa.array(part["timestamp"]),
            **{name: pa.array(np.ascontiguousarray(part[name])) for name in _FIELDS},
        }
        arrays = [columns[field.name].cast(field.type) for field in event_type]
        struct = pa.StructArray.from_arrays(arrays, fields=list(event_type))
        yield pa.RecordBatch.from_arrays([pa.nulls(len(part), segment_type), struct], schema=SCANNED_ARROW_SCHEMA)


def to_events(rows: pa.Array[pa.StructScalar]) -> NDArray[np.void]:
    """Rows of the table (structs), without its key, as an array of `kernels.PRODUCER_EVENT`."""
    assert isinstance(rows, pa.StructArray)
    events = np.empty(len(rows), PRODUCER_EVENT)
    columns = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    for name in _FIELDS:
        events[name] = columns[name].to_numpy(zero_copy_only=False)
    events["timestamp"] = columns["timestamp_ms"].to_numpy(zero_copy_only=False)
    events["kind"] = pc.index_in(columns["kind"], _KINDS).to_numpy(zero_copy_only=False)
    return events
