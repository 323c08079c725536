"""Decompresses batches chunk by chunk, with all codecs of Kafka's clients.

Zlib is Python's own; snappy and lz4 come with pyarrow, zstd with Python 3.14 or a backport. Each is imported when it is
needed, so that an audit of uncompressed logs does not wait for them. The accepted data is what Kafka reads:

- gzip: one member after the other, as Java reads them;
- snappy: Java's clients write the frames of snappy-java ("xerial"), others one raw block;
- lz4: a subset of the frames (`Lz4BlockInputStream`); in messages of magic 0 their header checksum is wrong;
- zstd: one frame after the other, as zstd-jni reads them (`ZstdInputStreamNoFinalizer`).
"""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kidxlib.errors import MalformedError, MissingLibraryError
from kidxlib.format import layouts

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes read or decompressed at a time.
CHUNK_BYTES: Final = 64 * 1024


class CodecStream:
    """Bytes that arrive in chunks of any size, and are taken in other sizes."""

    closed = False  # with `read` and `close` it is a file to pyarrow

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or all that are left if there are fewer."""
        if size and self._at == len(self._chunk):
            self._chunk, self._at = next(self._chunks, b""), 0
        end = self._at + size
        if end <= len(self._chunk):
            taken = self._chunk[self._at : end]
            self._at = end
            return taken
        parts = list(self._parts(size))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, size: int) -> int:
        """Skip the next `size` bytes, or all that are left; returns how many there were."""
        return sum(map(len, self._parts(size)))

    def _parts(self, size: int) -> Iterator[bytes]:
        while size > 0:
            if self._at == len(self._chunk):
                chunk = next(self._chunks, None)
                if chunk is None:
                    return
                self._chunk, self._at = chunk, 0
            part = self._chunk[self._at : self._at + size]
            self._at += len(part)
            size -= len(part)
            yield part

    read = take  # its name in files

    def close(self) -> None:
        """Nothing; files have this method."""


def chunks_of(compressed: CodecStream) -> Iterator[bytes]:
    """The bytes of a `CodecStream` that are left, in chunks."""
    while chunk := compressed.take(CHUNK_BYTES):
        yield chunk


def _ungzip(compressed: CodecStream) -> Iterator[bytes]:
    """One gzip member after the other; other bytes behind them are ignored, as in Java."""
    member = _new_member()
    data = _without_reserved_flags(compressed.take(CHUNK_BYTES))
    while True:
        try:
            chunk = member.decompress(data, CHUNK_BYTES)
        except zlib.error as error:
            raise MalformedError(f"gzip data that zlib refuses ({error})", "what gzip writes") from error
        if chunk:
            yield chunk
        if member.eof:
            data = member.unused_data
            if len(data) <= _FLAGS_AT:
                data += compressed.take(CHUNK_BYTES)
            if not data.startswith(_GZIP_MAGIC):
                return
            member, data = _new_member(), _without_reserved_flags(data)
            continue
        data = member.unconsumed_tail or compressed.take(CHUNK_BYTES)
        if not data and not chunk:
            raise MalformedError("the end of the data within a gzip member", "its rest")


_GZIP_MAGIC: Final = b"\x1f\x8b"
_FLAGS_AT: Final = 3
_FLAGS_RESERVED: Final = 0b1110_0000


def _without_reserved_flags(member: bytes) -> bytes:
    """Clear the reserved flags in a member's header. Java's gzip ignores them, and zlib refuses them, as in RFC
    1952.
    """
    if len(member) <= _FLAGS_AT or not member[_FLAGS_AT] & _FLAGS_RESERVED:
        return member
    flags = member[_FLAGS_AT] & ~_FLAGS_RESERVED
    return member[:_FLAGS_AT] + bytes([flags]) + member[_FLAGS_AT + 1 :]


def _new_member() -> zlib._Decompress:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


def _unsnappy(compressed: CodecStream) -> Iterator[bytes]:
    """Snappy-java's frame (`SnappyInputStream`): a header, then blocks, each after its size; without a header, one
    block.
    """
    head = compressed.take(XERIAL_HEAD_BYTES)
    if len(head) < XERIAL_HEAD_BYTES or not head.startswith(XERIAL_MAGIC):
        yield _snappy_block(head + b"".join(chunks_of(compressed)))
        return
    while len(head := compressed.take(4)) == 4:
        if XERIAL_MAGIC.startswith(head):  # frames one after the other
            head += compressed.take(XERIAL_HEAD_BYTES - len(head))
            version = int.from_bytes(head[8:12], signed=True)
            # As in snappy-java, the first frame may be of any version, and later frames' headers are not checked.
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
#: The highest compression ratio of a snappy block: two or three bytes copy at most 64.
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


def _plain_frame(compressed: CodecStream, *, verify_header: bool) -> Iterator[bytes]:
    """The frame with a correct header checksum, and without the parts that Kafka ignores: content size, content
    checksum, and bytes after the end mark. Frames that Kafka refuses are refused.
    """
    head = compressed.take(6)
    if len(head) < 6 or not head.startswith(LZ4_MAGIC):
        raise MalformedError(f"an lz4 frame that starts {head.hex()}", f"{LZ4_MAGIC.hex()} and two bytes more")
    flags, block_size_code = head[4], head[5]
    if flags & _FLAGS_FIXED != _FLAGS_KAFKA:
        raise MalformedError(f"lz4 frame flags {flags:#04x}", "version 1, independent blocks, no dictionary")
    if block_size_code & ~0x70 or block_size_code < 0x40:
        raise MalformedError(f"lz4 block size {block_size_code:#04x}", "0x40, 0x50, 0x60 or 0x70")
    descriptor = head[4:] + compressed.take(8 if flags & _CONTENT_SIZE else 0)
    checksum = compressed.take(1)
    if not checksum or (verify_header and checksum[0] != lz4_header_checksum(descriptor)):
        raise MalformedError(
            f"lz4 header checksum {checksum.hex() or 'missing'}", f"{lz4_header_checksum(descriptor):02x}"
        )
    descriptor = bytes([flags & ~_CONTENT_SIZE & ~_CONTENT_CHECKSUM, block_size_code])
    yield LZ4_MAGIC + descriptor + bytes([lz4_header_checksum(descriptor)])
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


LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_FIXED: Final = 0b1110_0011  # version, independent blocks, reserved (one of them a dictionary by now)
_FLAGS_KAFKA: Final = 0b0110_0000
_BLOCK_CHECKSUM: Final = 0b0001_0000
_CONTENT_SIZE: Final = 0b0000_1000
_CONTENT_CHECKSUM: Final = 0b0000_0100
BLOCK_STORED: Final = 1 << 31


#: The primes of xxHash32, numbered as in its specification.
_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393


def lz4_header_checksum(descriptor: bytes) -> int:
    """The header checksum of the lz4 codec: the second byte of the xxHash32 of a frame's descriptor, which is shorter
    than the 16 bytes of a whole round.
    """
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


def _unlz4(compressed: CodecStream, *, verify_header: bool) -> Iterator[bytes]:
    import pyarrow as pa

    frame = CodecStream(_plain_frame(compressed, verify_header=verify_header))
    try:
        # pyarrow-stubs wants a real file here; one that can be read and closed is enough.
        stream = pa.CompressedInputStream(pa.PythonFile(frame, mode="r"), "lz4")  # type: ignore[arg-type]
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        if error.errno is not None:  # not Arrow's: the log cannot be read
            raise
        raise MalformedError(f"lz4 data that lz4 refuses ({error})", "what lz4 writes") from error


def zstd_module() -> ModuleType:
    """Zstd in Python: the standard library's from Python 3.14 on, and its backport before."""
    if sys.version_info < (3, 14):
        from backports import zstd
    else:
        try:
            from compression import zstd
        except ImportError as error:
            raise MissingLibraryError(
                f"{sys.executable}: no compression.zstd, so this Python was built without libzstd; use one that has it"
            ) from error
    return zstd


#: How many bytes zstd-jni reads at a time: `ZSTD_DStreamInSize`.
_ZSTD_READ_BYTES: Final = 128 * 1024 + 3


def _unzstd(compressed: CodecStream) -> Iterator[bytes]:
    """Decompress zstd frames in sequence. Data that ends within a frame is refused, unless another frame ended in the
    last read: zstd-jni takes that for the end.
    """
    zstd = zstd_module()
    frame, has_ended = zstd.ZstdDecompressor(), True
    while data := compressed.take(_ZSTD_READ_BYTES):
        has_ended = False
        while data or not frame.needs_input:
            try:
                chunk = frame.decompress(data, CHUNK_BYTES)
            except zstd.ZstdError as error:
                raise MalformedError(f"zstd data that zstd refuses ({error})", "what zstd writes") from error
            if chunk:
                yield chunk
            data = b""
            if frame.eof:
                data, frame, has_ended = frame.unused_data, zstd.ZstdDecompressor(), True
    if not has_ended:
        raise MalformedError("the end of the data within a zstd frame", "its rest")


def decompressed_stream(codec: int, compressed: CodecStream, magic: int) -> CodecStream:
    """A stream that decompresses another while it is read (`Compression.wrapForInput`). The codec is an index of
    `layouts.CODECS`, the magic that of the batch or message.
    """
    match layouts.CODECS[codec]:
        case "none":
            return compressed
        case "gzip":
            chunks = _ungzip(compressed)
        case "snappy":
            chunks = _unsnappy(compressed)
        case "lz4":
            chunks = _unlz4(compressed, verify_header=magic > 0)
        case "zstd":
            chunks = _unzstd(compressed)
        case _:
            raise MalformedError(f"codec {codec}", "0 to 4")
    return CodecStream(chunks)
