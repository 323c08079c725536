"""How large the content of a batch is once Kafka's producer has compressed it, at each codec's default level.

The libraries are those that Java's producer has, but for what they are wrapped into; only sizes are of interest.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import lz4.block
import pyarrow as pa
from backports import zstd

UNCOMPRESSED: Final = "none"

#: `SnappyOutputStream`: a header, then blocks, each after its size.
_SNAPPY_HEADER_BYTES: Final = 16
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
#: `Lz4BlockOutputStream`: the frame's header, blocks after their sizes, an end mark. What gets larger is stored.
_LZ4_FRAME_BYTES: Final = 7 + 4
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_SIZE_BYTES: Final = 4
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
_ZSTD_LEVEL: Final = 3


def compressed_bytes(codec: str, content: memoryview) -> int:
    """How many bytes a batch's content takes.

    Args:
        codec: one of `CODECS`.
    """
    return _SIZES[codec](content)


def _gzip(content: memoryview) -> int:
    """`GZIPOutputStream` at `Deflater.DEFAULT_COMPRESSION`."""
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return len(stream.compress(content)) + len(stream.flush())


def _snappy(content: memoryview) -> int:
    codec = pa.Codec("snappy")
    blocks = _blocks(content, _SNAPPY_BLOCK_BYTES)
    return _SNAPPY_HEADER_BYTES + sum(_SIZE_BYTES + codec.compress(pa.py_buffer(block)).size for block in blocks)


def _lz4(content: memoryview) -> int:
    """`LZ4Factory.fastCompressor`, each block by itself."""
    blocks = _blocks(content, _LZ4_BLOCK_BYTES)
    sizes = [min(len(lz4.block.compress(block, store_size=False)), len(block)) for block in blocks]
    return _LZ4_FRAME_BYTES + sum(_SIZE_BYTES + size for size in sizes)


def _zstd(content: memoryview) -> int:
    """A stream whose length is not known when it begins, as of `ZstdOutputStream`: that decides on its parameters."""
    stream = zstd.ZstdCompressor(level=_ZSTD_LEVEL)
    return len(stream.compress(content)) + len(stream.flush(zstd.ZstdCompressor.FLUSH_FRAME))


def _blocks(content: memoryview, block_bytes: int) -> list[memoryview]:
    return [content[at : at + block_bytes] for at in range(0, len(content), block_bytes)]


_SIZES: Final[dict[str, Callable[[memoryview], int]]] = {
    UNCOMPRESSED: len,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
#: Those that look back no further than 64 KiB: larger batches are compressed no better.
SHORT_SIGHTED: Final = frozenset({"gzip", "snappy", "lz4"})
#: Names of `compression.type`.
CODECS: Final = tuple(_SIZES)
