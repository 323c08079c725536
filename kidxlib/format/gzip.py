"""Gzip as Java reads it: one member after the other."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from kidxlib.errors import MalformedError
from kidxlib.format.byte_stream import CHUNK_BYTES, ByteStream


def ungzip(compressed: ByteStream) -> Iterator[bytes]:
    """One gzip member after the other; what follows them and is none is left alone, as Java does."""
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
    """Java's gzip passes over the reserved flags in a member's header; zlib refuses the member, as RFC 1952 wants."""
    if len(member) <= _FLAGS_AT or not member[_FLAGS_AT] & _FLAGS_RESERVED:
        return member
    flags = member[_FLAGS_AT] & ~_FLAGS_RESERVED
    return member[:_FLAGS_AT] + bytes([flags]) + member[_FLAGS_AT + 1 :]


def _new_member() -> zlib._Decompress:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)
