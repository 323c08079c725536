"""The records of a batch of any magic, as Kafka iterates over them, and the first record since a time
(`FileRecords.searchForTimestamp`).

Records are read, decompressed and decoded one by one. At most one record and one chunk of its batch are in memory; raw
snappy is one chunk. So the records before a malformed one are yielded, where Kafka may throw at once. Checksums are not
checked, as on a broker's read path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from kidxlib.errors import MalformedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.format.codecs import CHUNK_BYTES, CodecStream, decompressed_stream
from kidxlib.java import as_long, text_of
from kidxlib.records.batch_headers import BatchHeader
from kidxlib.storage.log_bytes import LogBytes

# Positions of fields in a message, which starts after offset and size.
_CRC_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "crc") - layouts.LOG_OVERHEAD
_LEGACY_MAGIC_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "magic") - layouts.LOG_OVERHEAD
_ATTRIBUTES_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "attributes") - layouts.LOG_OVERHEAD
_TIMESTAMP_AT: Final = layouts.field_position(layouts.MESSAGE_V1, "timestamp") - layouts.LOG_OVERHEAD
_KEY_AT_V0: Final = _TIMESTAMP_AT
_KEY_AT_V1: Final = layouts.MESSAGE_V1.itemsize - layouts.LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record.

    Attributes:
        key: its name. Bytes that are not UTF-8 are read as U+FFFD, as in Java.
        value: None: null.
    """

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer would get it, or a control record.

    Attributes:
        offset: in the partition.
        timestamp: in ms since the epoch, from the producer, or with LogAppendTime from the broker; −1: none.
        key, value: None: null; a null value is a tombstone.
        headers: in order.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def _parse_record(body: bytes, base_offset: int, base_timestamp: int, append_time: int | None) -> Record:
    """`DefaultRecord.readFrom` of the bytes after the record's size; IndexError if there are too few."""
    timestamp_delta, at = _read_varint(body, 1, bytes_max=10)  # the first byte is attributes, none of which is in use
    offset_delta, at = _read_varint(body, at)
    key, at = _sized(body, at)
    value, at = _sized(body, at)
    headers_count, at = _read_varint(body, at)
    headers: tuple[Header, ...] = ()
    if headers_count:
        if not 0 <= headers_count <= len(body) - at:
            _record_malformed(body, f"at most {len(body) - at} headers, not {headers_count}")
        read = []
        for _ in range(headers_count):
            header_key, at = _sized(body, at)
            if header_key is None:
                _record_malformed(body, "no null as a header's key")
            header_value, at = _sized(body, at)
            read.append(Header(text_of(header_key), header_value))
        headers = tuple(read)
    if at != len(body):
        _record_malformed(body, f"{at} bytes, where its fields end")
    timestamp = as_long(base_timestamp + timestamp_delta) if append_time is None else append_time
    return Record(as_long(base_offset + offset_delta), timestamp, key, value, headers)


def _read_varint(data: bytes, at: int, bytes_max: int = 5) -> tuple[int, int]:
    """A zig-zag varint (`ByteUtils.readVarint`; with 10 bytes `readVarlong`), and its end; IndexError if that is past
    `data`.
    """
    byte = data[at]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), at + 1
    value, end = byte & 127, at + 1
    while byte >= 128:
        if end - at == bytes_max:
            _record_malformed(data, f"a number of at most {bytes_max} bytes at its byte {at}")
        byte = data[end]
        value |= (byte & 127) << 7 * (end - at)
        end += 1
    value &= (1 << (32 if bytes_max == 5 else 64)) - 1
    return value >> 1 ^ -(value & 1), end


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _record_malformed(body: bytes, expected: str) -> NoReturn:
    shown = body[:24].hex() + ("…" if len(body) > 24 else "")
    raise MalformedError(f"a record of {len(body)} bytes ({shown})", expected)


def content(log: LogBytes, batch: BatchHeader) -> CodecStream:
    """The content of a v2 batch after its header: the records in sequence, decompressed lazily."""
    stored = _stream_of(log, batch.position + layouts.BATCH_V2_BYTES_MIN, batch.next_position)
    return decompressed_stream(batch.codec, stored, batch.magic)


def _records_v2(log: LogBytes, batch: BatchHeader) -> Iterator[Record]:
    """`DefaultRecordBatch.RecordIterator`."""
    if batch.size < layouts.BATCH_V2_BYTES_MIN:
        raise MalformedError(f"{batch.size} bytes", f"{layouts.BATCH_V2_BYTES_MIN} or more of magic {batch.magic}")
    count = batch.records_count or 0
    if count < 0:
        raise MalformedError(f"{count} records", "0 or more")
    if count == 0:
        return
    stream = content(log, batch)
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    for number in range(count):
        size = _size_of_record(stream, number, count)
        body = stream.take(size)
        if len(body) < size:
            raise MalformedError(f"{len(body)} bytes of record {number} of {count}", f"{size}, as it says")
        try:
            record = _parse_record(body, batch.offset_field, batch.base_timestamp, append_time)
        except IndexError:  # a read past the end
            _record_malformed(body, "its fields to end within it")
        if number == count - 1 and stream.take(1):
            raise MalformedError(f"more bytes after the last of {count} records", "none")
        yield record


def _size_of_record(content: CodecStream, number: int, count: int) -> int:
    varint = b""
    while len(varint) < 5:
        byte = content.take(1)
        varint += byte
        if not byte:
            raise MalformedError(f"the end of the data at record {number} of {count}", "the size of that record")
        if byte[0] < 128:
            break
    size, _ = _read_varint(varint, 0) if varint[-1] < 128 else (-1, 0)
    if size < 0:
        raise MalformedError(f"size {varint.hex()} of record {number} of {count}", "a number from 0 on")
    return size


@dataclass(frozen=True, slots=True)
class LegacyRecord:
    """A record of magic 0 or 1 as it is stored (Kafka's `LegacyRecord`): in the log, or compressed within a wrapper.

    Attributes:
        body: the bytes after offset and size.
        append_time: the broker's timestamp in the wrapper; None if it has none.
    """

    offset: int
    body: bytes
    append_time: int | None = None

    @property
    def crc(self) -> int:
        return int.from_bytes(self.body[_CRC_AT:_LEGACY_MAGIC_AT])

    @property
    def covered_by_crc(self) -> bytes:
        """The bytes that the checksum covers."""
        return self.body[_LEGACY_MAGIC_AT:]

    @property
    def timestamp(self) -> int:
        """In ms since the epoch; −1 is none, as always in magic 0."""
        magic = self.body[_LEGACY_MAGIC_AT]
        if magic == 0:
            return layouts.NO_TIMESTAMP
        if magic == 1 and self.append_time is not None:
            return self.append_time
        return int.from_bytes(self.body[_TIMESTAMP_AT:_KEY_AT_V1], signed=True)

    def sizes(self) -> tuple[int, int]:
        """The stored sizes of key and value; below 0 is null."""
        key_size = self._size(self._key_at, "key")
        return key_size, self._size(self._key_at + 4 + max(key_size, 0), "value")

    def record(self) -> Record:
        """The message as a record. Bytes after the value are ignored, as in Kafka."""
        key, at = self._sized(self._key_at, "key")
        value, _ = self._sized(at, "value")
        return Record(self.offset, self.timestamp, key, value)

    def check_not_compressed(self) -> None:
        if self.body[_ATTRIBUTES_AT] & layouts.ATTRIBUTE_CODEC:
            raise MalformedError("a compressed message within a compressed one", "records")

    @property
    def _key_at(self) -> int:
        return _KEY_AT_V0 if self.body[_LEGACY_MAGIC_AT] == 0 else _KEY_AT_V1

    def _size(self, at: int, what: str) -> int:
        if at + 4 > len(self.body):
            raise MalformedError(f"the end of a message of {len(self.body)} bytes", f"the size of its {what}")
        return int.from_bytes(self.body[at : at + 4], signed=True)

    def _sized(self, at: int, what: str) -> tuple[bytes | None, int]:
        size = self._size(at, what)
        at += 4
        if at + max(size, 0) > len(self.body):
            raise MalformedError(
                f"a {what} of {size} bytes in a message of {len(self.body)}", f"at most {len(self.body) - at}"
            )
        return (None, at) if size < 0 else (self.body[at : at + size], at + size)


def _legacy_messages(log: LogBytes, batch: BatchHeader) -> Iterator[LegacyRecord]:
    if batch.codec == layouts.CODEC_NONE:
        body = log.read(batch.position + layouts.LOG_OVERHEAD, batch.size - layouts.LOG_OVERHEAD)
        yield LegacyRecord(batch.offset_field, body)
    else:
        yield from _messages_of_wrapper(log, batch)


def _messages_of_wrapper(log: LogBytes, batch: BatchHeader) -> Iterator[LegacyRecord]:
    """`AbstractLegacyRecordBatch.DeepRecordsIterator`. In a wrapper of magic 1, offsets are relative to the last
    record's, which the wrapper has. So a wrapper is decompressed twice, where Kafka keeps all its content.
    """
    base = 0
    stream = wrapper_content(log, batch)
    if batch.magic == 1 and batch.offset_field != 0:  # old librdkafka left it at 0
        last_inner_offset = _last_inner_offset(stream)
        if batch.offset_field < last_inner_offset:
            raise MalformedError(
                f"a wrapper with offset {batch.offset_field} of records up to {last_inner_offset}",
                "its offset not below the last record's, or 0",
            )
        base = as_long(batch.offset_field - last_inner_offset)
        stream = wrapper_content(log, batch)
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    empty = True
    while (entry := _next_entry(stream)) is not None:
        inner_offset, size = entry
        body = stream.take(size)
        if len(body) < size:
            break
        yield LegacyRecord(as_long(base + inner_offset), body, append_time)
        empty = False
    if empty:
        _wrapper_empty()


def wrapper_content(log: LogBytes, batch: BatchHeader) -> CodecStream:
    """The content of a wrapper: messages in sequence, decompressed lazily."""
    if batch.magic < 0:
        raise MalformedError(f"magic {batch.magic}", "0 or 1")
    if batch.codec == layouts.CODEC_ZSTD:
        raise MalformedError(f"zstd in magic {batch.magic}", "none, gzip, snappy or lz4")
    start, end = _value_of_wrapper(log, batch)
    return decompressed_stream(batch.codec, _stream_of(log, start, end), batch.magic)


def _last_inner_offset(stream: CodecStream) -> int:
    last = None
    while (entry := _next_entry(stream)) is not None:
        offset, size = entry
        if stream.skip(size) == size:
            last = offset
    return _wrapper_empty() if last is None else last


def _next_entry(stream: CodecStream) -> tuple[int, int] | None:
    """Offset and size of the next message in a wrapper; None if the rest is too short, as in Kafka."""
    head = stream.take(layouts.LOG_OVERHEAD)
    if len(head) < layouts.LOG_OVERHEAD:
        return None
    offset, size = int.from_bytes(head[:8], signed=True), int.from_bytes(head[8:], signed=True)
    if size < layouts.ENTRY_SIZE_MIN:
        raise MalformedError(f"a message of {size} bytes in a wrapper", f"{layouts.ENTRY_SIZE_MIN} or more")
    return offset, size


def _wrapper_empty() -> NoReturn:
    raise MalformedError("a wrapper that holds no message", "one or more")


def _value_of_wrapper(log: LogBytes, batch: BatchHeader) -> tuple[int, int]:
    """Where in the file the compressed bytes of a wrapper start and end. A wrapper usually has no key, but may."""
    start = batch.position + layouts.LOG_OVERHEAD + (_KEY_AT_V0 if batch.magic == 0 else _KEY_AT_V1)
    for what in ("key", "value"):
        size = int.from_bytes(log.read(start, min(4, batch.next_position - start)), signed=True)
        start += 4
        if start + max(size, 0) > batch.next_position:
            raise MalformedError(f"a {what} of {size} bytes", f"at most {max(batch.next_position - start, 0)}")
        if what == "value" and size < 0:
            raise MalformedError("a wrapper whose value is null", "compressed messages")
        if what == "key":
            start += max(size, 0)
    return start, start + size


def records(log: LogBytes, batch: BatchHeader) -> Iterator[Record]:
    """The records of a batch in the order of the log, and so of their offsets."""
    try:
        if batch.is_v2:
            yield from _records_v2(log, batch)
        else:
            for message in _legacy_messages(log, batch):
                message.check_not_compressed()
                yield message.record()
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def base_offset(log: LogBytes, batch: BatchHeader) -> int:
    """The offset of the first record of a batch (`RecordBatch.baseOffset`). A wrapper is decompressed; a v2 batch has
    the offset in its header, even if compaction has removed that record.
    """
    if batch.is_v2 or batch.codec == layouts.CODEC_NONE:
        return batch.offset_field
    return next(records(log, batch)).offset  # an empty wrapper is malformed


def first_record_since(log: LogBytes, batch: BatchHeader, timestamp: int, offset: int) -> Record | None:
    """The first record with at least this timestamp (ms since the epoch) and at least this offset; None if there is
    none: the loop within `FileRecords.searchForTimestamp`.
    """
    return next(
        (record for record in records(log, batch) if record.timestamp >= timestamp and record.offset >= offset), None
    )


def offset_of_max_timestamp(log: LogBytes, batch: BatchHeader) -> int | None:
    """The offset of the first record with the largest timestamp in the batch's header
    (`RecordBatch.offsetOfMaxTimestamp`); None if no record has it, and in magic 0.
    """
    if batch.magic == 0:
        return None
    return next((record.offset for record in records(log, batch) if record.timestamp == batch.max_timestamp), None)


def messages(log: LogBytes, batch: BatchHeader) -> Iterator[LegacyRecord]:
    """The messages of a batch of magic 0 or 1: the batch itself, or those of a wrapper, without decoding them."""
    try:
        yield from _legacy_messages(log, batch)
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def _stream_of(log: LogBytes, position: int, end: int) -> CodecStream:
    """A section of a log in which the reader finds records, as a stream that is read lazily."""

    def chunks() -> Iterator[bytes]:
        for start in range(position, end, CHUNK_BYTES):
            yield log.read(start, min(CHUNK_BYTES, end - start))

    return CodecStream(chunks())
