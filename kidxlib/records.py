"""The batches of a log, and the records inside them: what is read where an index cannot tell more.

`batches` walks headers, as Kafka's `FileLogInputStream` does, and `headers` takes them for whatever they say, as it
does until it is asked for more than the header; `records` is what iterating over a batch gives there
(`DefaultRecordBatch`, `AbstractLegacyRecordBatch`). Both are lazy: nothing is read, decompressed or taken apart before
it is asked for. No more than one record and one piece of its batch are held at a time; of raw snappy all is one piece.
So what stands before a malformed place is given, where Kafka may throw at once. Checksums are not looked at, as on a
broker's read path.

Offsets and timestamps are Java longs: sums wrap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from kidxlib import formats
from kidxlib.codecs import PIECE_BYTES, ByteStream, MalformedError, decompress
from kidxlib.errors import KidxError
from kidxlib.storage import LogBytes


class MalformedRecordsError(KidxError):
    """A batch, or a record in it, is not what Kafka writes; Kafka throws there, too.

    Attributes:
        position: file position of the batch, in bytes.
        found: what is there.
        expected: what would have been right.
    """

    def __init__(self, position: int, found: str, expected: str) -> None:
        super().__init__(f"batch at byte {position}: found {found}, expected {expected}")
        self.position = position
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The header of a v2 batch, or of a v0 or v1 message, which is a batch of its own; a compressed one is a wrapper.

    Attributes:
        position: of its first byte in the file.
        size: all its bytes.
        magic: the version of its format: 0, 1, or 2 and above, which all are read as 2.
        attributes: bits, see `formats`.
        crc: the checksum that it carries.
        first_field: the offset that it starts with: of a v2 batch its base offset, of a wrapper the offset of the last
            record in it.
        last_offset: of the last record in it; compaction may have removed that record.
        max_timestamp: the largest in it, as it says itself, in ms since the epoch; −1 of magic 0.
        partition_leader_epoch: −1 is none, as it always is below magic 2.
        base_timestamp: what the timestamps of the records of a v2 batch count from.
        base_sequence: of the first record; −1 is none.
        records_count: None of a wrapper, which has to be decompressed to know.
    """

    position: int
    size: int
    magic: int
    attributes: int
    crc: int
    first_field: int
    last_offset: int
    max_timestamp: int
    partition_leader_epoch: int = formats.NO_LEADER_EPOCH
    base_timestamp: int = formats.NO_TIMESTAMP
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = formats.NO_SEQUENCE
    records_count: int | None = None

    @property
    def is_v2(self) -> bool:
        return self.magic >= formats.MAGIC_V2

    @property
    def codec(self) -> int:
        """An index of `formats.CODECS`."""
        return self.attributes & formats.ATTRIBUTE_CODEC

    @property
    def is_log_append_time(self) -> bool:
        """Whether a broker's clock gave its records their timestamp, which is `max_timestamp`; never of magic 0."""
        return self.magic != 0 and self.attributes & formats.ATTRIBUTE_LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.is_v2 and self.attributes & formats.ATTRIBUTE_TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether its records are markers that consumers never see."""
        return self.is_v2 and self.attributes & formats.ATTRIBUTE_CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop its tombstones and markers, in ms since the epoch; None where not yet set."""
        has_one = self.is_v2 and self.attributes & formats.ATTRIBUTE_DELETE_HORIZON
        return self.base_timestamp if has_one else None

    @property
    def next_position(self) -> int:
        return self.position + self.size


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record. What of its key is no UTF-8 is read as U+FFFD, as in Java."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a consumer would get it; also a marker of a control batch.

    Attributes:
        timestamp: in ms since the epoch: its producer's or, in a batch with LogAppendTime, the broker's; −1 is none.
        key, value: None is null; a null value is a tombstone.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def batches(log: LogBytes, position: int = 0) -> Iterator[Batch]:
    """The batches from file position `position` on, which must be where one starts (`FileRecords.batchesFrom`).

    It ends where no whole batch follows, be that the end of the file or a batch that reaches past it; bytes left over
    are no error. One small read of the file a batch.

    Raises:
        MalformedRecordsError: a size that no batch can have, or a negative magic; a negative `position`, as an index
            that is damaged may name.
    """
    for batch in headers(log, position):
        if batch.magic < 0:
            raise MalformedRecordsError(batch.position, f"magic {batch.magic}", "0 to 127")
        if batch.is_v2 and batch.size < formats.BATCH_V2_BYTES_MIN:
            raise _too_small(batch.position, batch.size, batch.magic)
        yield batch


def headers(log: LogBytes, position: int = 0) -> Iterator[Batch]:
    """As `batches`, and a batch is given though its magic is negative, or its size too small for a batch of magic 2: of
    such a one, what stands where its fields would be.

    Raises:
        MalformedRecordsError: a size that not even a message of magic 0 can have; a header that reaches past the end
            of the file; a negative `position`.
    """
    return (_batch(*span) for span in spans(log, position))


def spans(log: LogBytes, position: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Where the batches lie, by their sizes alone: position, size, and the bytes from there on that a header may take,
    as many as the file has.

    Raises:
        MalformedRecordsError: a size that no batch can have, or a negative `position`.
    """
    if position < 0:
        raise MalformedRecordsError(position, "that position", "one from 0 on")
    while position < log.size - formats.HEADER_SIZE_UP_TO_MAGIC:
        head = log.read(position, formats.BATCH_V2.itemsize)
        size = formats.LOG_OVERHEAD + int.from_bytes(head[_SIZE_AT : _SIZE_AT + 4], signed=True)
        if size < formats.LOG_OVERHEAD + formats.ENTRY_SIZE_MIN:
            raise MalformedRecordsError(
                position, f"size {size - formats.LOG_OVERHEAD}", f"{formats.ENTRY_SIZE_MIN} or more"
            )
        if position > log.size - size:
            return
        yield position, size, head
        position += size


def records(log: LogBytes, batch: Batch) -> Iterator[Record]:
    """The records of a batch in the order of the log, which is that of their offsets.

    Args:
        log: what `batch` was found in.

    Raises:
        MalformedRecordsError: a codec that is none, compressed bytes that its codec does not write, records that do not
            fill the batch exactly, or are cut, or have lengths that cannot be; of magic 0 and 1 also zstd, a wrapper
            in a wrapper or without content, and offsets of records that do not fit their wrapper's.
    """
    try:
        if batch.is_v2:
            yield from _records_v2(log, batch)
        else:
            for message in _messages(log, batch):
                message.check_not_compressed()
                yield message.record()
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def content(log: LogBytes, batch: Batch) -> ByteStream:
    """What a v2 batch holds behind its header: its records one after the other, decompressed as they are taken.

    Raises:
        MalformedError: while they are taken: a codec that is none, or compressed bytes that its codec does not write.
    """
    stored = _bytes_of(log, batch.position + formats.BATCH_V2_BYTES_MIN, batch.next_position)
    return decompress(batch.codec, stored, batch.magic)


def base_offset(log: LogBytes, batch: Batch) -> int:
    """The offset of the first record of a batch (`RecordBatch.baseOffset`); a wrapper is decompressed for it.

    Of a v2 batch it is what its header says, though compaction may have removed that record.

    Raises:
        MalformedRecordsError: as `records`.
    """
    if batch.is_v2 or batch.codec == formats.CODEC_NONE:
        return batch.first_field
    return next(records(log, batch)).offset  # an empty wrapper is malformed


def first_record_since(log: LogBytes, batch: Batch, timestamp: int, offset: int) -> Record | None:
    """The first record with at least this timestamp (ms since the epoch) and at least this offset; None where none is.

    The loop within `FileRecords.searchForTimestamp`.

    Raises:
        MalformedRecordsError: as `records`; what stands behind the record is not looked at.
    """
    for record in records(log, batch):
        if record.timestamp >= timestamp and record.offset >= offset:
            return record
    return None


def offset_of_max_timestamp(log: LogBytes, batch: Batch) -> int | None:
    """The offset of the first record that has the timestamp which the batch says is its largest
    (`RecordBatch.offsetOfMaxTimestamp`); None where none has, and of magic 0.

    Raises:
        MalformedRecordsError: as `records`; what stands behind the record is not looked at.
    """
    if batch.magic == 0:
        return None
    return next((record.offset for record in records(log, batch) if record.timestamp == batch.max_timestamp), None)


def text_of(data: bytes) -> str:
    """UTF-8 as Java reads it: U+FFFD for what is none, and one for a surrogate, of which Python makes three."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", data).decode(errors="replace")


_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


# ---- headers ----

_SIZE_AT: Final = formats.field_position(formats.BATCH_V2, "batch_length")
_MAGIC_AT: Final = formats.field_position(formats.BATCH_V2, "magic")


def _batch(position: int, size: int, head: bytes) -> Batch:
    magic = int.from_bytes(head[_MAGIC_AT : _MAGIC_AT + 1], signed=True)
    if magic < formats.MAGIC_V2:
        offset, _size, crc, _magic, attributes, timestamp = _MESSAGE_V1.unpack_from(head)
        return Batch(
            position=position,
            size=size,
            magic=magic,
            attributes=attributes,
            crc=crc,
            first_field=offset,
            last_offset=offset,
            max_timestamp=formats.NO_TIMESTAMP if magic == 0 else timestamp,
            records_count=1 if attributes & formats.ATTRIBUTE_CODEC == formats.CODEC_NONE else None,
        )
    if len(head) < formats.BATCH_V2_BYTES_MIN:
        raise _too_small(position, size, magic)
    (
        base_offset,
        _length,
        leader_epoch,
        _magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = _BATCH_V2.unpack(head)
    return Batch(
        position=position,
        size=size,
        magic=magic,
        attributes=attributes,
        crc=crc,
        first_field=base_offset,
        last_offset=_long(base_offset + last_offset_delta),
        max_timestamp=max_timestamp,
        partition_leader_epoch=leader_epoch,
        base_timestamp=base_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records_count,
    )


_BATCH_V2: Final = formats.as_struct(formats.BATCH_V2)
_MESSAGE_V1: Final = formats.as_struct(formats.MESSAGE_V1)


def _too_small(position: int, size: int, magic: int) -> MalformedRecordsError:
    return MalformedRecordsError(position, f"{size} bytes", f"{formats.BATCH_V2_BYTES_MIN} or more of magic {magic}")


def _bytes_of(log: LogBytes, position: int, end: int) -> ByteStream:
    """A stretch of the file, read as it is taken."""

    def pieces() -> Iterator[bytes]:
        for start in range(position, end, PIECE_BYTES):
            yield log.read(start, min(PIECE_BYTES, end - start))

    return ByteStream(pieces())


# ---- magic 2 ----


def _records_v2(log: LogBytes, batch: Batch) -> Iterator[Record]:
    """`DefaultRecordBatch.RecordIterator`."""
    if batch.size < formats.BATCH_V2_BYTES_MIN:
        raise MalformedError(f"{batch.size} bytes", f"{formats.BATCH_V2_BYTES_MIN} or more of magic {batch.magic}")
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
            record = _record_v2(body, batch.first_field, batch.base_timestamp, append_time)
        except IndexError:  # a read past the end
            _record_malformed(body, "its fields to end within it")
        if number == count - 1 and stream.take(1):
            raise MalformedError(f"more bytes behind the last of {count} records", "none")
        yield record


def _size_of_record(content: ByteStream, number: int, count: int) -> int:
    varint = b""
    while len(varint) < 5:
        byte = content.take(1)
        varint += byte
        if not byte:
            raise MalformedError(f"the end of the data at record {number} of {count}", "the size of that record")
        if byte[0] < 128:
            break
    size, _ = _varint(varint, 0) if varint[-1] < 128 else (-1, 0)
    if size < 0:
        raise MalformedError(f"size {varint.hex()} of record {number} of {count}", "a number from 0 on")
    return size


def _record_v2(body: bytes, base_offset: int, base_timestamp: int, append_time: int | None) -> Record:
    """`DefaultRecord.readFrom`, of the bytes behind its size; IndexError where they are too few."""
    timestamp_delta, at = _varint(body, 1, bytes_max=10)  # the first byte is attributes, none of which is in use
    offset_delta, at = _varint(body, at)
    key, at = _sized(body, at)
    value, at = _sized(body, at)
    headers_count, at = _varint(body, at)
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
    timestamp = _long(base_timestamp + timestamp_delta) if append_time is None else append_time
    return Record(_long(base_offset + offset_delta), timestamp, key, value, headers)


def _varint(data: bytes, at: int, bytes_max: int = 5) -> tuple[int, int]:
    """A zig-zag varint (`ByteUtils.readVarint`; with 10 bytes `readVarlong`), and where it ends, which may be behind
    `data`: IndexError.
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
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _record_malformed(body: bytes, expected: str) -> NoReturn:
    shown = body[:24].hex() + ("…" if len(body) > 24 else "")
    raise MalformedError(f"a record of {len(body)} bytes ({shown})", expected)


# ---- magic 0 and 1 ----

# Where things are in a message, which starts behind offset and size.
_LEGACY_CRC_AT: Final = formats.field_position(formats.MESSAGE_V1, "crc") - formats.LOG_OVERHEAD
_LEGACY_MAGIC_AT: Final = formats.field_position(formats.MESSAGE_V1, "magic") - formats.LOG_OVERHEAD
_LEGACY_ATTRIBUTES_AT: Final = formats.field_position(formats.MESSAGE_V1, "attributes") - formats.LOG_OVERHEAD
_LEGACY_TIMESTAMP_AT: Final = formats.field_position(formats.MESSAGE_V1, "timestamp") - formats.LOG_OVERHEAD
_KEY_AT_V0: Final = _LEGACY_TIMESTAMP_AT
_KEY_AT_V1: Final = formats.MESSAGE_V1.itemsize - formats.LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class Message:
    """A record of magic 0 or 1 as it is stored (`LegacyRecord`): in the log, or compressed within a wrapper.

    Attributes:
        body: its bytes behind offset and size.
        append_time: what its wrapper says of a broker's clock; None where that says nothing.
    """

    offset: int
    body: bytes
    append_time: int | None = None

    @property
    def crc(self) -> int:
        """The checksum that it carries."""
        return int.from_bytes(self.body[_LEGACY_CRC_AT:_LEGACY_MAGIC_AT])

    @property
    def covered_by_crc(self) -> bytes:
        """What that checksum is of."""
        return self.body[_LEGACY_MAGIC_AT:]

    @property
    def timestamp(self) -> int:
        """In ms since the epoch; −1 is none, as it always is of magic 0."""
        magic = self.body[_LEGACY_MAGIC_AT]
        if magic == 0:
            return formats.NO_TIMESTAMP
        if magic == 1 and self.append_time is not None:
            return self.append_time
        return int.from_bytes(self.body[_LEGACY_TIMESTAMP_AT:_KEY_AT_V1], signed=True)

    def sizes(self) -> tuple[int, int]:
        """Of key and value, as they are stored; below 0 is null.

        Raises:
            MalformedError: one is not within the message.
        """
        key_size = self._size(self._key_at, "key")
        return key_size, self._size(self._key_at + 4 + max(key_size, 0), "value")

    def record(self) -> Record:
        """What it says. What follows the value is left alone, as Kafka does.

        Raises:
            MalformedError: key or value do not fit into it.
        """
        key, at = self._sized(self._key_at, "key")
        value, _ = self._sized(at, "value")
        return Record(self.offset, self.timestamp, key, value)

    def check_not_compressed(self) -> None:
        """
        Raises:
            MalformedError: it is, which within a wrapper none may be.
        """
        if self.body[_LEGACY_ATTRIBUTES_AT] & formats.ATTRIBUTE_CODEC:
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


def messages(log: LogBytes, batch: Batch) -> Iterator[Message]:
    """The messages of a batch of magic 0 or 1: itself, or those within a wrapper, whatever stands in them.

    Raises:
        MalformedRecordsError: as `records`, but for what a message itself has wrong.
    """
    try:
        yield from _messages(log, batch)
    except MalformedError as error:
        raise MalformedRecordsError(batch.position, error.found, error.expected) from error


def _messages(log: LogBytes, batch: Batch) -> Iterator[Message]:
    if batch.codec == formats.CODEC_NONE:
        body = log.read(batch.position + formats.LOG_OVERHEAD, batch.size - formats.LOG_OVERHEAD)
        yield Message(batch.first_field, body)
    else:
        yield from _messages_of_wrapper(log, batch)


def _messages_of_wrapper(log: LogBytes, batch: Batch) -> Iterator[Message]:
    """`AbstractLegacyRecordBatch.DeepRecordsIterator`. The offsets in a wrapper of magic 1 count from its own, which is
    that of the last record: so such a wrapper is decompressed twice, where Kafka keeps all that it holds.
    """
    if batch.magic < 0:
        raise MalformedError(f"magic {batch.magic}", "0 or 1")
    if batch.codec == formats.CODEC_ZSTD:
        raise MalformedError(f"zstd in magic {batch.magic}", "none, gzip, snappy or lz4")
    start, end = _value_of_wrapper(log, batch)

    def content() -> ByteStream:
        return decompress(batch.codec, _bytes_of(log, start, end), batch.magic)

    base = 0
    if batch.magic == 1 and batch.first_field != 0:  # old librdkafka left it at 0
        last_inner_offset = _last_inner_offset(content())
        if batch.first_field < last_inner_offset:
            raise MalformedError(
                f"a wrapper with offset {batch.first_field} of records up to {last_inner_offset}",
                "its offset not below the last record's, or 0",
            )
        base = _long(batch.first_field - last_inner_offset)
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    stream = content()
    empty = True
    while (entry := _next_entry(stream)) is not None:
        inner_offset, size = entry
        body = stream.take(size)
        if len(body) < size:
            break
        yield Message(_long(base + inner_offset), body, append_time)
        empty = False
    if empty:
        _wrapper_empty()


def _last_inner_offset(stream: ByteStream) -> int:
    last = None
    while (entry := _next_entry(stream)) is not None:
        offset, size = entry
        if stream.skip(size) == size:
            last = offset
    return _wrapper_empty() if last is None else last


def _next_entry(stream: ByteStream) -> tuple[int, int] | None:
    """Offset and size of the next message in a wrapper; None where the rest is too short, as Kafka does."""
    head = stream.take(formats.LOG_OVERHEAD)
    if len(head) < formats.LOG_OVERHEAD:
        return None
    offset, size = int.from_bytes(head[:8], signed=True), int.from_bytes(head[8:], signed=True)
    if size < formats.ENTRY_SIZE_MIN:
        raise MalformedError(f"a message of {size} bytes in a wrapper", f"{formats.ENTRY_SIZE_MIN} or more")
    return offset, size


def _wrapper_empty() -> NoReturn:
    raise MalformedError("a wrapper that holds no message", "one or more")


def _value_of_wrapper(log: LogBytes, batch: Batch) -> tuple[int, int]:
    """Where in the file the compressed bytes of a wrapper start and end. It has no key, but might."""
    start = batch.position + formats.LOG_OVERHEAD + (_KEY_AT_V0 if batch.magic == 0 else _KEY_AT_V1)
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


def _long(value: int) -> int:
    """`value` as Java's 64-bit arithmetic gives it."""
    return (value + 2**63) % 2**64 - 2**63
