"""`LogSegment.recover` in a page of plain Python: what the compiled loop must agree with, written to be checked by eye.

Read it beside Kafka's source (4.3.1): names and the order of steps are Kafka's, and numbers wrap where Java's do. It
shares the layouts with `kidxlib.kernels` and nothing else, and is far too slow for anything but tests.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

from kidxlib import formats
from kidxlib.recover import RecoverOptions


class CorruptRecordError(Exception):
    """Kafka's `CorruptRecordException`: recover catches it and cuts the log there. The message is the end's reason."""


class RecoverFailedError(Exception):
    """Whatever else Kafka's recover throws. The message is the end's reason."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A v2 batch, or a v0 or v1 message: all its bytes, and the fields of its header by name."""

    data: bytes
    header: dict[str, int]

    @property
    def is_v2(self) -> bool:
        return self.header["magic"] >= formats.MAGIC_V2

    @property
    def last_offset(self) -> int:
        if self.is_v2:
            return _long(self.header["base_offset"] + self.header["last_offset_delta"])
        return self.header["offset"]

    @property
    def max_timestamp(self) -> int:
        if self.is_v2:
            return self.header["max_timestamp"]
        return formats.NO_TIMESTAMP if self.header["magic"] == 0 else self.header["timestamp"]

    def ensure_valid(self, verify_crc: bool) -> None:
        if self.is_v2 and len(self.data) < formats.BATCH_V2_BYTES_MIN:
            raise CorruptRecordError("batch-too-small")
        crc = google_crc32c.value(self.data[21:]) if self.is_v2 else zlib.crc32(self.data[16:])
        if verify_crc and crc != self.header["crc"]:
            raise CorruptRecordError("crc-mismatch")


def batches(log: bytes) -> Iterator[Batch]:
    """`FileLogInputStream.nextBatch` until it gives none."""
    position = 0
    while position < len(log) - formats.HEADER_SIZE_UP_TO_MAGIC:
        # Zeros stand in for what a short file lacks; none of them is used.
        head = log[position : position + formats.BATCH_V2.itemsize].ljust(formats.BATCH_V2.itemsize, b"\0")
        header = _fields(head, formats.BATCH_V2)
        if header["batch_length"] < formats.ENTRY_SIZE_MIN:
            raise CorruptRecordError("size-too-small")
        size_in_bytes = formats.LOG_OVERHEAD + header["batch_length"]
        if position > len(log) - size_in_bytes:
            return
        if header["magic"] < formats.MAGIC_V2:
            header = _fields(head, formats.MESSAGE_V1)
        yield Batch(log[position : position + size_in_bytes], header)
        position += size_in_bytes


@dataclass(slots=True)
class Index:
    """The entries of an `OffsetIndex` (offset, position) or of a `TimeIndex` (timestamp, offset)."""

    max_entries: int
    entries: list[tuple[int, int]] = field(default_factory=list)

    def append(self, offset: int, position: int) -> None:
        if len(self.entries) >= self.max_entries:
            raise RecoverFailedError("offset-index-full")
        if self.entries and offset <= self.entries[-1][0]:
            raise RecoverFailedError("offset-not-increasing")
        self.entries.append((offset, position))

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
        if not skip_full_check and len(self.entries) >= self.max_entries - 1:
            raise RecoverFailedError("time-index-full")
        last_timestamp, last_offset = self.entries[-1] if self.entries else (formats.NO_TIMESTAMP, offset)
        if offset < last_offset:
            raise RecoverFailedError("time-index-offset-decreasing")
        if timestamp > last_timestamp:
            self.entries.append((timestamp, offset))


@dataclass(slots=True)
class Recovered:
    """What `LogSegment.recover` makes of a log; where it fails, as the failure left it.

    `reason` is `ScanEnd.reason`, `valid` are the batches before the end, whose bytes come to `valid_bytes`.
    """

    offset_index: bytes = b""
    time_index: bytes = b""
    reason: str | None = None
    valid_bytes: int = 0
    valid: list[Batch] = field(default_factory=list)


def recover_reference(log: bytes, base_offset: int, options: RecoverOptions) -> Recovered:
    """`LogSegment.recover`: the loop and what follows it; then the bytes of the two files."""
    segment = Recovered()
    offset_index = Index(options.max_index_bytes // formats.OFFSET_INDEX_ENTRY.itemsize)
    time_index = Index(options.max_index_bytes // formats.TIME_INDEX_ENTRY.itemsize)
    last_index_entry = 0
    max_so_far = (formats.NO_TIMESTAMP, -1)  # maxTimestampAndOffsetSoFar
    try:
        try:
            for batch in batches(log):
                batch.ensure_valid(options.verify_crc)
                if not 0 <= _long(batch.last_offset - base_offset) <= formats.RELATIVE_OFFSET_MAX:
                    raise RecoverFailedError("offset-overflow")
                if batch.max_timestamp > max_so_far[0]:
                    max_so_far = (batch.max_timestamp, batch.last_offset)
                if segment.valid_bytes - last_index_entry > options.interval_bytes:
                    offset_index.append(batch.last_offset, segment.valid_bytes)
                    time_index.maybe_append(*max_so_far)
                    last_index_entry = segment.valid_bytes
                segment.valid_bytes += len(batch.data)
                segment.valid.append(batch)
            segment.reason = _left_over(len(log) - segment.valid_bytes)
        except CorruptRecordError as error:
            segment.reason = str(error)
        time_index.maybe_append(*max_so_far, skip_full_check=True)
    except RecoverFailedError as error:
        segment.reason = str(error)

    offset_entries = [(_long(offset - base_offset), position) for offset, position in offset_index.entries]
    time_entries = [(timestamp, _long(offset - base_offset)) for timestamp, offset in time_index.entries]
    segment.offset_index = np.array(offset_entries, formats.OFFSET_INDEX_ENTRY).tobytes()
    segment.time_index = np.array(time_entries, formats.TIME_INDEX_ENTRY).tobytes()
    return segment


def _left_over(size: int) -> str | None:
    """The reason for an end that Kafka takes without an error."""
    if size == 0:
        return None
    return "trailing-bytes" if size <= formats.HEADER_SIZE_UP_TO_MAGIC else "batch-overruns-file"


def _fields(head: bytes, layout: np.dtype[np.void]) -> dict[str, int]:
    assert layout.names is not None
    return dict(zip(layout.names, np.frombuffer(head, layout, count=1)[0].tolist(), strict=True))


def _long(value: int) -> int:
    """`value` as Java's 64-bit arithmetic gives it."""
    return (value + 2**63) % 2**64 - 2**63
