"""`LogSegment.recover` in a page of plain Python: what the compiled loop must agree with, written to be checked by eye.

Read it beside Kafka's source (4.3.1): names and the order of steps are Kafka's, and numbers wrap where Java's do. It
shares the layouts with `kidxlib.recovery.scan` and nothing else, fills indexes through their own classes, and is far
too slow for anything but tests.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

from kidxlib.errors import IndexFullError, InvalidOffsetError
from kidxlib.format import layouts
from kidxlib.index.offset import OffsetIndex
from kidxlib.index.time import TimeIndex
from kidxlib.java import as_long
from kidxlib.recovery.options import RecoverOptions


class CorruptRecordError(Exception):
    """Kafka's `CorruptRecordException`: recover catches it and truncates the log there. The message is the end's
    reason.
    """


class InvalidRecordError(Exception):
    """Kafka's `InvalidRecordException`: recover catches it too, but has counted the batch by then."""


class RecoverFailedError(Exception):
    """Whatever else Kafka's recover throws. The message is the end's reason."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A v2 batch, or a v0 or v1 message: all its bytes, and the fields of its header by name."""

    data: bytes
    header: dict[str, int]

    @property
    def is_v2(self) -> bool:
        return self.header["magic"] >= layouts.MAGIC_V2

    @property
    def last_offset(self) -> int:
        if self.is_v2:
            return as_long(self.header["base_offset"] + self.header["last_offset_delta"])
        return self.header["offset"]

    @property
    def max_timestamp(self) -> int:
        if self.is_v2:
            return self.header["max_timestamp"]
        return layouts.NO_TIMESTAMP if self.header["magic"] == 0 else self.header["timestamp"]

    def ensure_valid(self, verify_crc: bool) -> None:
        if self.is_v2 and len(self.data) < layouts.BATCH_V2_BYTES_MIN:
            raise CorruptRecordError("batch-too-small")
        crc = google_crc32c.value(self.data[21:]) if self.is_v2 else zlib.crc32(self.data[16:])
        if verify_crc and crc != self.header["crc"]:
            raise CorruptRecordError("crc-mismatch")


def read_control_batch(batch: Batch) -> tuple[int, int, int] | None:
    """The first record of a control batch, as `ProducerAppendInfo.append` reads it: its type (0 abort, 1 commit), the
    coordinator epoch and the timestamp; None where compaction has emptied it.
    """
    count, attributes = batch.header["records_count"], batch.header["attributes"]
    if count == 0:
        return None
    if attributes & layouts.ATTRIBUTE_CODEC:
        raise RecoverFailedError("compressed-control-batch")  # not Kafka's: it decompresses
    if len(batch.data) > 64 * 1024:
        raise RecoverFailedError("control-batch-too-large")  # not Kafka's either
    if count < 0:
        raise InvalidRecordError
    reader = Reader(batch.data[layouts.BATCH_V2_BYTES_MIN :])
    key, value, timestamp_delta = read_record(reader)
    if count == 1 and reader.remaining:
        raise InvalidRecordError
    control_type, coordinator_epoch = read_marker(key, value)
    timestamp = batch.header["max_timestamp"]
    if not attributes & layouts.ATTRIBUTE_LOG_APPEND_TIME:
        timestamp = as_long(batch.header["base_timestamp"] + timestamp_delta)
    return control_type, coordinator_epoch, timestamp


def read_record(reader: Reader) -> tuple[bytes | None, bytes | None, int]:
    """`DefaultRecord.readFrom`: key, value and timestamp delta."""
    size = reader.varint(bits=32, too_long=RecoverFailedError("malformed-control-record"))
    start = reader.position
    if size > reader.remaining:
        raise InvalidRecordError
    reader.take(1)  # attributes
    timestamp_delta = reader.varint(bits=64)
    reader.varint(bits=32)  # offset delta
    key, value = reader.sized_bytes(), reader.sized_bytes()
    headers = reader.varint(bits=32)
    if not 0 <= headers <= reader.remaining:
        raise InvalidRecordError
    for _ in range(headers):
        if reader.sized_bytes() is None:
            raise InvalidRecordError
        reader.sized_bytes()
    if reader.position - start != size:
        raise InvalidRecordError
    return key, value, timestamp_delta


def read_marker(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """`EndTransactionMarker.deserialize`: type and coordinator epoch."""
    if key is None:
        raise RecoverFailedError("malformed-control-record")
    if len(key) < layouts.CONTROL_KEY_BYTES or int.from_bytes(key[:2], signed=True) < 0:
        raise InvalidRecordError
    control_type = int.from_bytes(key[2:4], signed=True)
    if control_type not in (layouts.CONTROL_TYPE_ABORT, layouts.CONTROL_TYPE_COMMIT):
        raise RecoverFailedError("unknown-control-type")
    if value is None or len(value) < 2:
        raise RecoverFailedError("malformed-control-record")
    if int.from_bytes(value[:2], signed=True) < 0:
        raise InvalidRecordError
    if len(value) < layouts.MARKER_VALUE_BYTES:
        raise RecoverFailedError("malformed-control-record")
    return control_type, int.from_bytes(value[2:6], signed=True)


def is_readable(batch: Batch) -> bool:
    """Whether recovery can make use of it; it looks into nothing but the control batches of producers."""
    if not (
        batch.is_v2 and batch.header["attributes"] & layouts.ATTRIBUTE_CONTROL and batch.header["producer_id"] >= 0
    ):
        return True
    try:
        read_control_batch(batch)
    except InvalidRecordError:
        return False
    return True


@dataclass(slots=True)
class Reader:
    """Kafka's way through the bytes of a record; reading past their end is an invalid record."""

    data: bytes
    position: int = 0

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        if size > self.remaining:
            raise InvalidRecordError
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, bits: int, too_long: Exception | None = None) -> int:
        """`ByteUtils.readVarint` (32 bits, five bytes at most) and `readVarlong` (64 bits, ten)."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > bits - 1:
                raise too_long or InvalidRecordError
        value &= (1 << bits) - 1
        return value >> 1 if value & 1 == 0 else -(value >> 1) - 1

    def sized_bytes(self) -> bytes | None:
        size = self.varint(bits=32)
        return None if size < 0 else self.take(size)


def batches(log: bytes) -> Iterator[Batch]:
    """`FileLogInputStream.nextBatch` until it gives none."""
    position = 0
    while position < len(log) - layouts.HEADER_SIZE_UP_TO_MAGIC:
        # Zeros stand in for what a short file lacks; none of them is used.
        head = log[position : position + layouts.BATCH_V2.itemsize].ljust(layouts.BATCH_V2.itemsize, b"\0")
        header = _fields(head, layouts.BATCH_V2)
        if header["batch_length"] < layouts.ENTRY_SIZE_MIN:
            raise CorruptRecordError("size-too-small")
        size_in_bytes = layouts.LOG_OVERHEAD + header["batch_length"]
        if position > len(log) - size_in_bytes:
            return
        if header["magic"] < layouts.MAGIC_V2:
            header = _fields(head, layouts.MESSAGE_V1)
        yield Batch(log[position : position + size_in_bytes], header)
        position += size_in_bytes


def append_offset(index: OffsetIndex, offset: int, position: int) -> None:
    """`OffsetIndex.append`."""
    try:
        index.append(offset, position)
    except IndexFullError:
        raise RecoverFailedError("offset-index-full") from None
    except InvalidOffsetError:
        raise RecoverFailedError("offset-not-increasing") from None


def append_time(index: TimeIndex, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
    """`TimeIndex.maybeAppend`."""
    try:
        index.maybe_append(timestamp, offset, skip_full_check)
    except IndexFullError:
        raise RecoverFailedError("time-index-full") from None
    except InvalidOffsetError:
        raise RecoverFailedError("time-index-offset-decreasing") from None


@dataclass(slots=True)
class Recovered:
    """What `LogSegment.recover` makes of a log; where it fails, as the failure left it.

    `reason` is `ScanEnd.reason`, `valid` are the batches before the end, whose bytes come to `valid_bytes`, and
    `map_end_offset` is that of `ProducerStateManager`, None where no batch has moved it. `log` and `verify_crc` are
    what it was given.
    """

    log: bytes
    verify_crc: bool

    offset_index: bytes = b""
    time_index: bytes = b""
    reason: str | None = None
    valid_bytes: int = 0
    valid: list[Batch] = field(default_factory=list)
    map_end_offset: int | None = None


def recover_reference(log: bytes, base_offset: int, options: RecoverOptions) -> Recovered:
    """`LogSegment.recover`: the loop and what follows it, on Kafka's index classes as they are written here again."""
    segment = Recovered(log=log, verify_crc=options.verify_crc)
    offset_index = OffsetIndex.new(base_offset, options.max_index_bytes)
    time_index = TimeIndex.new(base_offset, options.max_index_bytes)
    last_index_entry = 0
    max_so_far = (layouts.NO_TIMESTAMP, -1)  # maxTimestampAndOffsetSoFar
    try:
        try:
            for batch in batches(log):
                batch.ensure_valid(options.verify_crc)
                if not offset_index.can_append_offset(batch.last_offset):
                    raise RecoverFailedError("offset-overflow")
                if batch.max_timestamp > max_so_far[0]:
                    max_so_far = (batch.max_timestamp, batch.last_offset)
                if segment.valid_bytes - last_index_entry > options.interval_bytes:
                    append_offset(offset_index, batch.last_offset, segment.valid_bytes)
                    append_time(time_index, *max_so_far)
                    last_index_entry = segment.valid_bytes
                readable = is_readable(batch)
                segment.valid_bytes += len(batch.data)
                segment.valid.append(batch)
                if not readable:
                    segment.reason = "invalid-control-record"
                    break
                if batch.is_v2:
                    segment.map_end_offset = as_long(batch.last_offset + 1)
            else:
                segment.reason = _left_over(len(log) - segment.valid_bytes)
        except CorruptRecordError as error:
            segment.reason = str(error)
        append_time(time_index, *max_so_far, skip_full_check=True)
    except RecoverFailedError as error:
        segment.reason = str(error)

    offset_index.trim_to_valid_size()
    time_index.trim_to_valid_size()
    segment.offset_index = offset_index.to_bytes()
    segment.time_index = time_index.to_bytes()
    return segment


def _left_over(size: int) -> str | None:
    """The reason for an end that Kafka takes without an error."""
    if size == 0:
        return None
    return "trailing-bytes" if size <= layouts.HEADER_SIZE_UP_TO_MAGIC else "batch-overruns-file"


def _fields(head: bytes, layout: np.dtype[np.void]) -> dict[str, int]:
    assert layout.names is not None
    return dict(zip(layout.names, np.frombuffer(head, layout, count=1)[0].tolist(), strict=True))
