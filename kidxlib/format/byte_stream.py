"""Bytes that come in chunks of one size and are taken in chunks of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Bytes read or decompressed at a time.
CHUNK_BYTES: Final = 64 * 1024


class ByteStream:
    """Bytes that come in chunks of any size, taken in others."""

    closed = False  # with `read` and `close` it is a file to pyarrow

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or all that are left where these are fewer."""
        end = self._at + size
        if end <= len(self._chunk):
            taken = self._chunk[self._at : end]
            self._at = end
            return taken
        parts = list(self._parts(size))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, size: int) -> int:
        """Pass over the next `size` bytes, or all that are left; how many there were."""
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

    def read(self, size: int) -> bytes:
        """`take`, under the name that files have for it."""
        return self.take(size)

    def close(self) -> None:
        """Files have it; there is nothing to close."""


def chunks_of(compressed: ByteStream) -> Iterator[bytes]:
    while chunk := compressed.take(CHUNK_BYTES):
        yield chunk
