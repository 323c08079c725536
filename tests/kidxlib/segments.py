"""Log segments built batch by batch, sound and damaged, and memory that shows a read outside of them."""

from __future__ import annotations

import ctypes
import mmap
import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

import google_crc32c
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from kidxlib import formats
from kidxlib.recover import MAX_INDEX_BYTES_DEFAULT, RecoverOptions
from kidxlib.storage import ChunkedLog, LogBytes, WholeLog
from tests.kidxlib.v2_records import record

#: What batches are filled with. Recovery never looks at records, so any bytes do.
FILLER: Final = random.Random(7).randbytes(8192)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A v2 batch, or a v0 or v1 message, to be laid down.

    Attributes:
        offset_step: its last offset less that of the batch before it.
        last_offset_delta: its last offset less its base offset (v2).
        timestamp: what its header says is the largest in it (v1, v2).
        body: what follows the header.
        crc_error: the bits of its checksum that are wrong.
        size: what its size field says, if not the truth.
        bytes_kept: how many of its bytes there are; size and checksum fit them.
        producer_id, producer_epoch, base_sequence: who wrote it (v2).
        base_timestamp: what the timestamps of its records count from (v2); None for anything.
    """

    magic: int = formats.MAGIC_V2
    offset_step: int = 1
    last_offset_delta: int = 0
    timestamp: int = formats.NO_TIMESTAMP
    leader_epoch: int = formats.NO_LEADER_EPOCH
    attributes: int = 0
    records: int = 1
    body: bytes = field(default=FILLER[:39], repr=False)
    crc_error: int = 0
    size: int | None = None
    bytes_kept: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    base_timestamp: int | None = None

    def encode(self, last_offset: int) -> bytes:
        checksum: Callable[[bytes], int]
        if self.magic >= formats.MAGIC_V2:
            base_offset = _long(last_offset - self.last_offset_delta)
            base_timestamp = _long(~self.timestamp) if self.base_timestamp is None else self.base_timestamp
            until_crc = (base_offset, 0, self.leader_epoch, self.magic, 0)
            times = (self.attributes, self.last_offset_delta, base_timestamp, self.timestamp)
            producer = (self.producer_id, self.producer_epoch, self.base_sequence)
            header = np.array((*until_crc, *times, *producer, self.records), formats.BATCH_V2).tobytes()
            covered, checksum = formats.field_position(formats.BATCH_V2, "attributes"), google_crc32c.value
        else:
            message = (last_offset, 0, 0, self.magic, self.attributes, self.timestamp)
            header = np.array(message, formats.MESSAGE_V1).tobytes()
            if self.magic == 0:
                header = header[: formats.field_position(formats.MESSAGE_V1, "timestamp")]
            covered, checksum = formats.field_position(formats.MESSAGE_V1, "magic"), zlib.crc32
        data = bytearray((header + self.body)[: self.bytes_kept])
        size = len(data) - formats.LOG_OVERHEAD if self.size is None else self.size
        data[8 : formats.LOG_OVERHEAD] = size.to_bytes(4, signed=True)
        data[covered - 4 : covered] = (checksum(bytes(data[covered:])) ^ self.crc_error).to_bytes(4)
        return bytes(data)


def encode(base_offset: int, batches: Iterable[Batch]) -> list[bytes]:
    """The batches one after the other; the first step counts from before the base offset. Offsets wrap as Java's do."""
    encoded = []
    offset = base_offset - 1
    for batch in batches:
        offset = _long(offset + batch.offset_step)
        encoded.append(batch.encode(offset))
    return encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A log and what it is to be recovered with."""

    log: bytes
    base_offset: int = 0
    options: RecoverOptions = field(default_factory=RecoverOptions)


_INT32_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1

_BASE_OFFSETS: Final = st.sampled_from([0, 0, 42, 2**31 + 5, 2**62, _LONG_MAX - 2**31])

_BODIES: Final = st.sampled_from([8, 9, 16, 17, 18, 35, 60, 61, 97, 200, 500, 4100]).map(lambda size: FILLER[-size:])


def control(
    key: bytes | None = b"\0\0\0\1",
    value: bytes | None = bytes(6),
    *,
    behind: bytes = b"",
    codec: int = 0,
    records: int = 1,
) -> dict[str, Any]:
    """What makes a `Batch` a producer's control batch: with these defaults a commit marker of 78 bytes, as Kafka's."""
    return {
        "producer_id": 7,
        "producer_epoch": 0,
        "attributes": formats.ATTRIBUTE_TRANSACTIONAL | formats.ATTRIBUTE_CONTROL | codec,
        "records": records,
        "body": record(key, value) + behind,
    }


_SOUND_BATCHES: Final = st.builds(
    Batch,
    magic=st.sampled_from([2, 2, 2, 1, 1, 0, 3, -1]),
    offset_step=st.integers(-9, 20),
    last_offset_delta=st.integers(0, 20),
    timestamp=st.integers(-2, 30),
    leader_epoch=st.sampled_from([-1, 0, 1, 2, 7, -7, _INT32_MAX]),
    attributes=st.integers(-128, 127),
    records=st.sampled_from([0, 1, 5, _INT32_MAX, -1]),
    body=_BODIES,
)

#: What can be wrong with, or odd about, one batch.
_BATCH_FAULTS: Final = st.one_of(
    st.fixed_dictionaries({"crc_error": st.sampled_from([1, 0x80000000, 0xFFFFFFFF])}),
    st.fixed_dictionaries({"offset_step": st.sampled_from([0, -1, -30, -(2**31), _INT32_MAX, 2**32, 2**63])}),
    st.fixed_dictionaries({"offset_step": st.sampled_from([-20, -60, -1]), "timestamp": st.just(2**41)}),
    st.fixed_dictionaries({"timestamp": st.sampled_from([2**42, _LONG_MAX, -_LONG_MAX - 1])}),
    st.fixed_dictionaries({"last_offset_delta": st.sampled_from([-1, -_INT32_MAX - 1, _INT32_MAX])}),
    st.fixed_dictionaries({"magic": st.sampled_from([62, 63, 127, -128])}),
    st.fixed_dictionaries({"size": st.sampled_from([0, 13, 14, 15, 48, 49, 1000, _INT32_MAX, -1, -_INT32_MAX - 1])}),
    st.fixed_dictionaries({"magic": st.sampled_from([1, 2, 3]), "bytes_kept": st.sampled_from([25, 26, 27, 60, 61])}),
    st.builds(
        control,
        st.sampled_from([None, b"", bytes(3), bytes(4), b"\0\0\0\2", b"\xff\0\0\1", b"\0\5\0\1", b"\0\0\xff\0"]),
        st.sampled_from([None, b"", bytes(1), bytes(2), bytes(5), bytes(6), b"\xff\0\0\0\0\0", bytes(9)]),
        behind=st.sampled_from([b"", b"", b"", b"\0"]),
        codec=st.sampled_from([0, 0, 0, 1]),
        records=st.sampled_from([1, 1, 1, 0, 2, -1]),
    ),
    st.builds(lambda fault, body: {**fault, "body": body}, st.builds(control), st.binary(max_size=20)),
)


def _flip_bit(log: bytes, place: int) -> bytes:
    flipped = bytearray(log)
    if flipped:
        flipped[place // 8 % len(log)] ^= 1 << place % 8
    return bytes(flipped)


def _cut(log: bytes, place: int) -> bytes:
    return log[: place % (len(log) + 1)]


def _zero_tail(log: bytes, place: int) -> bytes:
    return log + bytes(place % 5000)


def _garbage_tail(log: bytes, place: int) -> bytes:
    return log + FILLER[: (1, 16, 17, 18, 19, 61, 300)[place % 7]]


#: What can be wrong with a file, wherever that hits.
_FILE_FAULTS: Final = st.tuples(
    st.sampled_from([_flip_bit, _cut, _zero_tail, _garbage_tail]), st.integers(0, 2**20).map(lambda place: place * 977)
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Up to 60 batches of mixed formats, most of them sound; options that put decisions where the batches are."""
    base_offset = draw(_BASE_OFFSETS)
    batches = draw(st.one_of(st.lists(_SOUND_BATCHES, min_size=20, max_size=60), st.lists(_SOUND_BATCHES, max_size=8)))
    least_step, clock_step = draw(st.sampled_from([1, 1, -9])), draw(st.sampled_from([3, 100, 0, None]))
    batches = [
        replace(
            batch,
            offset_step=(step := max(batch.offset_step, least_step if number else 1)),
            last_offset_delta=min(batch.last_offset_delta, max(step - 1, 0)),
            timestamp=formats.NO_TIMESTAMP if clock_step is None else batch.timestamp + number * clock_step,
        )
        for number, batch in enumerate(batches)
    ]
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3])) if batches else 0):
        place = draw(st.one_of(st.integers(0, len(batches) - 1), st.just(-1)))
        batches[place] = replace(batches[place], **draw(_BATCH_FAULTS))
    encoded = encode(base_offset, batches)
    log = b"".join(encoded)
    if draw(st.booleans()):
        damage, place = draw(_FILE_FAULTS)
        log = damage(log, place)

    ends = list(accumulate(map(len, encoded)))[:4] or [0]
    exactly_met = st.builds(lambda end, less: max(end - less, 0), st.sampled_from(ends), st.integers(0, 1))
    options = RecoverOptions(
        interval_bytes=draw(
            st.one_of(st.integers(100, 2000), st.sampled_from([4096, 0, 1, 26, _INT32_MAX]), exactly_met)
        ),
        max_index_bytes=draw(st.sampled_from([*[MAX_INDEX_BYTES_DEFAULT] * 6, 12, 20, 24, 100, 400])),
        verify_crc=draw(st.booleans()),
    )
    return Segment(log=log, base_offset=base_offset, options=options)


class _GuardedMemory:
    """Memory with a page behind it that nobody may touch: a read past the end stops the process with SIGSEGV."""

    def __init__(self, size: int) -> None:
        pages = -(-size // mmap.PAGESIZE)
        self._memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        self._bytes = np.frombuffer(self._memory, np.uint8)[: pages * mmap.PAGESIZE]
        guard = self._bytes.ctypes.data + len(self._bytes)
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def hold(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A read-only copy of `data` that ends where the guarded page starts; it stands until the next call."""
        copy = self._bytes[len(self._bytes) - len(data) :]
        copy.setflags(write=True)
        copy[:] = data
        copy.setflags(write=False)
        return copy


_GUARDED: Final = _GuardedMemory(1 << 20)


def whole(log: bytes) -> LogBytes:
    """A log in memory; reading past its end is noticed."""
    return WholeLog(_GUARDED.hold(np.frombuffer(log, np.uint8)))


class GuardedChunks(ChunkedLog):
    """A log read in chunks; reading past a chunk, or asking for one behind the file's end, is noticed."""

    def window(self, position: int) -> tuple[int, NDArray[np.uint8]]:
        assert position == 0 or position < self.size, f"asked for byte {position} of {self.size}"
        start, window = super().window(position)
        return start, _GUARDED.hold(window)


def _long(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
