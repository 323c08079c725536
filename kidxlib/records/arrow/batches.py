"""The batches of a log as an Arrow table, a row for each, of what its header says.

The names of the columns are those of `kidx dump --json`. Numbers stand as Kafka stores them, so −1 is none; a column of
whole numbers stays one in pandas.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from kidxlib.format import layouts as formats
from kidxlib.java import as_int, incremented_sequence
from kidxlib.records.batch import Batch

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("segment_base_offset", pa.int64(), nullable=False),
    pa.field("position", pa.int64(), nullable=False),  # of its first byte in the segment's log
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("magic", pa.int8(), nullable=False),
    pa.field("base_offset", pa.int64()),  # null of a compressed message of magic 0 or 1: it stands within
    pa.field("last_offset", pa.int64(), nullable=False),
    pa.field("records", pa.int32()),  # null as `base_offset`
    pa.field("timestamp_type", pa.string(), nullable=False),
    pa.field("max_timestamp_ms", pa.int64(), nullable=False),
    pa.field("codec", pa.string(), nullable=False),
    pa.field("leader_epoch", pa.int32(), nullable=False),
    pa.field("producer_id", pa.int64(), nullable=False),
    pa.field("producer_epoch", pa.int16(), nullable=False),
    pa.field("base_sequence", pa.int32(), nullable=False),
    pa.field("last_sequence", pa.int32(), nullable=False),
    pa.field("transactional", pa.bool_(), nullable=False),
    pa.field("control", pa.bool_(), nullable=False),
    pa.field("delete_horizon_ms", pa.int64()),  # null where compaction has set none
    pa.field("crc", pa.uint32(), nullable=False),
]
BATCHES: Final = pa.schema(_FIELDS)


def batch_rows(segment_base_offset: int, batches: Iterable[Batch]) -> pa.RecordBatch:
    """Rows of `BATCHES` for batches of one segment."""
    rows = [_row(segment_base_offset, batch) for batch in batches]
    columns = zip(*rows, strict=True) if rows else [()] * len(_FIELDS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _FIELDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BATCHES)


def timestamp_type(batch: Batch) -> str:
    """Who gave the records of a batch their timestamps, in Kafka's words (`TimestampType`)."""
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def _row(segment_base_offset: int, batch: Batch) -> tuple[Any, ...]:
    return (
        segment_base_offset,
        batch.position,
        batch.size,
        batch.magic,
        None if batch.records_count is None else batch.offset_field,
        batch.last_offset,
        batch.records_count,
        timestamp_type(batch),
        batch.max_timestamp,
        formats.CODECS[batch.codec],
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        _last_sequence(batch),
        batch.is_transactional,
        batch.is_control,
        batch.delete_horizon_ms,
        batch.crc,
    )


def _last_sequence(batch: Batch) -> int:
    if batch.base_sequence == formats.NO_SEQUENCE:
        return formats.NO_SEQUENCE
    return incremented_sequence(batch.base_sequence, as_int(batch.last_offset - batch.offset_field))
