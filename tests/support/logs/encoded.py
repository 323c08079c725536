"""The bytes of v2 records, v0 and v1 messages, and batches, compressed in any way that clients write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import pyarrow as pa

from kidxlib.format import layouts
from kidxlib.format.codecs import lz4_header_checksum
from kidxlib.java import as_long
from kidxlib.records.reader import Header, Record
from tests.support.logs import v2_records
from tests.support.logs.batches import Batch


def legacy_sized(data: bytes | None) -> bytes:
    """Length and bytes, as in a v0 or v1 message."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def record_v2(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    return v2_records.record(
        record.key,
        record.value,
        headers=[(header.key.encode(), header.value) for header in record.headers],
        timestamp_delta=as_long(record.timestamp - base_timestamp),
        offset_delta=record.offset - base_offset,
    )


def batch_v2(
    inside: Sequence[Record], codec: int = 0, compress: Callable[[bytes], bytes] = bytes, **fields: Any
) -> bytes:
    """A v2 batch; `fields` are other values of `Batch`, such as damaged ones."""
    base_offset, base_timestamp = inside[0].offset, inside[0].timestamp
    body = b"".join(record_v2(record, base_offset, base_timestamp) for record in inside)
    batch = Batch(
        last_offset_delta=inside[-1].offset - base_offset,
        timestamp=max(record.timestamp for record in inside),
        base_timestamp=base_timestamp,
        attributes=codec,
        records=len(inside),
        body=compress(body),
    )
    return replace(batch, **fields).encode(inside[-1].offset)


def one_record(offset: int, value: bytes = b"", **fields: Any) -> bytes:
    """A batch of a record at time 0."""
    return batch_v2([Record(offset, 0, None, value)], **fields)


def message(record: Record, magic: int, attributes: int = 0) -> bytes:
    body = legacy_sized(record.key) + legacy_sized(record.value)
    return Batch(magic=magic, attributes=attributes, timestamp=record.timestamp, body=body).encode(record.offset)


def wrapper(
    messages: Iterable[bytes],
    offset: int,
    *,
    magic: int,
    codec: int,
    compress: Callable[[bytes], bytes],
    timestamp: int = layouts.NO_TIMESTAMP,
    attributes: int = 0,
) -> bytes:
    value = compress(b"".join(messages))
    return message(Record(offset, timestamp, None, value), magic, codec | attributes)


def gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=31)


def snappy(data: bytes) -> bytes:
    """One raw block, as written by librdkafka and others."""
    return _by_arrow("snappy", data)


def xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    blocks = [snappy(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4(data: bytes) -> bytes:
    """A frame of independent compressed blocks of 64 KiB, as Kafka wants them."""
    block_bytes = 64 * 1024
    # Arrow's frame of one block has its size and the block between the header of 7 bytes and the end mark of 4.
    blocks = [_by_arrow("lz4", data[at : at + block_bytes])[7:-4] for at in range(0, len(data), block_bytes)]
    return lz4_frame([], end=b"".join(blocks) + bytes(4))


def zstd(data: bytes) -> bytes:
    return _by_arrow("zstd", data)


def _by_arrow(codec: Literal["snappy", "lz4", "zstd"], data: bytes) -> bytes:
    compressed = pa.Codec(codec).compress(data, asbytes=True)
    assert isinstance(compressed, bytes)
    return compressed


#: All ways to compress, with the codec's number.
WAYS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip),
    "gzip in two members": (1, lambda data: gzip(data[:9]) + gzip(data[9:])),
    "gzip and something after it": (1, lambda data: gzip(data) + b"after"),
    "snappy": (2, snappy),
    "xerial": (2, xerial),
    "xerial in small blocks": (2, lambda data: xerial(data, block_bytes=7)),
    "xerial in two frames": (2, lambda data: xerial(data[:9]) + xerial(data[9:])),
    "lz4": (3, lz4),
    "lz4 and something after it": (3, lambda data: lz4(data) + b"after"),
    "zstd": (4, zstd),
    "zstd in two frames": (4, lambda data: zstd(data[:9]) + zstd(data[9:])),
}

#: Records with every kind of field.
RECORDS: Final = (
    Record(100, 1_700_000_000_000, b"key", b"value", (Header("name", b"value"), Header("", None))),
    Record(101, 1_700_000_000_005, None, b"x" * 300),
    Record(105, 1_600_000_000_000, b"", None, (Header("h\u00e4", b""),)),
    Record(70_000, 1_700_000_000_005, b"tombstone", None),
    Record(70_001, 1_700_000_000_003, bytes(range(256)) * 300, b"ab" * 40_000),
)


def lz4_frame(
    blocks: Sequence[bytes],
    *,
    flags: int = 0x60,
    block_size_code: int = 0x40,
    content_size: bytes = b"",
    checksum_error: int = 0,
    end: bytes = bytes(4),
) -> bytes:
    """An lz4 frame of stored blocks; `end` is its end mark and what follows."""
    descriptor = bytes([flags, block_size_code]) + content_size
    checksum = lz4_header_checksum(descriptor) ^ checksum_error
    stored = b"".join((len(block) | 1 << 31).to_bytes(4, "little") + block for block in blocks)
    return b"\x04\x22\x4d\x18" + descriptor + bytes([checksum]) + stored + end
