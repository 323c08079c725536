"""The bytes of a v2 record, sound or not."""

from __future__ import annotations

from collections.abc import Sequence


def varint(value: int) -> bytes:
    """Zig-zag, seven bits a byte, as by `ByteUtils.writeVarint` and `writeVarlong`."""
    value = value << 1 if value >= 0 else ~value << 1 | 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    key: bytes | None,
    value: bytes | None,
    *,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    header_count: int | None = None,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    wrong_length: int = 0,
) -> bytes:
    """A record, perhaps with a wrong number of headers, and with a length that is wrong by `wrong_length`."""
    body = b"".join(
        [
            b"\0",
            varint(timestamp_delta),
            varint(offset_delta),
            sized(key),
            sized(value),
            varint(len(headers) if header_count is None else header_count),
            *(sized(name) + sized(content) for name, content in headers),
        ]
    )
    return varint(len(body) + wrong_length) + body
