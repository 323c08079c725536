"""The columns of a table of records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from kidxlib.errors import UsageError

HEADER: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.string(), nullable=False),
    pa.field("value", pa.binary()),
]
HEADERS: Final = pa.list_(pa.struct(HEADER))
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp_ms", pa.int64(), nullable=False),
    pa.field("timestamp_type", pa.string(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS, nullable=False),
    pa.field("leader_epoch", pa.int32(), nullable=False),
    pa.field("producer_id", pa.int64(), nullable=False),
    pa.field("producer_epoch", pa.int16(), nullable=False),
    pa.field("sequence", pa.int32(), nullable=False),
    pa.field("transactional", pa.bool_(), nullable=False),
    pa.field("control", pa.bool_(), nullable=False),
    pa.field("control_type", pa.string()),  # COMMIT, ABORT, …; null of others, and of types that Kafka does not know
    pa.field("segment_base_offset", pa.int64(), nullable=False),
    pa.field("batch_position", pa.int64(), nullable=False),
]
RECORDS: Final = pa.schema(_FIELDS)
#: Records as a consumer gets them, with the columns of Spark's Kafka source, in its order.
_CONSUMED_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("timestampType", pa.int32(), nullable=False),  # ids: −1 none, 0 CreateTime, 1 LogAppendTime
    pa.field("headers", HEADERS),  # null where there are none, as Spark has it
]
CONSUMED: Final = pa.schema(_CONSUMED_FIELDS)


def records_schema(columns: Iterable[str] | None) -> pa.Schema:
    """The schema of records with some columns; None for all.

    Raises:
        UsageError: a column is none of records, or is named twice.
    """
    names = RECORDS.names if columns is None else list(columns)
    for name in names:
        if name not in RECORDS.names or names.count(name) > 1:
            raise UsageError(f"column {name!r}: expected each of these once at most: {', '.join(RECORDS.names)}")
    return pa.schema([RECORDS.field(name) for name in names])
