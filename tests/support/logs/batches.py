"""The bytes of batches, sound and damaged."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import google_crc32c
import numpy as np

from kidxlib.format import layouts
from kidxlib.java import as_long
from tests.support.logs.v2_records import record

#: The content of batches. Recovery never looks at records, so any bytes do.
FILLER: Final = random.Random(7).randbytes(8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A v2 batch, or a v0 or v1 message.

    Attributes:
        offset_step: the last offset minus that of the batch before.
        last_offset_delta: the last offset minus the base offset (v2).
        timestamp: the largest timestamp by the header (v1, v2).
        body: the bytes after the header.
        crc_error: the wrong bits of the checksum.
        size: a wrong value of the size field; None: the right one.
        bytes_kept: the bytes of the batch that there are; size and checksum fit them. None: all.
        producer_id, producer_epoch, base_sequence: the producer (v2).
        base_timestamp: the base of the records' timestamps (v2); None: any value.
    """

    magic: int = layouts.MAGIC_V2
    offset_step: int = 1
    last_offset_delta: int = 0
    timestamp: int = layouts.NO_TIMESTAMP
    leader_epoch: int = layouts.NO_LEADER_EPOCH
    attributes: int = 0
    records: int = 1
    body: bytes = field(default=FILLER[:39], repr=False)
    crc_error: int = 0
    size: int | None = None
    bytes_kept: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    base_timestamp: int | None = None

    def encode(self, last_offset: int) -> bytes:
        checksum: Callable[[bytes], int]
        if self.magic >= layouts.MAGIC_V2:
            base_offset = as_long(last_offset - self.last_offset_delta)
            base_timestamp = as_long(~self.timestamp) if self.base_timestamp is None else self.base_timestamp
            until_crc = (base_offset, 0, self.leader_epoch, self.magic, 0)
            times = (self.attributes, self.last_offset_delta, base_timestamp, self.timestamp)
            producer = (self.producer_id, self.producer_epoch, self.base_sequence)
            header = np.array((*until_crc, *times, *producer, self.records), layouts.BATCH_V2).tobytes()
            covered, checksum = layouts.field_position(layouts.BATCH_V2, "attributes"), google_crc32c.value
        else:
            message = (last_offset, 0, 0, self.magic, self.attributes, self.timestamp)
            header = np.array(message, layouts.MESSAGE_V1).tobytes()
            if self.magic == 0:
                header = header[: layouts.field_position(layouts.MESSAGE_V1, "timestamp")]
            covered, checksum = layouts.field_position(layouts.MESSAGE_V1, "magic"), zlib.crc32
        data = bytearray((header + self.body)[: self.bytes_kept])
        size = len(data) - layouts.LOG_OVERHEAD if self.size is None else self.size
        data[8 : layouts.LOG_OVERHEAD] = size.to_bytes(4, signed=True)
        data[covered - 4 : covered] = (checksum(bytes(data[covered:])) ^ self.crc_error).to_bytes(4)
        return bytes(data)


def encode(base_offset: int, batches: Iterable[Batch]) -> list[bytes]:
    """The bytes of the batches; the first step counts from before the base offset. Offsets wrap as Java's do."""
    encoded = []
    offset = base_offset - 1
    for batch in batches:
        offset = as_long(offset + batch.offset_step)
        encoded.append(batch.encode(offset))
    return encoded


def batch_positions(log: bytes | bytearray) -> list[int]:
    """Where the batches of a log begin, all of which are whole."""
    found, at = [], 0
    while at < len(log):
        found.append(at)
        at += layouts.LOG_OVERHEAD + int.from_bytes(log[at + 8 : at + layouts.LOG_OVERHEAD])
    return found


def control(
    key: bytes | None = b"\0\0\0\1",
    value: bytes | None = bytes(6),
    *,
    trailing: bytes = b"",
    codec: int = 0,
    records: int = 1,
) -> dict[str, Any]:
    """The fields of a producer's control batch: by default a commit marker of 78 bytes, as Kafka writes it."""
    return {
        "producer_id": 7,
        "producer_epoch": 0,
        "attributes": layouts.ATTRIBUTE_TRANSACTIONAL | layouts.ATTRIBUTE_CONTROL | codec,
        "records": records,
        "body": record(key, value) + trailing,
    }
