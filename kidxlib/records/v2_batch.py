"""The records of a batch of magic 2 (`DefaultRecordBatch`)."""

from __future__ import annotations

from collections.abc import Iterator

from kidxlib.errors import MalformedError
from kidxlib.format import layouts as formats
from kidxlib.format.codecs import ByteStream, decompress
from kidxlib.records.batch import Batch, stream_of
from kidxlib.records.record import Record
from kidxlib.records.v2_record import parse_record, read_varint, record_malformed
from kidxlib.storage.log_bytes import LogBytes


def content(log: LogBytes, batch: Batch) -> ByteStream:
    """What a v2 batch holds after its header: its records one after the other, decompressed as they are taken.

    Raises:
        MalformedError: while they are taken: a codec that is none, or compressed bytes that its codec does not write.
    """
    stored = stream_of(log, batch.position + formats.BATCH_V2_BYTES_MIN, batch.next_position)
    return decompress(batch.codec, stored, batch.magic)


def records_v2(log: LogBytes, batch: Batch) -> Iterator[Record]:
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
            record = parse_record(body, batch.offset_field, batch.base_timestamp, append_time)
        except IndexError:  # a read past the end
            record_malformed(body, "its fields to end within it")
        if number == count - 1 and stream.take(1):
            raise MalformedError(f"more bytes after the last of {count} records", "none")
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
    size, _ = read_varint(varint, 0) if varint[-1] < 128 else (-1, 0)
    if size < 0:
        raise MalformedError(f"size {varint.hex()} of record {number} of {count}", "a number from 0 on")
    return size
