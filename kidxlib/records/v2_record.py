"""The bytes of a record of magic 2 (`DefaultRecord`)."""

from __future__ import annotations

from typing import NoReturn

from kidxlib.errors import MalformedError
from kidxlib.java import as_long, text_of
from kidxlib.records.record import Header, Record


def parse_record(body: bytes, base_offset: int, base_timestamp: int, append_time: int | None) -> Record:
    """`DefaultRecord.readFrom`, of the bytes after its size; IndexError where they are too few."""
    timestamp_delta, at = read_varint(body, 1, bytes_max=10)  # the first byte is attributes, none of which is in use
    offset_delta, at = read_varint(body, at)
    key, at = _sized(body, at)
    value, at = _sized(body, at)
    headers_count, at = read_varint(body, at)
    headers: tuple[Header, ...] = ()
    if headers_count:
        if not 0 <= headers_count <= len(body) - at:
            record_malformed(body, f"at most {len(body) - at} headers, not {headers_count}")
        read = []
        for _ in range(headers_count):
            header_key, at = _sized(body, at)
            if header_key is None:
                record_malformed(body, "no null as a header's key")
            header_value, at = _sized(body, at)
            read.append(Header(text_of(header_key), header_value))
        headers = tuple(read)
    if at != len(body):
        record_malformed(body, f"{at} bytes, where its fields end")
    timestamp = as_long(base_timestamp + timestamp_delta) if append_time is None else append_time
    return Record(as_long(base_offset + offset_delta), timestamp, key, value, headers)


def read_varint(data: bytes, at: int, bytes_max: int = 5) -> tuple[int, int]:
    """A zig-zag varint (`ByteUtils.readVarint`; with 10 bytes `readVarlong`), and where it ends, which may be past
    `data`: IndexError.
    """
    byte = data[at]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), at + 1
    value, end = byte & 127, at + 1
    while byte >= 128:
        if end - at == bytes_max:
            record_malformed(data, f"a number of at most {bytes_max} bytes at its byte {at}")
        byte = data[end]
        value |= (byte & 127) << 7 * (end - at)
        end += 1
    value &= (1 << (32 if bytes_max == 5 else 64)) - 1
    return value >> 1 ^ -(value & 1), end


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def record_malformed(body: bytes, expected: str) -> NoReturn:
    shown = body[:24].hex() + ("…" if len(body) > 24 else "")
    raise MalformedError(f"a record of {len(body)} bytes ({shown})", expected)
