"""What compressed batches hold, a chunk at a time, whatever codec Kafka's clients have written them with.

Zlib is Python's own; snappy, lz4 and zstd come with pyarrow, which is imported when one of them is met: an audit of
uncompressed logs does not wait for it. What a codec's data may be like is taken from what Kafka reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from kidxlib.errors import MalformedError
from kidxlib.format import layouts as formats
from kidxlib.format.byte_stream import CHUNK_BYTES, ByteStream, chunks_of
from kidxlib.format.gzip import ungzip
from kidxlib.format.lz4 import plain_frame
from kidxlib.format.snappy import unsnappy


def decompress(codec: int, compressed: ByteStream, magic: int) -> ByteStream:
    """What `compressed` holds, decompressed as it is taken (`Compression.wrapForInput`).

    Args:
        codec: number of the codec, an index of `formats.CODECS`.
        compressed: taken from while the result is.
        magic: of the batch or message that it is the records of.

    Raises:
        MalformedError: there is no such codec. Taking from the result raises it too, where the bytes are not what the
            codec writes, or end too early.
    """
    match formats.CODECS[codec]:
        case "none":
            chunks = chunks_of(compressed)
        case "gzip":
            chunks = ungzip(compressed)
        case "snappy":
            chunks = unsnappy(compressed)
        case "lz4":
            chunks = _by_arrow("lz4", ByteStream(plain_frame(compressed, verify_header=magic > 0)))
        case "zstd":
            chunks = _by_arrow("zstd", compressed)
        case _:
            raise MalformedError(f"codec {codec}", "0 to 4")
    return ByteStream(chunks)


def _by_arrow(codec: str, compressed: ByteStream) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        # pyarrow-stubs wants a real file here; one that can be read and closed is enough.
        stream = pa.CompressedInputStream(pa.PythonFile(compressed, mode="r"), codec)  # type: ignore[arg-type]
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        if error.errno is not None:  # not Arrow's: the log cannot be read
            raise
        raise MalformedError(f"{codec} data that {codec} refuses ({error})", f"what {codec} writes") from error
