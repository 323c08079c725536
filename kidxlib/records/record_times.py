"""The offsets and timestamps of all records of a batch at once, unless it is too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.records import batch_headers, reader
from kidxlib.records.read_kernel import read_offsets_and_timestamps
from kidxlib.storage.log_bytes import LogBytes

_Longs: TypeAlias = NDArray[np.int64]

#: Decompressed bytes, more than usual batches have. A larger batch is read record by record.
_CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """The records of a batch.

    Attributes:
        offsets, timestamps: of shape (n,).
        complete: these are all records; if not, a malformed one follows.
    """

    base_offset: int
    offsets: _Longs
    timestamps: _Longs
    complete: bool


def read_record_times(log: LogBytes, batch: batch_headers.BatchHeader) -> RecordTimes | None:
    """Offsets and timestamps of the records of a batch; None if it is too large, or its first record is malformed."""
    if not batch.is_v2:
        try:
            pairs = [(record.offset, record.timestamp) for record in reader.records(log, batch)]
        except MalformedRecordsError:
            return None
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return RecordTimes(pairs[0][0], both[:, 0], both[:, 1], True)
    count = batch.records_count or 0
    try:
        content = reader.content(log, batch).take(_CONTENT_BYTES_MAX) if count > 0 else b""
    except MalformedError:
        return None
    if not 0 <= count <= len(content) or len(content) == _CONTENT_BYTES_MAX:
        return None
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    well_formed = read_offsets_and_timestamps(
        np.frombuffer(content, np.uint8),
        count,
        batch.offset_field,
        batch.base_timestamp,
        batch.is_log_append_time,
        batch.max_timestamp,
        offsets,
        timestamps,
    )
    return RecordTimes(batch.offset_field, offsets[:well_formed], timestamps[:well_formed], well_formed == count)
