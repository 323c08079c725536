"""A producer's batches, compared with those of a model in plain Python."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.operations.report.savings.codecs import CODECS, compressed_bytes
from kidxlib.operations.report.savings.producer import NO_ESTIMATE, Contents, Producer, settled_ratio, updated
from kidxlib.operations.report.savings.records import Records, RecordsToBe
from kidxlib.records.bulk.batch_table import BatchWalk
from kidxlib.records.bulk.decode import RecordPlacer
from kidxlib.records.bulk.wanted import Wanted
from kidxlib.records.reader import Header, Record
from tests.conftest import one_in
from tests.model.producer import contents_of
from tests.support.logs.encoded import batch_v2, gzip, lz4, snappy, xerial, zstd
from tests.support.logs.guarded import whole

_HEADER_BYTES: Final = 61
_BYTES: Final = st.one_of(st.none(), st.binary(max_size=12), st.integers(0, 900).map(lambda size: b"abc" * size))
_HEADERS: Final = st.lists(
    st.builds(Header, st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=9))), max_size=2
)
_TIMES: Final = st.one_of(st.integers(0, 9_000), st.sampled_from([-1, 2**40, 2**62, 0]))
_RECORDS: Final = st.lists(
    st.builds(Record, st.just(0), _TIMES, _BYTES, _BYTES, _HEADERS.map(tuple)),
    min_size=1,
    max_size=40,
)


def _read(parts: Sequence[Sequence[Record]]) -> Records:
    """Records as they are read from batches of a log, a transaction's end between two parts."""
    to_be, offset = RecordsToBe(), 0
    placer = RecordPlacer(1_000, 1_000_000)
    for part in parts:
        numbered = [Record(offset + number, *_fields(record)) for number, record in enumerate(part)]
        offset += len(part)
        for table in BatchWalk(whole(batch_v2(numbered)), 0, Wanted()).tables():
            for placed in placer.placed(table, Wanted()):
                to_be.add(placed.places)
        to_be.end_transaction()
    return to_be.records()


def _fields(record: Record) -> tuple[int, bytes | None, bytes | None, tuple[Header, ...]]:
    return record.timestamp, record.key, record.value, record.headers


@one_in(2)
@given(
    st.lists(_RECORDS, min_size=1, max_size=3),
    st.sampled_from([0, 1, 90, 200, 1_000, 16_384]),
    st.sampled_from(["none", "gzip", "lz4"]),
    st.sampled_from([1.0, 0.5, 0.0123]),
)
def test_batches_are_closed_where_a_producer_closes_them(
    parts: list[list[Record]], batch_size: int, codec: str, ratio: float
) -> None:
    """Goal: batch by batch the same bytes as those of the model."""
    every = [record for part in parts for record in part]
    begins = [number == 0 and part > 0 for part in range(len(parts)) for number in range(len(parts[part]))]
    compress: Callable[[bytes], int] | None = None
    if codec != "none":

        def compress(content: bytes) -> int:
            return compressed_bytes(codec, memoryview(content))

    first_ratio = np.float32(ratio)
    expected = list(contents_of(every, begins, batch_size, compress, float(first_ratio)))
    contents = Contents([_read(parts)])
    written: list[bytes] = []
    producer = Producer(codec, batch_size, first_ratio)
    laid = contents.batch

    def keeping(*arguments: object) -> tuple[int, int, int]:
        after, plain, compressed = laid(*arguments)  # type: ignore[arg-type]
        written.append(contents.room(0)[:plain].tobytes())
        return after, plain, compressed

    producer.write(_Watched(contents, keeping), 0)  # type: ignore[arg-type]
    assert written == expected
    sizes = [len(each) if compress is None else compress(each) for each in expected]
    found = producer.written
    assert (found.bytes, found.batches) == (sum(sizes) + _HEADER_BYTES * len(sizes), len(sizes))
    assert found.full_batches <= len(sizes) - len(parts)


class _Watched:
    """Contents of which each batch is looked at."""

    def __init__(self, contents: Contents, batch: Callable[..., tuple[int, int, int]]) -> None:
        self.records, self.batch = contents.records, batch


_LINES: Final = b"".join(b'{"id": %d, "name": "number %d"}\n' % (n * 7919 % 10_007, n % 83) for n in range(6_000))


@pytest.mark.parametrize("size", [1, 100, 16_000, 70_000, len(_LINES)])
def test_codecs_take_what_compressed_records_take(size: int) -> None:
    """Goal: sizes are those of frames that Kafka reads, about: other parameters may be chosen of lz4 and zstd."""
    content = _LINES[:size]
    found = {codec: compressed_bytes(codec, memoryview(content)) for codec in CODECS}
    assert found["none"] == size and found["gzip"] == len(gzip(content)) == len(zlib.compress(content, wbits=31))
    assert found["snappy"] == len(xerial(content)) >= len(snappy(content))
    assert abs(found["lz4"] - len(lz4(content))) <= 0.05 * len(lz4(content)) + 16
    assert abs(found["zstd"] - len(zstd(content))) <= 0.15 * len(zstd(content)) + 16


def test_random_content_does_not_get_much_larger() -> None:
    content = np.random.default_rng(5).bytes(200_000)
    for codec in CODECS:
        assert len(content) <= compressed_bytes(codec, memoryview(content)) < 1.001 * len(content), codec


@pytest.mark.parametrize(
    ("ratio", "observed", "then"),
    [(1.0, 0.25, 0.995), (0.252, 0.25, 0.25), (0.25, 0.26, 0.3), (0.25, 0.9, 0.9), (0.5, 0.5, 0.5)],
)
def test_an_estimate_goes_up_fast_and_down_slowly(ratio: float, observed: float, then: float) -> None:
    """`CompressionRatioEstimator`."""
    assert updated(np.float32(ratio), np.float32(observed)) == pytest.approx(then)


def test_a_settled_producer_fills_batches_from_the_first_on() -> None:
    """One that has just started takes records for incompressible, and its first batches are small."""
    records = [Record(0, 0, None, line) for line in _LINES.splitlines()]
    contents = Contents([_read([records[:1_000], records[1_000:]])])
    started, settled = (
        Producer("gzip", 4_096, ratio) for ratio in (NO_ESTIMATE, settled_ratio(contents, 0, "gzip", 4_096))
    )
    for producer in (started, settled):
        producer.write(contents, 0)
    assert settled.written.batches < started.written.batches / 1.5
    assert 3_000 < settled.written.bytes / settled.written.batches < 4_096
    assert settled.settled_ratio == pytest.approx(settled_ratio(contents, 0, "gzip", 4_096), rel=0.2)
    assert settled_ratio(contents, 0, "none", 4_096) == NO_ESTIMATE
