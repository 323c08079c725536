"""Writes batches of format v2: the records of Kafka's own topics that are made here.

Sources: `MemoryRecordsBuilder`, `DefaultRecordBatch.writeHeader`, `DefaultRecord.writeTo`, `BatchBuilder`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kidxlib.format import layouts
from kidxlib.format.checksums import crc32c
from kidxlib.format.layouts import BATCH_V2_BYTES_MIN, V2_ATTRIBUTES_AT, V2_CRC_AT
from kidxlib.messages.interpreter import unsigned_varint


def write_batch(values: Sequence[bytes], *, base_offset: int, leader_epoch: int, timestamp_ms: int) -> bytes:
    """A batch of records without keys, all at one time (`CREATE_TIME`), neither compressed nor of a producer.

    Args:
        values: of one record or more.
    """
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    header = np.zeros((), layouts.BATCH_V2)
    header["base_offset"] = base_offset
    header["batch_length"] = BATCH_V2_BYTES_MIN - layouts.LOG_OVERHEAD + len(records)
    header["partition_leader_epoch"] = leader_epoch
    header["magic"] = layouts.MAGIC_V2
    header["last_offset_delta"] = len(values) - 1
    header["base_timestamp"] = header["max_timestamp"] = timestamp_ms
    header["producer_id"] = header["producer_epoch"] = -1
    header["base_sequence"] = layouts.NO_SEQUENCE
    header["records_count"] = len(values)
    batch = header.tobytes() + records
    crc = crc32c(batch[V2_ATTRIBUTES_AT:])
    return batch[:V2_CRC_AT] + crc.to_bytes(4) + batch[V2_ATTRIBUTES_AT:]


def moved_to(batch: bytes, base_offset: int) -> bytes:
    """A v2 batch at another offset, which its checksum does not cover."""
    return base_offset.to_bytes(8) + batch[8:]


def _record(offset_delta: int, value: bytes) -> bytes:
    """Attributes, delta of the timestamp, delta of the offset, null as the key, the value, no headers."""
    body = b"\0\0" + write_varint(offset_delta) + write_varint(-1) + write_varint(len(value)) + value + b"\0"
    return write_varint(len(body)) + body


def write_varint(value: int) -> bytes:
    """`ByteUtils.writeVarint`: zig-zag."""
    return unsigned_varint((value << 1 ^ value >> 31) & 0xFFFFFFFF)
