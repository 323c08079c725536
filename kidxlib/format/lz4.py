"""Lz4 frames as Kafka reads them, in the form that an lz4 library takes.

Kafka reads a subset of lz4's frames (`Lz4BlockInputStream`), and in messages of magic 0 their header checksum is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kidxlib.errors import MalformedError
from kidxlib.format.byte_stream import ByteStream


def plain_frame(compressed: ByteStream, *, verify_header: bool) -> Iterator[bytes]:
    """The frame with a right header checksum, and without what Kafka ignores: content size, content checksum, and
    whatever follows the end mark. What Kafka refuses is refused here.
    """
    head = compressed.take(6)
    if len(head) < 6 or not head.startswith(MAGIC):
        raise MalformedError(f"an lz4 frame that starts {head.hex()}", f"{MAGIC.hex()} and two bytes more")
    flags, block_size_code = head[4], head[5]
    if flags & _FLAGS_FIXED != _FLAGS_KAFKA:
        raise MalformedError(f"lz4 frame flags {flags:#04x}", "version 1, independent blocks, no dictionary")
    if block_size_code & ~0x70 or block_size_code < 0x40:
        raise MalformedError(f"lz4 block size {block_size_code:#04x}", "0x40, 0x50, 0x60 or 0x70")
    descriptor = head[4:] + compressed.take(8 if flags & _CONTENT_SIZE else 0)
    checksum = compressed.take(1)
    if not checksum or (verify_header and checksum[0] != header_checksum(descriptor)):
        raise MalformedError(f"lz4 header checksum {checksum.hex() or 'missing'}", f"{header_checksum(descriptor):02x}")
    descriptor = bytes([flags & ~_CONTENT_SIZE & ~_CONTENT_CHECKSUM, block_size_code])
    yield MAGIC + descriptor + bytes([header_checksum(descriptor)])
    block_bytes_max = 1 << 8 + 2 * (block_size_code >> 4)
    while True:
        mark = compressed.take(4)
        size = int.from_bytes(mark, "little") & ~BLOCK_STORED
        if size == 0 and len(mark) == 4:
            yield bytes(4)
            return
        if size > block_bytes_max:
            raise MalformedError(f"an lz4 block of {size} bytes", f"at most {block_bytes_max}")
        size += 4 if flags & _BLOCK_CHECKSUM else 0
        block = compressed.take(size)
        if len(mark) < 4 or len(block) < size:
            raise MalformedError("the end of the data within an lz4 frame", "its rest")
        yield mark + block


MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_FIXED: Final = 0b1110_0011  # version, independent blocks, reserved (one of them a dictionary by now)
_FLAGS_KAFKA: Final = 0b0110_0000
_BLOCK_CHECKSUM: Final = 0b0001_0000
_CONTENT_SIZE: Final = 0b0000_1000
_CONTENT_CHECKSUM: Final = 0b0000_0100
BLOCK_STORED: Final = 1 << 31


#: The primes of xxHash32, by the numbers that its specification gives them.
_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393


def header_checksum(descriptor: bytes) -> int:
    """The second byte of the xxHash32 of a frame's descriptor, which is shorter than the 16 bytes of a whole round."""
    accumulator = _PRIME_5 + len(descriptor)
    words = len(descriptor) & ~3
    for at in range(0, words, 4):
        accumulator += int.from_bytes(descriptor[at : at + 4], "little") * _PRIME_3
        accumulator = _rotated(accumulator, 17) * _PRIME_4
    for byte in descriptor[words:]:
        accumulator = _rotated(accumulator + byte * _PRIME_5, 11) * _PRIME_1
    accumulator &= _UINT32_MAX
    accumulator = (accumulator ^ accumulator >> 15) * _PRIME_2 & _UINT32_MAX
    accumulator = (accumulator ^ accumulator >> 13) * _PRIME_3 & _UINT32_MAX
    return (accumulator ^ accumulator >> 16) >> 8 & 255


_UINT32_MAX: Final = 2**32 - 1


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32_MAX
    return (value << bits | value >> 32 - bits) & _UINT32_MAX
