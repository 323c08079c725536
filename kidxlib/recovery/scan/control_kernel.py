"""How the scan reads the control batch of a producer."""

from __future__ import annotations

from typing import Final

import numpy as np

from kidxlib.format import layouts as formats
from kidxlib.format.batch_header import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    BATCH_V2_BYTES_MIN,
    V2_ATTRIBUTES_AT,
    V2_BASE_TIMESTAMP_AT,
    V2_MAX_TIMESTAMP_AT,
    V2_RECORDS_COUNT_AT,
)
from kidxlib.format.varint import TOO_LONG, int16, int32, int64, skip_bytes, skip_headers, varint, varlong
from kidxlib.jit.compiler import njit
from kidxlib.recovery.scan.scan_events import EventKind
from kidxlib.recovery.scan.scan_state import EndReason

#: The largest control batch of a producer that is read; Kafka's have 78 bytes.
CONTROL_BATCH_BYTES_MAX: Final = 64 * 1024


@njit
def read_control_batch(data, batch, batch_end):
    """What the control batch of a producer says, as `ProducerAppendInfo.append` reads it: its first record.

    Returns:
        An `EventKind`, or minus the `EndReason` that it is; the coordinator epoch; the record's timestamp.
    """
    invalid = np.int64(-EndReason.INVALID_CONTROL_RECORD), np.int64(-1), np.int64(-1)
    malformed = np.int64(-EndReason.MALFORMED_CONTROL_RECORD), np.int64(-1), np.int64(-1)
    count = int32(data, batch + V2_RECORDS_COUNT_AT)
    attributes = np.int64(data[batch + V2_ATTRIBUTES_AT + 1])
    if count == 0:
        return np.int64(EventKind.EMPTY_CONTROL), np.int64(-1), np.int64(-1)
    if attributes & ATTRIBUTE_CODEC:
        return np.int64(-EndReason.COMPRESSED_CONTROL_BATCH), np.int64(-1), np.int64(-1)
    if batch_end - batch > CONTROL_BATCH_BYTES_MAX:
        return np.int64(-EndReason.CONTROL_BATCH_TOO_LARGE), np.int64(-1), np.int64(-1)
    if count < 0:
        return invalid

    # DefaultRecord.readFrom
    size, start = varint(data, batch + BATCH_V2_BYTES_MIN, batch_end)
    if start == TOO_LONG:
        return malformed
    if start < 0 or size > batch_end - start or start >= batch_end:
        return invalid
    timestamp_delta, at = varlong(data, start + 1, batch_end)
    if at < 0:
        return invalid
    _, at = varint(data, at, batch_end)  # offset delta
    if at < 0:
        return invalid
    key_bytes, key, at = skip_bytes(data, at, batch_end)
    if at < 0:
        return invalid
    value_bytes, value, at = skip_bytes(data, at, batch_end)
    if at < 0:
        return invalid
    at = skip_headers(data, at, batch_end)
    if at < 0:
        return invalid
    if at - start != size or (count == 1 and at != batch_end):
        return invalid

    # EndTransactionMarker.deserialize
    if key_bytes < 0:
        return malformed
    if key_bytes < formats.CONTROL_KEY_BYTES or int16(data, key) < 0:
        return invalid
    control_type = int16(data, key + 2)
    if control_type != formats.CONTROL_TYPE_ABORT and control_type != formats.CONTROL_TYPE_COMMIT:
        return np.int64(-EndReason.UNKNOWN_CONTROL_TYPE), np.int64(control_type), np.int64(-1)
    if value_bytes < 2:
        return malformed
    if int16(data, value) < 0:
        return invalid
    if value_bytes < formats.MARKER_VALUE_BYTES:
        return malformed
    if attributes & ATTRIBUTE_LOG_APPEND_TIME:
        timestamp = int64(data, batch + V2_MAX_TIMESTAMP_AT)
    else:
        timestamp = int64(data, batch + V2_BASE_TIMESTAMP_AT) + timestamp_delta
    kind = EventKind.ABORT if control_type == formats.CONTROL_TYPE_ABORT else EventKind.COMMIT
    return np.int64(kind), np.int64(int32(data, value + 2)), timestamp
