"""The rows that workers give of partitions that they have planned: what is to be done, and sums by partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kidxlib.build.changes import RELISTED
from kidxlib.build.comparison.missing import KEYS
from kidxlib.build.listed import TO_READ
from kidxlib.catalog.segment_key import PARTITION_KEY
from kidxlib.catalog.segments import SEGMENTS, FillableFacts

#: A partition.
PARTITION: Final = pa.schema(
    [
        TO_READ.field("listed_partition"),
        pa.field("topic_id", pa.string()),
        pa.field("why_unlistable", pa.string()),  # null of one that was listed
        pa.field("segments", pa.int64()),
        pa.field("log_bytes", pa.int64()),
        pa.field("is_to_finish", pa.bool_()),
        # As in `PartitionChange`, of one that is to be finished.
        pa.field("first_present", pa.int64()),
        pa.field("changed_from", pa.int64()),
    ]
)
#: Some partitions together: their unchanged segments, and of how many of these each fact is not known.
SUMS: Final = pa.schema(
    [pa.field(name, pa.int64()) for name in ("unchanged", "unchanged_bytes", *FillableFacts.names())]
)
#: A partition of which no segment is left, and how many are missing.
EMPTIED: Final = SEGMENTS.schema(PARTITION_KEY).append(pa.field("segments", pa.int64()))
#: What was no segment: how many entries of a kind; and those by their paths that nobody expects there.
UNEXPECTED: Final = pa.schema([pa.field("path", pa.string()), pa.field("reason", pa.string())])
SKIPPED: Final = pa.schema([pa.field("reason", pa.string())]).append(pa.field("entries", pa.int64()))
WARNING: Final = pa.schema([pa.field("text", pa.string())])

_KINDS: Final = {
    "to_read": TO_READ,
    "relisted": RELISTED,
    "gone": KEYS,
    "missing_at_end": KEYS,
    "emptied": EMPTIED,
    "partition": PARTITION,
    "sums": SUMS,
    "skipped": SKIPPED,
    "unexpected": UNEXPECTED,
    "warning": WARNING,
}
#: Each row is of one kind, whose column is filled.
PLANNED_PARTITIONS: Final = pa.schema(
    [
        pa.field(kind, pa.struct([pa.field(field.name, field.type) for field in schema]))
        for kind, schema in _KINDS.items()
    ]
)


def rows_of(kind: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of one kind as rows of `PLANNED_PARTITIONS`.

    Args:
        rows: in the kind's own schema.
    """
    inside = PLANNED_PARTITIONS.field(kind).type
    for batch in rows.combine_chunks().to_batches():
        struct = pa.StructArray.from_arrays(batch.columns, fields=list(inside))
        filled = [struct if field.name == kind else pa.nulls(len(batch), field.type) for field in PLANNED_PARTITIONS]
        yield pa.RecordBatch.from_arrays(filled, schema=PLANNED_PARTITIONS)
