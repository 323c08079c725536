"""The batches of a log, and their records, as Kafka's own classes read and write them.

A call through py4j takes a quarter of a millisecond, a record has a dozen fields, and a segment thousands of records.
So method handles, made into functions, are mapped over all records of a log at once. The results are a few lists of
numbers, and bytes that Java writes to a file one after the other.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kidxlib.records.reader import Header, Record
from tests.support.kafka.functions import Functions

if TYPE_CHECKING:
    from tests.support.kafka.classes import Kafka

T = TypeVar("T")

INTERNAL: Final = "org.apache.kafka.common.record.internal"
_HEADER: Final = "org.apache.kafka.common.header.Header"
_BYTE_BUFFER: Final = "java.nio.ByteBuffer"


class KafkaThrewError(Exception):
    """Kafka's exception: its class and message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBatch:
    """The fields of a batch, which is decompressed for them if necessary.

    Attributes:
        leader_epoch: −1 is none.
        records: None for a v0 or v1 message.
        offset_of_max_timestamp: None: no record has it.
    """

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    records: int | None
    delete_horizon_ms: int | None
    offset_of_max_timestamp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch for Kafka to write.

    Attributes:
        codec: a name of `layouts.CODECS`.
        log_append_time: the timestamp of all records; None for CreateTime.
        delete_horizon_ms: None for none; magic 2 only.
    """

    magic: int
    codec: str
    base_offset: int
    records: Sequence[Record]
    log_append_time: int | None = None
    delete_horizon_ms: int | None = None


def _of_batch(jvm: Any, functions: Functions) -> dict[str, Any]:
    """The functions that give the fields of `KafkaBatch`."""
    long, integer, byte = jvm.java.lang.Long.TYPE, jvm.java.lang.Integer.TYPE, jvm.java.lang.Byte.TYPE
    optional, optional_long = functions.find("java.util.Optional"), functions.find("java.util.OptionalLong")
    batch, file_batch = f"{INTERNAL}.RecordBatch", f"{INTERNAL}.FileLogInputStream$FileChannelRecordBatch"
    methods = {
        "position": (file_batch, "position", integer),
        "size": (batch, "sizeInBytes", integer),
        "magic": (batch, "magic", byte),
        "base_offset": (batch, "baseOffset", long),
        "last_offset": (batch, "lastOffset", long),
        "max_timestamp": (batch, "maxTimestamp", long),
        "leader_epoch": (batch, "partitionLeaderEpoch", integer),
        "records": (batch, "countOrNull", functions.find("java.lang.Integer")),
        "delete_horizon_ms": (batch, "deleteHorizonMs", optional_long),
    }
    found = {field: functions.method(*method) for field, method in methods.items()}
    limits = functions.record_bytes_max(batch, "offsetOfMaxTimestamp", 0)
    handle = functions.method(batch, "offsetOfMaxTimestamp", optional, *[integer] * len(limits))
    for limit in limits:
        handle = functions.bound(handle, 1, integer, limit)
    return {field: functions.function(each) for field, each in (found | {"offset_of_max_timestamp": handle}).items()}


class _OfRecord:
    """The functions that give a record's fields; the headers are a stream."""

    def __init__(self, jvm: Any, functions: Functions) -> None:
        def method(name: str, returns: Any) -> Any:
            return functions.method(f"{INTERNAL}.Record", name, returns)

        long, integer = jvm.java.lang.Long.TYPE, jvm.java.lang.Integer.TYPE
        buffer, headers = functions.find(_BYTE_BUFFER), functions.find(f"[L{_HEADER};")
        self.offset = functions.function(method("offset", long))
        self.timestamp = functions.function(method("timestamp", long))
        self.key_size = functions.function(method("keySize", integer))
        self.value_size = functions.function(method("valueSize", integer))
        self.key = functions.function(method("key", buffer))
        self.value = functions.function(method("value", buffer))
        self.headers_count = functions.function(method("headers", headers), functions.array_length(headers))
        self.headers = functions.function(method("headers", headers), functions.array_stream(headers))


class _OfHeader:
    """The functions that give a header's key and value as `ByteBuffer`s."""

    def __init__(self, jvm: Any, functions: Functions) -> None:
        string, array, buffer = (functions.find(name) for name in ("java.lang.String", "[B", _BYTE_BUFFER))
        encode = functions.method("java.nio.charset.Charset", "encode", buffer, string)
        utf8 = encode.bindTo(jvm.java.nio.charset.StandardCharsets.UTF_8)
        wrap = functions.static("org.apache.kafka.common.utils.Utils", "wrapNullable", buffer, array)
        self.key = functions.function(functions.method(_HEADER, "key", string), utf8)
        self.value = functions.function(functions.method(_HEADER, "value", array), wrap)


class KafkaRecords:
    """Kafka's `FileRecords` and `MemoryRecordsBuilder`."""

    def __init__(self, kafka: Kafka) -> None:
        self._jvm = jvm = kafka.gateway.jvm
        self._file_records = kafka.find(f"{INTERNAL}.FileRecords")
        self._compression = jvm.org.apache.kafka.common.compress.Compression
        self._codecs = kafka.find(f"{INTERNAL}.CompressionType")
        self._timestamp_type = jvm.org.apache.kafka.common.record.TimestampType
        self._header = jvm.org.apache.kafka.common.header.internals.RecordHeader
        self._to_list = jvm.org.apache.kafka.common.utils.Utils.toList
        self._file = jvm.java.io.File
        functions = kafka.functions
        self._byte_buffers = functions.find("[Ljava.nio.ByteBuffer;")
        self._header_class = functions.find(_HEADER)
        self._of_batch = _of_batch(jvm, functions)
        self._of_record = _OfRecord(jvm, functions)
        self._of_header = _OfHeader(jvm, functions)
        self._output = kafka.find("org.apache.kafka.common.utils.internals.ByteBufferOutputStream")
        self._memory_records = kafka.find(f"{INTERNAL}.MemoryRecords")
        self._builder = kafka.find(f"{INTERNAL}.MemoryRecordsBuilder")
        self._bytes_max = functions.record_bytes_max(f"{INTERNAL}.FileRecords", "searchForTimestamp", 3)
        self._remaining = functions.function(functions.method(_BYTE_BUFFER, "remaining", jvm.java.lang.Integer.TYPE))
        any_object, boolean = functions.find("java.lang.Object"), jvm.java.lang.Boolean.TYPE
        self._not_null = functions.predicate(functions.static("java.util.Objects", "nonNull", boolean, any_object))

    def batches(self, log: Path) -> list[KafkaBatch]:
        """All batches of a log; KafkaThrewError if one is malformed, or its records are."""
        return self._with(log, self._batches)

    def records(self, log: Path) -> list[Record]:
        """All records of a log; KafkaThrewError if one is malformed."""
        return self._with(log, self._records)

    def first_since(self, log: Path, timestamp: int, position: int, offset: int) -> tuple[int, int, int | None] | None:
        """`FileRecords.searchForTimestamp`: timestamp, offset and leader epoch."""

        def search(opened: Any) -> tuple[int, int, int | None] | None:
            answer = opened.searchForTimestamp(timestamp, position, offset, *self._bytes_max)
            if answer is None:
                return None
            epoch = get_field(answer, "leaderEpoch").orElse(None)
            return get_field(answer, "timestamp"), get_field(answer, "offset"), epoch

        return self._with(log, search)

    def _with(self, log: Path, ask: Callable[[Any], T]) -> T:
        try:
            opened = self._file_records.open(self._file(str(log.resolve())), False)
            try:
                return ask(opened)
            finally:
                opened.close()
        except Py4JJavaError as thrown:
            raise KafkaThrewError(str(thrown.java_exception.toString())) from None

    def _batches(self, opened: Any) -> list[KafkaBatch]:
        batches = self._to_list(opened.batches().iterator())
        columns = [_numbers(batches.stream().map(function)) for function in self._of_batch.values()]
        return [KafkaBatch(**dict(zip(self._of_batch, row, strict=True))) for row in zip(*columns, strict=True)]

    def _records(self, opened: Any) -> list[Record]:
        records = self._to_list(opened.records().iterator())
        of = self._of_record
        offsets, timestamps = _numbers(records.stream().map(of.offset)), _numbers(records.stream().map(of.timestamp))
        # Sizes have functions of their own: Kafka does not take them from the bytes.
        key_sizes, value_sizes = (_numbers(records.stream().map(function)) for function in (of.key_size, of.value_size))
        keys = self._split(records.stream().map(of.key), key_sizes)
        values = self._split(records.stream().map(of.value), value_sizes)
        counts = _numbers(records.stream().map(of.headers_count))
        headers: Iterator[Header] = iter(())
        if sum(counts):
            flat = records.stream().flatMap(of.headers).toList()
            header_keys = self._pieces(flat.stream().map(self._of_header.key))
            header_values = self._pieces(flat.stream().map(self._of_header.value))
            headers = iter(
                [Header((key or b"").decode(), value) for key, value in zip(header_keys, header_values, strict=True)]
            )
        return [
            Record(offset, timestamp, key, value, tuple(next(headers) for _ in range(count)))
            for offset, timestamp, key, value, count in zip(offsets, timestamps, keys, values, counts, strict=True)
        ]

    def _pieces(self, buffers: Any) -> list[bytes | None]:
        listed = buffers.collect(self._jvm.java.util.stream.Collectors.toList())
        are_null = [text == "null" for text in listed.toString()[1:-1].split(", ")]
        sizes = iter(_numbers(listed.stream().filter(self._not_null).map(self._remaining)))
        return self._split(listed.stream(), [-1 if is_null else next(sizes) for is_null in are_null])

    def _split(self, buffers: Any, sizes: list[int]) -> list[bytes | None]:
        """The bytes of a stream of `ByteBuffer`s of these sizes; a negative size stands for null."""
        not_null = buffers.filter(self._not_null).toList()
        array = self._jvm.java.util.Arrays.copyOf(not_null.toArray(), not_null.size(), self._byte_buffers)
        total = sum(size for size in sizes if size > 0)
        with tempfile.NamedTemporaryFile() as named:
            channel, written = self._jvm.java.io.FileOutputStream(named.name).getChannel(), 0
            while written < total:
                written += channel.write(array)
            channel.close()
            data = named.read()
        assert len(data) == total
        ends = accumulate(max(size, 0) for size in sizes)
        return [None if size < 0 else data[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def readable(self, data: bytes) -> Any:
        """Kafka's `MemoryRecords` of the bytes of batches."""
        return self._memory_records.readableRecords(self._jvm.java.nio.ByteBuffer.wrap(data))

    def write(self, batch: NewBatch) -> bytes:
        """The bytes that `MemoryRecordsBuilder` writes."""
        size = 1024 + sum(len(record.key or b"") + len(record.value or b"") + 200 for record in batch.records)
        types = self._timestamp_type
        timestamp_type = types.CREATE_TIME if batch.log_append_time is None else types.LOG_APPEND_TIME
        if batch.magic == 0:
            timestamp_type = types.NO_TIMESTAMP_TYPE
        builder = self._builder(
            self._output(size),
            batch.magic,
            self._compression.of(self._codecs.forName(batch.codec)).build(),
            timestamp_type,
            batch.base_offset,
            -1 if batch.log_append_time is None else batch.log_append_time,
            -1,
            -1,
            -1,
            False,
            False,
            -1,
            size,
            -1 if batch.delete_horizon_ms is None else batch.delete_horizon_ms,
        )
        for record in batch.records:
            headers = self._jvm.java.lang.reflect.Array.newInstance(self._header_class, len(record.headers))
            for number, header in enumerate(record.headers):
                headers[number] = self._header(header.key, header.value)
            builder.appendWithOffset(record.offset, record.timestamp, record.key, record.value, headers)
        return bytes(self._jvm.org.apache.kafka.common.utils.Utils.toArray(builder.build().buffer()))


def _numbers(stream: Any) -> list[Any]:
    """The numbers of a Java stream, nulls and empty `Optional`s as None."""
    text = stream.toList().toString()
    for name in ("OptionalLong", "Optional"):
        text = text.replace(f"{name}.empty", "null").replace(f"{name}[", "[")
    return [value[0] if isinstance(value, list) else value for value in json.loads(text)]
