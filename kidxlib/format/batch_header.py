"""The positions and the meaning of the fields in a batch's header, as constants for compiled loops; and its size."""

from __future__ import annotations

from typing import Final

from kidxlib.format import layouts

LOG_OVERHEAD: Final = layouts.LOG_OVERHEAD
BATCH_V2_BYTES_MIN: Final = layouts.BATCH_V2_BYTES_MIN
MAGIC_V2: Final = layouts.MAGIC_V2
NO_TIMESTAMP: Final = layouts.NO_TIMESTAMP
ATTRIBUTE_CODEC: Final = layouts.ATTRIBUTE_CODEC
ATTRIBUTE_TRANSACTIONAL: Final = layouts.ATTRIBUTE_TRANSACTIONAL
ATTRIBUTE_CONTROL: Final = layouts.ATTRIBUTE_CONTROL
ATTRIBUTE_LOG_APPEND_TIME: Final = layouts.ATTRIBUTE_LOG_APPEND_TIME
NO_SEQUENCE: Final = layouts.NO_SEQUENCE
#: The smallest batch of any format.
BATCH_BYTES_MIN: Final = layouts.LOG_OVERHEAD + layouts.ENTRY_SIZE_MIN

SIZE_AT: Final = layouts.field_position(layouts.BATCH_V2, "batch_length")
MAGIC_AT: Final = layouts.field_position(layouts.BATCH_V2, "magic")
V2_EPOCH_AT: Final = layouts.field_position(layouts.BATCH_V2, "partition_leader_epoch")
V2_CRC_AT: Final = layouts.field_position(layouts.BATCH_V2, "crc")
V2_ATTRIBUTES_AT: Final = layouts.field_position(layouts.BATCH_V2, "attributes")
V2_LAST_OFFSET_DELTA_AT: Final = layouts.field_position(layouts.BATCH_V2, "last_offset_delta")
V2_MAX_TIMESTAMP_AT: Final = layouts.field_position(layouts.BATCH_V2, "max_timestamp")
V2_BASE_TIMESTAMP_AT: Final = layouts.field_position(layouts.BATCH_V2, "base_timestamp")
V2_PRODUCER_ID_AT: Final = layouts.field_position(layouts.BATCH_V2, "producer_id")
V2_PRODUCER_EPOCH_AT: Final = layouts.field_position(layouts.BATCH_V2, "producer_epoch")
V2_BASE_SEQUENCE_AT: Final = layouts.field_position(layouts.BATCH_V2, "base_sequence")
V2_RECORDS_COUNT_AT: Final = layouts.field_position(layouts.BATCH_V2, "records_count")
V1_CRC_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "crc")
V1_ATTRIBUTES_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "attributes")
V1_TIMESTAMP_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "timestamp")


def batch_size(header: bytes) -> int:
    """The size of a batch by its header, which may be negative (`LogInputStream`)."""
    return LOG_OVERHEAD + int.from_bytes(header[SIZE_AT:LOG_OVERHEAD], signed=True)
