"""The messages of a batch of magic 0 or 1: itself, or those in a wrapper (`AbstractLegacyRecordBatch`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from kidxlib.errors import MalformedError
from kidxlib.format import layouts as formats
from kidxlib.format.codecs import ByteStream, decompress
from kidxlib.java import as_long
from kidxlib.records.batch import Batch, stream_of
from kidxlib.records.legacy_record import KEY_AT_V0, KEY_AT_V1, Message
from kidxlib.storage.log_bytes import LogBytes


def legacy_messages(log: LogBytes, batch: Batch) -> Iterator[Message]:
    if batch.codec == formats.CODEC_NONE:
        body = log.read(batch.position + formats.LOG_OVERHEAD, batch.size - formats.LOG_OVERHEAD)
        yield Message(batch.offset_field, body)
    else:
        yield from _messages_of_wrapper(log, batch)


def _messages_of_wrapper(log: LogBytes, batch: Batch) -> Iterator[Message]:
    """`AbstractLegacyRecordBatch.DeepRecordsIterator`. The offsets in a wrapper of magic 1 count from its own, which is
    that of the last record: so such a wrapper is decompressed twice, where Kafka keeps all that it holds.
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
        yield Message(as_long(base + inner_offset), body, append_time)
        empty = False
    if empty:
        _wrapper_empty()


def wrapper_content(log: LogBytes, batch: Batch) -> ByteStream:
    """What a wrapper holds: messages one after the other, decompressed as they are taken.

    Raises:
        MalformedError: at once or while they are taken: its codec is none that a wrapper may have, it has no value, or
            compressed bytes are not what its codec writes.
    """
    if batch.magic < 0:
        raise MalformedError(f"magic {batch.magic}", "0 or 1")
    if batch.codec == formats.CODEC_ZSTD:
        raise MalformedError(f"zstd in magic {batch.magic}", "none, gzip, snappy or lz4")
    start, end = _value_of_wrapper(log, batch)
    return decompress(batch.codec, stream_of(log, start, end), batch.magic)


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
    start = batch.position + formats.LOG_OVERHEAD + (KEY_AT_V0 if batch.magic == 0 else KEY_AT_V1)
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
