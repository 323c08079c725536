"""The compiled loop that decompresses a batch, whatever codec it is in.

The loop takes what Kafka's clients write. Odd data, as a second gzip member or an lz4 frame with checksums of its
blocks, and damaged data are left to `kidxlib.format.codecs`.

Snappy's blocks (`format_description.txt`) are read here, as no wheel has the library's own functions: a block is the
size of its content as a varint, then elements, each a literal or a copy of earlier content.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Final

import numpy as np
from llvmlite import binding
from numba import types

from kidxlib.format import layouts
from kidxlib.format.bytes_kernel import copy_16_bytes, copy_bytes, int32, uint8
from kidxlib.format.codecs import (
    BLOCK_STORED,
    LZ4_MAGIC,
    SNAPPY_RATIO_MAX,
    XERIAL_HEAD_BYTES,
    XERIAL_MAGIC,
    lz4_header_checksum,
)
from kidxlib.jit.compiler import njit
from kidxlib.jit.machine import c_library

#: The backport is for Pythons without zstd. The zstd of later ones may be hidden within the interpreter.
_OF_ZSTD: Final = ("backports.zstd", "_zstd") if sys.version_info < (3, 14) else ("zstandard", "_cffi")
_ZSTD_LIBRARY: Final = c_library(*_OF_ZSTD, "ZSTD_decompressDCtx")
_LZ4_LIBRARY: Final = c_library("lz4", "_block", "LZ4_decompress_safe")
_DEFLATE_LIBRARY: Final = c_library("deflate", "_deflate", "libdeflate_gzip_decompress_ex")

# A compiled function loaded from numba's cache calls these symbols by name, so they must be known before any is loaded.
for _symbol, _function in {
    "kidx_zstd_decompress": _ZSTD_LIBRARY.ZSTD_decompressDCtx,
    "kidx_lz4_decompress": _LZ4_LIBRARY.LZ4_decompress_safe,
    "kidx_gzip_decompress": _DEFLATE_LIBRARY.libdeflate_gzip_decompress_ex,
}.items():
    binding.add_symbol(_symbol, ctypes.cast(_function, ctypes.c_void_p).value)

for _function in (_ZSTD_LIBRARY.ZSTD_createDCtx, _DEFLATE_LIBRARY.libdeflate_alloc_decompressor):
    _function.restype = ctypes.c_void_p
for _function in (_ZSTD_LIBRARY.ZSTD_freeDCtx, _DEFLATE_LIBRARY.libdeflate_free_decompressor):
    _function.argtypes = [ctypes.c_void_p]


class Decompressors:
    """The working memory that zstd and libdeflate get with each call. One thread may use it at a time. It is freed with
    this object.

    Attributes:
        zstd, gzip: the addresses.
    """

    def __init__(self) -> None:
        self.zstd: int = _allocated(_ZSTD_LIBRARY.ZSTD_createDCtx())
        weakref.finalize(self, _ZSTD_LIBRARY.ZSTD_freeDCtx, self.zstd)
        self.gzip: int = _allocated(_DEFLATE_LIBRARY.libdeflate_alloc_decompressor())
        weakref.finalize(self, _DEFLATE_LIBRARY.libdeflate_free_decompressor, self.gzip)


def _allocated(address: int | None) -> int:
    if address is None:
        raise MemoryError
    return address


#: In place of a size: the content does not fit; or it is left to `codecs.decompressed_stream`.
NO_ROOM: Final = -1
REFUSED: Final = -2

_SIZE = types.uintp
_zstd_decompress = types.ExternalFunction(
    "kidx_zstd_decompress", _SIZE(types.uintp, types.uintp, _SIZE, types.uintp, _SIZE)
)
_lz4_decompress = types.ExternalFunction(
    "kidx_lz4_decompress", types.int32(types.uintp, types.uintp, types.int32, types.int32)
)
_gzip_decompress = types.ExternalFunction(
    "kidx_gzip_decompress",
    types.int32(types.uintp, types.uintp, _SIZE, types.uintp, _SIZE, types.uintp, types.uintp),
)
#: `ZSTD_isError`: a size above this one is an error's number, negated; `ZSTD_error_dstSize_tooSmall`.
_ZSTD_SIZE_MAX: Final = 2**64 - 121
_ZSTD_NO_ROOM: Final = 70
#: `enum libdeflate_result`.
_DEFLATE_SUCCESS: Final = 0
_DEFLATE_NO_ROOM: Final = 3

_GZIP: Final = layouts.CODECS.index("gzip")
_SNAPPY: Final = layouts.CODECS.index("snappy")
_LZ4: Final = layouts.CODECS.index("lz4")
_ZSTD: Final = layouts.CODECS.index("zstd")

_XERIAL: Final = int.from_bytes(XERIAL_MAGIC[:4], signed=True)
_XERIAL_REST: Final = int.from_bytes(XERIAL_MAGIC[4:], signed=True)
_XERIAL_HEAD_BYTES: Final = XERIAL_HEAD_BYTES
_SNAPPY_RATIO_MAX: Final = SNAPPY_RATIO_MAX
_LZ4_MAGIC: Final = int.from_bytes(LZ4_MAGIC, signed=True)
_LZ4_HEAD_BYTES: Final = 7
_LZ4_STORED: Final = BLOCK_STORED
_LZ4_FLAGS: Final = 0x60  # version 1, independent blocks, nothing more
_LZ4_CONTENT_CHECKSUM: Final = 0x04  # Kafka does not look at it
#: By the size of a frame's blocks, then by whether it has a checksum of its content: that of its header.
_LZ4_CHECKSUMS: Final = tuple(
    lz4_header_checksum(bytes([_LZ4_FLAGS | checksum, code << 4])) for code in range(4, 8) for checksum in (0, 4)
)


@njit
def _little_endian(data, at):
    """A number of four bytes, the lowest first."""
    value = np.int64(uint8(data, at))
    for number in range(1, 4):
        value |= np.int64(uint8(data, at + number)) << (8 * number)
    return value


@njit
def _snappy_size(source, at, end):
    """The size that a block says its content has, and the byte after that; −1 in its place where that is no size."""
    size = np.int64(0)
    for number in range(5):
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(uint8(source, at))
        at += 1
        size |= (byte & 127) << (7 * number)
        if byte < 128:
            return size, np.int64(at)
    return np.int64(0), np.int64(-1)


@njit
def _snappy_block(source, at, end, size, target, start):
    """Decompress the elements of a block.

    Args:
        source: read-only uint8; the elements stand from `at` to before `end`.
        size: what the block says that it holds.
        target: uint8; the content goes there from `start` on, and there is room for it.

    Returns:
        `size`, or `REFUSED` where the elements do not come to exactly that.
    """
    source_address, target_address = np.int64(source.ctypes.data), np.int64(target.ctypes.data)
    room = len(target)
    stop = start + size
    to = start
    while at < end:
        tag = np.int64(uint8(source, at))
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                length_bytes = length - 60
                if at + length_bytes > end:
                    return np.int64(REFUSED)
                length = np.int64(1)
                for number in range(length_bytes):
                    length += np.int64(uint8(source, at + number)) << (8 * number)
                at += length_bytes
            if length > end - at or length > stop - to:
                return np.int64(REFUSED)
            if length <= 16 and at + 16 <= end and to + 16 <= room:
                copy_16_bytes(target_address + to, source_address + at)  # type: ignore[call-arg]
            else:
                copy_bytes(target_address + to, source_address + at, length)  # type: ignore[call-arg]
            at += length
            to += length
            continue
        offset_bytes = 4 if kind == 3 else kind
        if at + offset_bytes > end:
            return np.int64(REFUSED)
        offset = np.int64(uint8(source, at))
        if kind == 1:
            length = ((tag >> 2) & 7) + 4
            offset |= (tag >> 5) << 8
        else:
            length = (tag >> 2) + 1
            for number in range(1, offset_bytes):
                offset |= np.int64(uint8(source, at + number)) << (8 * number)
        at += offset_bytes
        if offset == 0 or offset > to - start or length > stop - to:
            return np.int64(REFUSED)
        if offset >= 16 and to + 64 <= room:
            address = target_address + to
            for copied in range(0, length, 16):
                copy_16_bytes(address + copied, address + copied - offset)  # type: ignore[call-arg]
            to += length
        else:
            for _ in range(length):
                target[to] = target[to - offset]
                to += 1
    return np.int64(size) if to == stop else np.int64(REFUSED)


@njit
def _unsnappy_block(source, at, end, target, start):
    content_bytes, elements = _snappy_size(source, at, end)
    if elements < 0 or content_bytes > _SNAPPY_RATIO_MAX * (end - at):
        return np.int64(REFUSED)
    if content_bytes > len(target) - start:
        return np.int64(NO_ROOM)
    return _snappy_block(source, elements, end, content_bytes, target, start)


@njit
def _unsnappy(source, at, end, target, start):
    """`codecs._unsnappy`, to which frames one after the other are left."""
    if end - at < _XERIAL_HEAD_BYTES or int32(source, at) != _XERIAL or int32(source, at + 4) != _XERIAL_REST:
        return _unsnappy_block(source, at, end, target, start)
    at += _XERIAL_HEAD_BYTES
    to = start
    while at + 4 <= end:
        size = np.int64(int32(source, at))
        at += 4
        if size <= 0 or size > end - at:  # the head of another frame, as a number, is below 0
            return np.int64(REFUSED)
        content_bytes = _unsnappy_block(source, at, at + size, target, to)
        if content_bytes < 0:
            return content_bytes
        at += size
        to += content_bytes
    return to - start


@njit
def _unlz4(source, at, end, target, start, checks_header):
    if end - at < _LZ4_HEAD_BYTES or int32(source, at) != _LZ4_MAGIC:
        return np.int64(REFUSED)
    flags, code = np.int64(uint8(source, at + 4)), np.int64(uint8(source, at + 5))
    if (flags & ~_LZ4_CONTENT_CHECKSUM) != _LZ4_FLAGS or (code & 0x8F) != 0 or code < 0x40:
        return np.int64(REFUSED)
    number = 2 * ((code >> 4) - 4) + (1 if flags & _LZ4_CONTENT_CHECKSUM else 0)
    if checks_header and np.int64(uint8(source, at + 6)) != _LZ4_CHECKSUMS[number]:
        return np.int64(REFUSED)
    block_bytes_max = np.int64(1) << (8 + 2 * (code >> 4))
    source_address, target_address = np.int64(source.ctypes.data), np.int64(target.ctypes.data)
    at += _LZ4_HEAD_BYTES
    to, room = start, len(target)
    while at + 4 <= end:
        mark = _little_endian(source, at)
        at += 4
        size = mark & ~_LZ4_STORED
        if size == 0:
            return to - start
        if size > block_bytes_max or size > end - at:
            return np.int64(REFUSED)
        here = min(block_bytes_max, room - to)
        if mark & _LZ4_STORED:
            if size > here:
                return np.int64(NO_ROOM)
            copy_bytes(target_address + to, source_address + at, size)  # type: ignore[call-arg]
            to += size
        else:
            content_bytes = np.int64(
                _lz4_decompress(
                    np.uintp(source_address + at), np.uintp(target_address + to), np.int32(size), np.int32(here)
                )
            )
            if content_bytes < 0:
                return np.int64(NO_ROOM if here < block_bytes_max else REFUSED)
            to += content_bytes
        at += size
    return np.int64(REFUSED)  # no end mark


@njit
def decompress(codec, magic, source, at, end, target, start, zstd, gzip, scratch):
    """Decompress what a batch holds, from `at` to before `end` of `source`, into `target` from `start` on.

    Args:
        codec: number of the codec, not that of none.
        magic: of the batch or message that it is the records of.
        source: read-only uint8.
        target: uint8; what follows the content may be changed.
        zstd, gzip: see `Decompressors`.
        scratch: two int64, for libdeflate's sizes.

    Returns:
        The size of the content, `NO_ROOM` or `REFUSED`.
    """
    of, to = np.uintp(source.ctypes.data + at), np.uintp(target.ctypes.data + start)
    size, room = np.uintp(end - at), np.uintp(len(target) - start)
    if codec == _ZSTD:
        content_bytes = _zstd_decompress(np.uintp(zstd), to, room, of, size)
        if content_bytes <= np.uintp(_ZSTD_SIZE_MAX):
            return np.int64(content_bytes)
        return np.int64(NO_ROOM if np.int64(0) - np.int64(content_bytes) == _ZSTD_NO_ROOM else REFUSED)
    if codec == _LZ4:
        return _unlz4(source, at, end, target, start, magic > 0)
    if codec == _SNAPPY:
        return _unsnappy(source, at, end, target, start)
    if codec == _GZIP:
        sizes = np.uintp(scratch.ctypes.data)
        result = _gzip_decompress(np.uintp(gzip), of, size, to, room, sizes, sizes + np.uintp(8))
        if result == _DEFLATE_SUCCESS and scratch[0] == np.int64(size):
            return scratch[1]
        return np.int64(NO_ROOM if result == _DEFLATE_NO_ROOM else REFUSED)
    return np.int64(REFUSED)
