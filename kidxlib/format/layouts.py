"""Every byte layout of Kafka's that this project reads or writes, once.

All integers are big-endian. A layout is a packed NumPy record type with one field a line, in wire order, so that each
field's position follows from the fields before it.

The first 17 bytes of a v2 batch and of a v0 or v1 message have the same fields (offset, size, magic at byte 16), so one
loop walks all formats. `size` counts the bytes after itself: an entry takes `LOG_OVERHEAD + size` bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import numpy as np

#: The header of a v2 batch (`DefaultRecordBatch`). The CRC-32C covers all from `attributes` to the end of the batch.
BATCH_V2: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)

#: The fixed head of a v1 message (`LegacyRecord`). The CRC-32 covers everything from `magic` to the end of the message.
#: A v0 message is the same without `timestamp`.
MESSAGE_V1: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("crc", ">u4"),
        ("magic", "i1"),
        ("attributes", "i1"),
        ("timestamp", ">i8"),
    ]
)

#: One entry of an `.index` (`OffsetIndex`): the last offset of a batch less the segment's base offset, and the file
#: position in bytes where that batch starts.
OFFSET_INDEX_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])

#: One entry of a `.timeindex` (`TimeIndex`): no batch up to the one that ends at this offset has a larger timestamp
#: (milliseconds since the epoch).
TIME_INDEX_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])

#: One entry of a `.txnindex` (`AbortedTxn`): an aborted transaction's first data offset, the offset of its abort
#: marker, and the last stable offset when the marker was applied.
ABORTED_TRANSACTION: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)

#: The head of a `.snapshot` (`ProducerStateManager.writeSnapshot`); `entries` many `SNAPSHOT_ENTRY` follow. The CRC-32C
#: covers all from `entries` to the end of the file.
SNAPSHOT_HEADER: Final = np.dtype([("version", ">i2"), ("crc", ">u4"), ("entries", ">i4")])
SNAPSHOT_VERSION: Final = 1

#: One producer in a `.snapshot`. Without a data batch: sequence and offset −1, delta 0; without an open transaction:
#: `current_transaction_first_offset` −1.
SNAPSHOT_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_transaction_first_offset", ">i8"),
    ]
)


def field_position(layout: np.dtype[Any], field: str) -> int:
    """The byte at which `field` starts within `layout`."""
    fields = layout.fields
    assert fields is not None
    return fields[field][1]


def as_struct(layout: np.dtype[Any]) -> Struct:
    """A layout as a `Struct`, which reads one record at a time three times as fast as NumPy."""
    packed = Struct(">" + "".join(_STRUCT_CODES[layout[field].str[1:]] for field in layout.names or ()))
    assert packed.size == layout.itemsize
    return packed


_STRUCT_CODES: Final = {"i1": "b", "i2": "h", "i4": "i", "u4": "I", "i8": "q"}


#: Bytes before the part of an entry that `size` counts (`Records.LOG_OVERHEAD`).
LOG_OVERHEAD: Final = field_position(BATCH_V2, "partition_leader_epoch")
#: How many bytes tell an entry's format (`Records.HEADER_SIZE_UP_TO_MAGIC`).
HEADER_SIZE_UP_TO_MAGIC: Final = field_position(BATCH_V2, "magic") + 1
#: The smallest `size` that any format can have (`LegacyRecord.RECORD_OVERHEAD_V0`).
ENTRY_SIZE_MIN: Final = 14
#: The smallest v2 batch in bytes (`DefaultRecordBatch.RECORD_BATCH_OVERHEAD`): its header.
BATCH_V2_BYTES_MIN: Final = BATCH_V2.itemsize

MAGIC_V2: Final = 2
#: No timestamp, leader epoch or sequence (`RecordBatch.NO_TIMESTAMP`, `NO_PARTITION_LEADER_EPOCH`, `NO_SEQUENCE`).
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

#: Bits of `attributes`.
ATTRIBUTE_CODEC: Final = 0x07
ATTRIBUTE_LOG_APPEND_TIME: Final = 0x08
ATTRIBUTE_TRANSACTIONAL: Final = 0x10
ATTRIBUTE_CONTROL: Final = 0x20
ATTRIBUTE_DELETE_HORIZON: Final = 0x40

#: The key of a control record: int16 version, int16 type. Its value, for these two types: int16 version, int32
#: coordinator epoch (`ControlRecordType`, `EndTransactionMarker`).
CONTROL_KEY_BYTES: Final = 4
CONTROL_TYPE_ABORT: Final = 0
CONTROL_TYPE_COMMIT: Final = 1
MARKER_VALUE_BYTES: Final = 6

#: Names of the codecs by number (`CompressionType`); 5 to 7 are not assigned.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "unknown-5", "unknown-6", "unknown-7")
CODEC_NONE: Final = CODECS.index("none")
CODEC_ZSTD: Final = CODECS.index("zstd")

#: The largest file that Kafka opens as a segment (`FileRecords`), and the largest offset relative to its base.
SEGMENT_BYTES_MAX: Final = 2**31 - 1
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


#: The smallest batch of any format.
BATCH_BYTES_MIN: Final = LOG_OVERHEAD + ENTRY_SIZE_MIN

#: Where the fields of a header stand, as constants for compiled loops.
SIZE_AT: Final = field_position(BATCH_V2, "batch_length")
MAGIC_AT: Final = field_position(BATCH_V2, "magic")
V2_EPOCH_AT: Final = field_position(BATCH_V2, "partition_leader_epoch")
V2_CRC_AT: Final = field_position(BATCH_V2, "crc")
V2_ATTRIBUTES_AT: Final = field_position(BATCH_V2, "attributes")
V2_LAST_OFFSET_DELTA_AT: Final = field_position(BATCH_V2, "last_offset_delta")
V2_MAX_TIMESTAMP_AT: Final = field_position(BATCH_V2, "max_timestamp")
V2_BASE_TIMESTAMP_AT: Final = field_position(BATCH_V2, "base_timestamp")
V2_PRODUCER_ID_AT: Final = field_position(BATCH_V2, "producer_id")
V2_PRODUCER_EPOCH_AT: Final = field_position(BATCH_V2, "producer_epoch")
V2_BASE_SEQUENCE_AT: Final = field_position(BATCH_V2, "base_sequence")
V2_RECORDS_COUNT_AT: Final = field_position(BATCH_V2, "records_count")
V1_CRC_AT: Final = field_position(MESSAGE_V1, "crc")
V1_ATTRIBUTES_AT: Final = field_position(MESSAGE_V1, "attributes")
V1_TIMESTAMP_AT: Final = field_position(MESSAGE_V1, "timestamp")


def batch_size(header: bytes) -> int:
    """The size of a batch by the length field of its header, which may be negative (`LogInputStream`)."""
    return LOG_OVERHEAD + int.from_bytes(header[SIZE_AT:LOG_OVERHEAD], signed=True)
