"""What Kafka's own classes read from a log: its batches, and the records inside them.

A call through py4j takes a quarter of a millisecond, a record has a dozen things to ask for, and a segment thousands of
records. So Java does the asking: method handles, made into functions, are mapped over all records of a log at once. Out
come a few lists of numbers, and bytes that Java writes to a file one after the other.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kidxlib.records import Header, Record

T = TypeVar("T")


class KafkaThrewError(Exception):
    """Kafka's exception: its class and message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaBatch:
    """What a batch says of itself, decompressed where it has to be.

    Attributes:
        leader_epoch: of the partition's leader; −1 is none.
        records: None of a v0 or v1 message.
        offset_of_max_timestamp: None where no record has it.
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
        codec: its name, an element of `formats.CODECS`.
        log_append_time: the timestamp of all records; None for CreateTime.
        delete_horizon_ms: None for none; magic 2 only.
    """

    magic: int
    codec: str
    base_offset: int
    records: Sequence[Record]
    log_append_time: int | None = None
    delete_horizon_ms: int | None = None


class KafkaRecords:
    """Kafka's `FileRecords` and `MemoryRecordsBuilder`."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._find, self._method_type = jvm.java.lang.Class.forName, jvm.java.lang.invoke.MethodType.methodType
        self._handles = jvm.java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        internal = "org.apache.kafka.common.record.internal"
        self._file_records = jvm.org.apache.kafka.common.record.internal.FileRecords
        self._compression = jvm.org.apache.kafka.common.compress.Compression
        self._codecs = jvm.org.apache.kafka.common.record.internal.CompressionType
        self._timestamp_type = jvm.org.apache.kafka.common.record.TimestampType
        self._header = jvm.org.apache.kafka.common.header.internals.RecordHeader
        self._to_list = jvm.org.apache.kafka.common.utils.Utils.toList
        self._file, self._byte_buffer = jvm.java.io.File, jvm.java.nio.ByteBuffer
        self._byte_buffer_class = self._find("java.nio.ByteBuffer")
        self._header_class = self._find("org.apache.kafka.common.header.Header")

        record, batch, buffer = f"{internal}.Record", f"{internal}.RecordBatch", "java.nio.ByteBuffer"
        file_batch = f"{internal}.FileLogInputStream$FileChannelRecordBatch"
        header, long, integer = (
            "org.apache.kafka.common.header.Header",
            jvm.java.lang.Long.TYPE,
            jvm.java.lang.Integer.TYPE,
        )
        byte = jvm.java.lang.Byte.TYPE
        self._offset = self._function(self._method(record, "offset", long))
        self._timestamp = self._function(self._method(record, "timestamp", long))
        self._key_size = self._function(self._method(record, "keySize", integer))
        self._value_size = self._function(self._method(record, "valueSize", integer))
        self._key = self._function(self._method(record, "key", self._byte_buffer_class))
        self._value = self._function(self._method(record, "value", self._byte_buffer_class))
        headers = self._method(record, "headers", self._find(f"[L{header};"))
        self._headers_count = self._function(
            self._handles.filterReturnValue(headers, self._handles.arrayLength(self._find(f"[L{header};")))
        )
        stream_of = self._lookup.findStatic(
            self._find("java.util.Arrays"),
            "stream",
            self._method_type(self._find("java.util.stream.Stream"), self._find("[Ljava.lang.Object;")),
        )
        self._headers = self._function(
            self._handles.filterReturnValue(
                headers,
                stream_of.asType(self._method_type(self._find("java.util.stream.Stream"), self._find(f"[L{header};"))),
            )
        )
        utf8 = self._lookup.findVirtual(
            self._find("java.nio.charset.Charset"),
            "encode",
            self._method_type(self._byte_buffer_class, self._find("java.lang.String")),
        ).bindTo(jvm.java.nio.charset.StandardCharsets.UTF_8)
        wrap = self._lookup.findStatic(
            self._find("org.apache.kafka.common.utils.Utils"),
            "wrapNullable",
            self._method_type(self._byte_buffer_class, self._find("[B")),
        )
        self._header_key = self._function(
            self._handles.filterReturnValue(self._method(header, "key", self._find("java.lang.String")), utf8)
        )
        self._header_value = self._function(
            self._handles.filterReturnValue(self._method(header, "value", self._find("[B")), wrap)
        )
        self._remaining = self._function(self._method(buffer, "remaining", integer))
        self._not_null = self._proxy(
            "java.util.function.Predicate",
            self._lookup.findStatic(
                self._find("java.util.Objects"),
                "nonNull",
                self._method_type(jvm.java.lang.Boolean.TYPE, self._find("java.lang.Object")),
            ),
        )
        optional, optional_long = self._find("java.util.Optional"), self._find("java.util.OptionalLong")
        self._batch_fields = {
            "position": self._function(self._method(file_batch, "position", integer)),
            "size": self._function(self._method(batch, "sizeInBytes", integer)),
            "magic": self._function(self._method(batch, "magic", byte)),
            "base_offset": self._function(self._method(batch, "baseOffset", long)),
            "last_offset": self._function(self._method(batch, "lastOffset", long)),
            "max_timestamp": self._function(self._method(batch, "maxTimestamp", long)),
            "leader_epoch": self._function(self._method(batch, "partitionLeaderEpoch", integer)),
            "records": self._function(self._method(batch, "countOrNull", self._find("java.lang.Integer"))),
            "delete_horizon_ms": self._function(self._method(batch, "deleteHorizonMs", optional_long)),
            "offset_of_max_timestamp": self._function(self._method(batch, "offsetOfMaxTimestamp", optional)),
        }

    def _method(self, class_name: str, name: str, returns: Any) -> Any:
        return self._lookup.findVirtual(self._find(class_name), name, self._method_type(returns))

    def _function(self, handle: Any) -> Any:
        return self._proxy("java.util.function.Function", handle)

    def _proxy(self, interface: str, handle: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._find(interface), handle)

    def batches(self, log: Path) -> list[KafkaBatch]:
        """All batches of a log.

        Raises:
            KafkaThrewError: one is malformed, or its records are.
        """
        return self._with(log, self._batches)

    def records(self, log: Path) -> list[Record]:
        """All records of a log.

        Raises:
            KafkaThrewError: one is malformed.
        """
        return self._with(log, self._records)

    def first_since(self, log: Path, timestamp: int, position: int, offset: int) -> tuple[int, int, int | None] | None:
        """`FileRecords.searchForTimestamp`: timestamp, offset and leader epoch."""

        def search(opened: Any) -> tuple[int, int, int | None] | None:
            found = opened.searchForTimestamp(timestamp, position, offset)
            return (
                None
                if found is None
                else (
                    get_field(found, "timestamp"),
                    get_field(found, "offset"),
                    get_field(found, "leaderEpoch").orElse(None),
                )
            )

        return self._with(log, search)

    def _with(self, log: Path, ask: Callable[[Any], T]) -> T:
        """What `ask` makes of the opened log."""
        try:
            opened = self._file_records.open(self._file(str(log.resolve())), False)
            try:
                return ask(opened)
            finally:
                opened.close()
        except Py4JJavaError as thrown:
            raise KafkaThrewError(str(thrown.java_exception.toString())) from None

    def _batches(self, opened: Any) -> list[KafkaBatch]:
        found = self._to_list(opened.batches().iterator())
        columns = [_numbers(found.stream().map(function)) for function in self._batch_fields.values()]
        return [KafkaBatch(**dict(zip(self._batch_fields, row, strict=True))) for row in zip(*columns, strict=True)]

    def _records(self, opened: Any) -> list[Record]:
        found = self._to_list(opened.records().iterator())
        offsets, timestamps = _numbers(found.stream().map(self._offset)), _numbers(found.stream().map(self._timestamp))
        # Sizes are asked for by themselves: Kafka has them from elsewhere than the bytes.
        key_sizes, value_sizes = (
            _numbers(found.stream().map(function)) for function in (self._key_size, self._value_size)
        )
        keys = self._split(found.stream().map(self._key), key_sizes)
        values = self._split(found.stream().map(self._value), value_sizes)
        counts = _numbers(found.stream().map(self._headers_count))
        headers: Iterator[Header] = iter(())
        if sum(counts):
            flat = found.stream().flatMap(self._headers).toList()
            header_keys = self._pieces(flat.stream().map(self._header_key))
            header_values = self._pieces(flat.stream().map(self._header_value))
            headers = iter(
                [Header((key or b"").decode(), value) for key, value in zip(header_keys, header_values, strict=True)]
            )
        return [
            Record(offset, timestamp, key, value, tuple(next(headers) for _ in range(count)))
            for offset, timestamp, key, value, count in zip(offsets, timestamps, keys, values, counts, strict=True)
        ]

    def _pieces(self, buffers: Any) -> list[bytes | None]:
        listed = buffers.collect(self._jvm.java.util.stream.Collectors.toList())
        nothing = [text == "null" for text in listed.toString()[1:-1].split(", ")]
        sizes = iter(_numbers(listed.stream().filter(self._not_null).map(self._remaining)))
        return self._split(listed.stream(), [-1 if none else next(sizes) for none in nothing])

    def _split(self, buffers: Any, sizes: list[int]) -> list[bytes | None]:
        """The bytes of `buffers`, a stream of `ByteBuffer`s, of these sizes; None where the size is negative."""
        there = buffers.filter(self._not_null).toList()
        array = self._jvm.java.util.Arrays.copyOf(there.toArray(), there.size(), self._find("[Ljava.nio.ByteBuffer;"))
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

    def write(self, batch: NewBatch) -> bytes:
        """The batch as `MemoryRecordsBuilder` writes it."""
        size = 1024 + sum(len(record.key or b"") + len(record.value or b"") + 200 for record in batch.records)
        types = self._timestamp_type
        timestamp_type = types.CREATE_TIME if batch.log_append_time is None else types.LOG_APPEND_TIME
        if batch.magic == 0:
            timestamp_type = types.NO_TIMESTAMP_TYPE
        builder = self._jvm.org.apache.kafka.common.record.internal.MemoryRecordsBuilder(
            self._jvm.org.apache.kafka.common.utils.ByteBufferOutputStream(size),
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
