"""The columns of answers to seeks."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

#: What is asked for: the batch that holds an offset, or the first record of a time.
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"

#: The columns of a result, in this order.
RESULT_COLUMNS: Final = (
    "topic",
    "partition",
    "query",
    "target",
    "found",
    "answered",
    "segment_base_offset",
    "position",
    "batch_base_offset",
    "offset",
    "timestamp",
    "leader_epoch",
    "bytes_read",
    "note",
    "source",
)

#: What is said of a question.
_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("found", pa.bool_(), nullable=False),
    pa.field("answered", pa.bool_(), nullable=False),  # false: files do not let it be said for certain
    pa.field("segment_base_offset", pa.int64()),
    pa.field("position", pa.int64()),
    pa.field("batch_base_offset", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.int64()),
    pa.field("leader_epoch", pa.int32()),
    pa.field("bytes_read", pa.int64(), nullable=False),
    pa.field("note", pa.string()),
    pa.field("file_error", pa.bool_(), nullable=False),  # the note is about a file that is not as it should be
]
ANSWER: Final = pa.schema(_FIELDS)
NUMBERS: Final = {field.name: field.type for field in _FIELDS if pa.types.is_integer(field.type)}
