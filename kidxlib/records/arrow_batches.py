"""The batches of a log as Arrow tables: their columns, and a row for each header. Names and numbers are as in
`kidxlib.records.arrow_columns`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kidxlib.format import layouts
from kidxlib.records.arrow_columns import (
    attribute_flags,
    flags_array,
    numbers_array,
    sequence_numbers,
    timestamp_type_ids,
    timestamp_types,
    words_array,
)

_BATCH_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("segment_base_offset", pa.int64(), nullable=False),
    pa.field("position", pa.int64(), nullable=False),  # of the batch in the segment's log, in bytes
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("magic", pa.int8(), nullable=False),
    pa.field("base_offset", pa.int64()),  # null for a compressed message of magic 0 or 1, which has it inside
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
    pa.field("delete_horizon_ms", pa.int64()),  # null: compaction has set none
    pa.field("crc", pa.uint32(), nullable=False),
]
BATCHES: Final = pa.schema(_BATCH_FIELDS)

#: Batches of a log dir: also with their partitions, and the raw fields of their headers.
_LISTED_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    *_BATCH_FIELDS,
    pa.field("attributes", pa.int16(), nullable=False),  # all bits; a byte in magic 0 and 1
    pa.field("crc_is_right", pa.bool_(), nullable=False),
]
LISTED_BATCHES: Final = pa.schema(_LISTED_FIELDS)

#: Columns that are copied from fields of `BATCH` with other names.
_IN_HEADER: Final = {"bytes": "size", "max_timestamp_ms": "max_timestamp", "leader_epoch": "partition_leader_epoch"}


def batch_rows(
    segment_base_offset: int, batches: NDArray[np.void], schema: pa.Schema = BATCHES, place: tuple[str, int] = ("", 0)
) -> pa.RecordBatch:
    """Arrow rows for the batches (of dtype `BATCH`) of one segment, with columns of `LISTED_BATCHES`. `place` is the
    topic and the partition.
    """
    topic, partition = place
    codecs = batches["attributes"] & layouts.ATTRIBUTE_CODEC
    is_told = (batches["magic"] >= layouts.MAGIC_V2) | (codecs == layouts.CODEC_NONE)
    has_horizon = attribute_flags(batches, layouts.ATTRIBUTE_DELETE_HORIZON)
    columns = {
        "topic": words_array([topic], np.zeros(len(batches), np.int32)),
        "partition": numbers_array(pa.int32(), np.full(len(batches), partition)),
        "segment_base_offset": numbers_array(pa.int64(), np.full(len(batches), segment_base_offset)),
        "base_offset": numbers_array(pa.int64(), batches["offset_field"], is_told),
        "records": numbers_array(pa.int32(), batches["records_count"], is_told),
        "timestamp_type": timestamp_types(timestamp_type_ids(batches)),
        "codec": words_array(layouts.CODECS, codecs),
        "last_sequence": sequence_numbers(batches["base_sequence"], batches["last_offset"] - batches["offset_field"]),
        "transactional": flags_array(attribute_flags(batches, layouts.ATTRIBUTE_TRANSACTIONAL)),
        "control": flags_array(attribute_flags(batches, layouts.ATTRIBUTE_CONTROL)),
        "delete_horizon_ms": numbers_array(pa.int64(), batches["base_timestamp"], has_horizon),
        "crc_is_right": flags_array(batches["crc_is_right"] == 1),
    }
    for field in schema:
        if field.name not in columns:
            columns[field.name] = numbers_array(field.type, batches[_IN_HEADER.get(field.name, field.name)])
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
