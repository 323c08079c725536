"""Where the fields of a batch's header stand, and what they mean, as constants of compiled loops."""

from __future__ import annotations

from typing import Final

from kidxlib.format import layouts as formats

LOG_OVERHEAD: Final = formats.LOG_OVERHEAD
BATCH_V2_BYTES_MIN: Final = formats.BATCH_V2_BYTES_MIN
MAGIC_V2: Final = formats.MAGIC_V2
NO_TIMESTAMP: Final = formats.NO_TIMESTAMP
ATTRIBUTE_CODEC: Final = formats.ATTRIBUTE_CODEC
ATTRIBUTE_TRANSACTIONAL: Final = formats.ATTRIBUTE_TRANSACTIONAL
ATTRIBUTE_CONTROL: Final = formats.ATTRIBUTE_CONTROL
ATTRIBUTE_LOG_APPEND_TIME: Final = formats.ATTRIBUTE_LOG_APPEND_TIME
NO_SEQUENCE: Final = formats.NO_SEQUENCE
#: What every batch has at least, of any format.
BATCH_BYTES_MIN: Final = formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN

SIZE_AT: Final = formats.field_position(formats.BATCH_V2, "batch_length")
MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")
V2_EPOCH_AT: Final = formats.field_position(formats.BATCH_V2, "partition_leader_epoch")
V2_CRC_AT: Final = formats.field_position(formats.BATCH_V2, "crc")
V2_ATTRIBUTES_AT: Final = formats.field_position(formats.BATCH_V2, "attributes")
V2_LAST_OFFSET_DELTA_AT: Final = formats.field_position(formats.BATCH_V2, "last_offset_delta")
V2_MAX_TIMESTAMP_AT: Final = formats.field_position(formats.BATCH_V2, "max_timestamp")
V2_BASE_TIMESTAMP_AT: Final = formats.field_position(formats.BATCH_V2, "base_timestamp")
V2_PRODUCER_ID_AT: Final = formats.field_position(formats.BATCH_V2, "producer_id")
V2_PRODUCER_EPOCH_AT: Final = formats.field_position(formats.BATCH_V2, "producer_epoch")
V2_BASE_SEQUENCE_AT: Final = formats.field_position(formats.BATCH_V2, "base_sequence")
V2_RECORDS_COUNT_AT: Final = formats.field_position(formats.BATCH_V2, "records_count")
V1_CRC_AT: Final = formats.field_position(formats.MESSAGE_V1, "crc")
V1_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes")
V1_TIMESTAMP_AT: Final = formats.field_position(formats.MESSAGE_V1, "timestamp")
