"""Snappy as Kafka's clients write it: Java's in the frames of snappy-java ("xerial"), others' as one raw block."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kidxlib.errors import MalformedError
from kidxlib.format.byte_stream import ByteStream, chunks_of

if TYPE_CHECKING:
    import pyarrow as pa


def unsnappy(compressed: ByteStream) -> Iterator[bytes]:
    """Snappy-java's frame (`SnappyInputStream`): a header, then blocks, each after its size; without one, a block."""
    head = compressed.take(XERIAL_HEAD_BYTES)
    if len(head) < XERIAL_HEAD_BYTES or not head.startswith(XERIAL_MAGIC):
        yield _snappy_block(head + b"".join(chunks_of(compressed)))
        return
    while len(head := compressed.take(4)) == 4:
        if XERIAL_MAGIC.startswith(head):  # frames one after the other
            head += compressed.take(XERIAL_HEAD_BYTES - len(head))
            version = int.from_bytes(head[8:12], signed=True)
            # As snappy-java: the first frame may be of any version, and the others may call themselves anything.
            if len(head) < XERIAL_HEAD_BYTES or (head.startswith(XERIAL_MAGIC) and version < 1):
                raise MalformedError(f"a snappy frame's header {head.hex()}", "16 bytes, a version from 1 on")
            continue
        size = int.from_bytes(head, signed=True)
        block = compressed.take(size) if size > 0 else b""
        if size < 0 or len(block) < size:
            raise MalformedError(f"a snappy block of {size} bytes", f"at most the {len(block)} that are there")
        yield _snappy_block(block)


XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
XERIAL_HEAD_BYTES: Final = len(XERIAL_MAGIC) + 4 + 4  # version and the oldest compatible one
#: No snappy block is smaller than its content by more: two or three bytes copy at most 64.
SNAPPY_RATIO_MAX: Final = 32


@functools.cache
def _snappy() -> pa.Codec:
    from pyarrow import Codec

    return Codec("snappy")


def _snappy_block(block: bytes) -> bytes:
    size = 0
    for number, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * number
        if byte < 128:
            break
    else:
        raise MalformedError(f"a snappy block that starts {block[:5].hex()}", "the size of its content")
    if size > SNAPPY_RATIO_MAX * len(block):
        raise MalformedError(
            f"a snappy block of {len(block)} bytes that says it holds {size}",
            f"at most {SNAPPY_RATIO_MAX} times as many",
        )
    try:
        content = _snappy().decompress(block, decompressed_size=size, asbytes=True)
    except OSError as error:
        raise MalformedError(f"a snappy block that snappy refuses ({error})", "what snappy writes") from error
    assert isinstance(content, bytes)
    return content
