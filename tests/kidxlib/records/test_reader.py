"""Records, read from any place and in any pieces; what is malformed is said in one line.

That they are the same as Kafka's is tested in tests/kafka.
"""

from __future__ import annotations

import errno
import os
import re
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.errors import LogChangedError, MalformedRecordsError
from kidxlib.format import layouts
from kidxlib.records import batch_headers, reader
from kidxlib.records.reader import Header, Record
from kidxlib.storage.log_bytes import ChunkedLog, LogBytes, WholeLog
from tests.support.logs import encoded
from tests.support.logs.batches import Batch
from tests.support.logs.segments import Segment, segments


def log_of(data: bytes) -> LogBytes:
    return WholeLog(np.frombuffer(data, np.uint8))


def records_of(log: LogBytes, position: int = 0) -> Iterator[Record]:
    for batch in batch_headers.batches(log, position):
        yield from reader.records(log, batch)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """An empty file."""
    opened = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


_LONGS: Final = st.integers(-(2**63), 2**63 - 1)
_TIMESTAMPS: Final = st.one_of(st.integers(-1, 2**42), _LONGS)
_BYTES: Final = st.one_of(st.none(), st.binary(max_size=80), st.sampled_from([63, 64, 8191, 8192]).map(bytes))
_HEADERS: Final = st.lists(st.builds(Header, st.text(max_size=5), _BYTES), max_size=3).map(tuple)
_RECORDS: Final = st.lists(
    st.tuples(st.integers(1, 2**27), _TIMESTAMPS, _BYTES, _BYTES, _HEADERS), min_size=1, max_size=8
)


@given(
    base_offset=st.sampled_from([0, 1, 2**40]),
    fields=_RECORDS,
    way=st.sampled_from(sorted(encoded.WAYS)),
    lead=st.binary(),
)
def test_records_come_back(base_offset: int, fields: list[tuple[Any, ...]], way: str, lead: bytes) -> None:
    """Whatever a record holds; deltas of offsets and timestamps wrap as Java's do."""
    offset, written = base_offset, []
    for step, *rest in fields:
        written.append(Record(offset, *rest))
        offset += step
    codec, compress = encoded.WAYS[way]
    log = log_of(lead + encoded.batch_v2(written, codec, compress))
    (batch,) = batch_headers.batches(log, len(lead))
    assert list(reader.records(log, batch)) == written
    assert (batch.position, batch.size, batch.records_count) == (len(lead), log.size - len(lead), len(written))
    assert (reader.base_offset(log, batch), batch.last_offset) == (base_offset, written[-1].offset)
    first_largest = next(record.offset for record in written if record.timestamp == batch.max_timestamp)
    assert reader.offset_of_max_timestamp(log, batch) == first_largest


@given(segment=segments())
def test_generated_segments(segment: Segment) -> None:
    """Headers over anything: records are read, or there is an error that names the batch."""
    log = log_of(segment.log)
    try:
        for batch in batch_headers.batches(log):
            try:
                inside = list(reader.records(log, batch))
            except MalformedRecordsError as error:
                assert error.position == batch.position
            else:
                assert batch.records_count in (None, len(inside))
    except MalformedRecordsError as error:
        assert 0 <= error.position < log.size


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 2**20])
def test_chunks(descriptor: int, chunk_bytes: int) -> None:
    """A log that is not mapped gives the same, also when batches and records are asked for in turns."""
    data = b"".join(encoded.batch_v2(encoded.RECORDS, codec, compress) for codec, compress in encoded.WAYS.values())
    os.write(descriptor, data)
    log = ChunkedLog(descriptor, len(data), chunk_bytes)
    assert list(records_of(log)) == list(encoded.RECORDS) * len(encoded.WAYS)
    found = list(batch_headers.batches(log))
    turns = zip(*(reader.records(log, batch) for batch in found), strict=True)
    assert list(turns) == [(record,) * len(found) for record in encoded.RECORDS]


def test_log_that_shrinks(descriptor: int) -> None:
    """That is distinguished from malformed data, within compressed data too."""
    data = encoded.batch_v2(encoded.RECORDS, 4, lambda body: encoded.zstd(os.urandom(200_000) + body))
    os.write(descriptor, data)
    log = ChunkedLog(descriptor, len(data))
    (batch,) = batch_headers.batches(log)
    os.ftruncate(descriptor, 100_000)
    with pytest.raises(LogChangedError, match="file ends at byte 100000"):
        log.read(99_999, 2)
    with pytest.raises(LogChangedError):
        list(reader.records(log, batch))


@pytest.mark.parametrize("way", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_disk_that_fails(way: str) -> None:
    """An error of the disk is not taken for malformed data."""

    class Failing(WholeLog):
        def read(self, position: int, size: int) -> bytes:
            if position > 0:
                raise OSError(errno.EIO, "a bad sector")
            return super().read(position, size)

    codec, compress = encoded.WAYS[way]
    log = Failing(np.frombuffer(encoded.batch_v2(encoded.RECORDS, codec, compress), np.uint8))
    (batch,) = batch_headers.batches(log)
    with pytest.raises(OSError, match="a bad sector"):
        list(reader.records(log, batch))


@pytest.mark.parametrize("way", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_nothing_is_read_before_it_is_asked_for(way: str) -> None:
    """Records before a malformed place are there, and a batch that is only looked at is not read."""
    codec, compress = encoded.WAYS[way]
    log = log_of(encoded.batch_v2(encoded.RECORDS, codec, compress, records=99) + encoded.batch_v2(encoded.RECORDS, 7))
    batch, other = batch_headers.batches(log)
    assert list(islice(reader.records(log, batch), len(encoded.RECORDS))) == list(encoded.RECORDS)
    found = reader.first_record_since(log, batch, timestamp=1_700_000_000_005, offset=102)
    assert found == encoded.RECORDS[3]
    assert layouts.CODECS[other.codec] == "unknown-7"
    with pytest.raises(MalformedRecordsError):
        reader.first_record_since(log, batch, timestamp=2**62, offset=0)


def test_memory_is_that_of_a_record() -> None:
    """Neither a batch's size nor what it decompresses to is held."""
    count, value = 600, bytes(100_000)
    stored = encoded.batch_v2([Record(offset, 0, None, value) for offset in range(count)])
    logs = [
        log_of(stored),
        log_of(encoded.batch_v2([Record(offset, 0, None, value) for offset in range(count)], 4, encoded.zstd)),
    ]
    arrow = pa.default_memory_pool()
    for log in logs:
        tracemalloc.start()
        before = arrow.bytes_allocated()
        for record in records_of(log):
            assert record.value == value
            assert arrow.bytes_allocated() - before < 1 << 21
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20, peak


SOUND: Final = encoded.batch_v2(encoded.RECORDS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(18), "found size 0, expected 14 or more"),
        (SOUND[:8] + (48).to_bytes(4) + SOUND[12:], "found 60 bytes, expected 61 or more of magic 2"),
        (SOUND[:16] + b"\xff" + SOUND[17:], "found magic -1, expected 0 to 127"),
        (encoded.batch_v2(encoded.RECORDS, 7), "found codec 7, expected 0 to 4"),
        (encoded.batch_v2(encoded.RECORDS, records=-1), "found -1 records, expected 0 or more"),
        (encoded.batch_v2(encoded.RECORDS, records=4), "found more bytes after the last of 4 records, expected none"),
        (
            encoded.batch_v2(encoded.RECORDS, records=6),
            "found the end of the data at record 5 of 6, expected the size of that record",
        ),
        (
            encoded.batch_v2(encoded.RECORDS[:1], body=b"\x14\0\0"),
            "found 2 bytes of record 0 of 1, expected 10, as it says",
        ),
        (
            encoded.batch_v2(encoded.RECORDS[:1], body=b"\x0c\0\0\0\x40\1\0"),
            "found a record of 6 bytes (000000400100), expected its fields to end within it",
        ),
        (encoded.message(Record(0, 0, None, None), 1, 4), "found zstd in magic 1, expected none, gzip, snappy or lz4"),
        (
            encoded.message(Record(0, 0, None, None), 1, 1),
            "found a wrapper whose value is null, expected compressed messages",
        ),
        (
            encoded.wrapper([], 5, magic=1, codec=1, compress=encoded.gzip),
            "found a wrapper that holds no message, expected one or more",
        ),
        (
            Batch(magic=0, body=encoded.legacy_sized(b"key") + (9).to_bytes(4)).encode(0),
            "found a value of 9 bytes in a message of 17, expected at most 0",
        ),
    ],
)
def test_malformed(data: bytes, message: str) -> None:
    """One line that names the batch, what was found and what was expected."""
    with pytest.raises(
        MalformedRecordsError, match=re.escape(f"batch at byte {len(SOUND)}: {message}") + "$"
    ) as caught:
        list(records_of(log_of(SOUND + data)))
    assert caught.value.position == len(SOUND)
    assert "\n" not in str(caught.value)


def test_wrapper_that_an_old_client_left_at_offset_0() -> None:
    messages = [encoded.message(Record(number, 7, b"k", b"v"), 1) for number in range(3)]
    for offset, expected in [(0, [0, 1, 2]), (2, [0, 1, 2]), (12, [10, 11, 12])]:
        log = log_of(encoded.wrapper(messages, offset, magic=1, codec=1, compress=encoded.gzip))
        (batch,) = batch_headers.batches(log)
        assert [record.offset for record in reader.records(log, batch)] == expected
        assert (reader.base_offset(log, batch), batch.records_count) == (expected[0], None)


@pytest.mark.parametrize("left_over", [b"", bytes(17), SOUND[:-1], SOUND[:18]])
def test_bytes_left_over(left_over: bytes) -> None:
    """They end the log, and are no error."""
    assert list(records_of(log_of(SOUND + left_over))) == list(encoded.RECORDS)


def test_position_before_the_file() -> None:
    """A damaged index names such."""
    with pytest.raises(MalformedRecordsError, match="batch at byte -1: found that position, expected one from 0 on"):
        list(batch_headers.batches(log_of(SOUND), -1))
