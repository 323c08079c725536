"""Savings measured in logs that a catalog knows; a producer's batches, against those of a plain model."""

from __future__ import annotations

import itertools
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format import layouts as formats
from kidxlib.operations.report import savings
from kidxlib.operations.report.savings import (
    CODECS,
    NO_ESTIMATE,
    SampledRecords,
    SampledRecordsBuilder,
    SimulatedBatches,
    SimulatedProducer,
    TopicSavings,
    compressed_bytes,
    measure_savings,
    settled_ratio,
    updated_ratio,
)
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.placed_records import RecordPlacer
from kidxlib.records.reader import Header, Record
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.recover import recover
from kidxlib.tables.memory_tables import MemoryTables
from tests.conftest import one_in
from tests.faults.trees import write_log
from tests.model.producer import contents_of
from tests.support.catalog import filled_rows
from tests.support.files import flip
from tests.support.logs.batches import Batch, control
from tests.support.logs.encoded import WAYS, batch_v2, gzip, lz4, message, record_v2, snappy, wrapper, xerial, zstd
from tests.support.logs.guarded import whole

_HEADER_BYTES: Final = 61
_PRODUCER: Final[dict[str, Any]] = {"producer_epoch": 0, "base_sequence": 0}

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


@dataclass(slots=True)
class _Logs:
    """Logs of topics, and a catalog that knows them."""

    directory: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, batches: Sequence[bytes], base_offset: int = 0, topic: str = "t", partition: int = 0) -> Path:
        """Add a segment; its log."""
        log = b"".join(batches)
        path = write_log(self.directory / f"{topic}-{partition}", base_offset, log)
        found = recover(whole(log), base_offset, RecoverOptions())
        self.rows.append(
            {
                "source": "s",
                "topic": topic,
                "partition": partition,
                "base_offset": base_offset,
                "status": found.end.status.value,
                "batches": found.facts.batches,
                "control_batches": found.facts.control_batches,
                "valid_bytes": found.facts.valid_bytes,
                "log_bytes": len(log),
                "log_path": str(path),
                "index_directory": str(path.parent),
            }
        )
        if found.offset_index:
            path.with_suffix(".index").write_bytes(found.offset_index)
        return path

    def tables(self) -> MemoryTables:
        tables = MemoryTables("catalog")
        tables.append(SEGMENTS, filled_rows(SEGMENTS, self.rows))
        return tables

    def measured(self, sample: int = 1_000, **more: Any) -> TopicSavings:
        """What is measured of the only topic."""
        [found] = measure_savings(self.tables(), sample, **more)
        return found


@pytest.fixture
def logs(tmp_path: Path) -> _Logs:
    return _Logs(tmp_path)


def _records(count: int, first: int = 0, value_bytes: int = 40) -> list[Record]:
    rng = random.Random(first)
    return [
        Record(
            offset,
            1_700_000_000_000 + 7 * offset,
            None if offset % 3 else b"key %d" % offset,
            None if offset % 11 == 0 else rng.randbytes(value_bytes),
            (Header("h", b"x"),) if offset % 5 == 0 else (),
        )
        for offset in range(first, first + count)
    ]


def _one_batch(records: Sequence[Record]) -> int:
    """Bytes of a batch with these records, not compressed."""
    first = records[0]
    numbered = [replace(each, offset=number) for number, each in enumerate(records)]
    return _HEADER_BYTES + sum(len(record_v2(each, 0, first.timestamp)) for each in numbered)


def _parts(records: Sequence[Record], size: int) -> Iterator[Sequence[Record]]:
    return (records[at : at + size] for at in range(0, len(records), size))


_LARGE: Final[dict[str, Any]] = {"batch_sizes": [2**20], "codecs": ["none"]}


@pytest.mark.parametrize("way", WAYS)
def test_records_of_any_codec_are_laid_down_again(logs: _Logs, way: str) -> None:
    codec, compress = WAYS[way]
    records = _records(60)
    batches = [batch_v2(part, codec, compress) for part in _parts(records, 7)]
    logs.add(batches)
    found = logs.measured(**_LARGE)
    assert (found.sampled_batches, found.sampled_bytes, found.records) == (len(batches), sum(map(len, batches)), 60)
    assert (found.segments, found.batches, found.sampled_segments, found.producers) == (1, len(batches), 1, 1)
    [written] = found.with_settings
    assert (written.bytes, written.batches, written.full_batches) == (_one_batch(records), 1, 0)
    assert found.not_read == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("zstd")])
def test_messages_of_older_formats_become_records(logs: _Logs, magic: int, way: str) -> None:
    codec, compress = WAYS[way]
    records = [replace(each, headers=()) for each in _records(12)]
    messages = [message(each, magic) for each in records]
    batches = messages
    if codec:
        inner = [
            message(replace(each, offset=number if magic else each.offset), magic)
            for number, each in enumerate(records)
        ]
        batches = [
            wrapper(
                inner, records[-1].offset, magic=magic, codec=codec, compress=compress, timestamp=records[-1].timestamp
            )
        ]
    logs.add(batches)
    found = logs.measured(**_LARGE)
    assert (found.sampled_batches, found.records, found.not_read) == (len(batches), 12, [])
    timed = records if magic else [replace(each, timestamp=-1) for each in records]
    assert found.with_settings[0].bytes == _one_batch(timed)


def test_records_of_each_producer_go_together(logs: _Logs) -> None:
    """Two producers with ids and others without write by turns: each has batches of its own. Those without ids are
    taken together, partition by partition.
    """
    records = _records(90)
    by_producer: dict[tuple[int, int], list[Record]] = {}
    for partition in (0, 1):
        batches = []
        for part, producer in zip(_parts(records, 3), itertools.cycle([-1, 5, 9]), strict=False):
            by_producer.setdefault((partition, producer), []).extend(part)
            batches.append(batch_v2(part, producer_id=producer, **(_PRODUCER if producer >= 0 else {})))
        logs.add(batches, partition=partition)
    found = logs.measured(**_LARGE)
    assert found.producers == len(by_producer) == 6 == found.with_settings[0].batches
    assert found.with_settings[0].bytes == sum(map(_one_batch, by_producer.values()))


def test_the_end_of_a_transaction_closes_a_batch(logs: _Logs) -> None:
    """Markers are not counted, and those of others close nothing. What it closes is whole, be there room or not."""
    batches, offset = [], 0
    for number in range(6):
        for _ in range(3):
            part = _records(2, offset)
            batches.append(batch_v2(part, producer_id=7, attributes=formats.ATTRIBUTE_TRANSACTIONAL, **_PRODUCER))
            offset += 2
        if number % 2:
            batches.append(Batch(**{**control(), "producer_id": 7 if number != 3 else 8}).encode(offset))
            offset += 1
    logs.add(batches)
    found = logs.measured(**_LARGE)
    assert (found.batches, found.sampled_batches, found.records) == (18, 18, 36)
    [written] = found.with_settings
    assert (written.batches, written.full_batches, written.filled_batches) == (2, 0, 2)


def test_a_sample_is_spread_and_no_batch_is_read_twice(logs: _Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: runs of consecutive batches from all over the topic, as many batches as were asked for, the same ones for
    the same seed.
    """
    for partition in range(3):
        offset = 0
        for _ in range(8):
            parts = list(_parts(_records(200, offset, value_bytes=300), 4))
            logs.add([batch_v2(part) for part in parts], offset, partition=partition)
            offset += 200
    read: list[tuple[int, int]] = []
    add = savings._RunReader._add_batch

    def noting(self: Any, path: str, batch: Any, records: Any) -> None:
        read.append((int(Path(path).parent.name[-1]), int(batch.rows["offset_field"][0])))
        add(self, path, batch, records)

    monkeypatch.setattr(savings._RunReader, "_add_batch", noting)
    chosen: list[list[tuple[int, int]]] = []
    for seed in (1, 1, 2):
        read.clear()
        found = logs.measured(100, seed=seed, codecs=[])
        assert found.sampled_batches == len(read) == len(set(read)) <= 100
        assert len(read) >= 95
        assert found.sampled_segments >= 8
        chosen.append(list(read))
    assert chosen[0] == chosen[1] != chosen[2]
    assert {partition for partition, _ in chosen[0]} == {0, 1, 2}
    consecutive = sum(one[0] == other[0] and other[1] - one[1] == 4 for one, other in itertools.pairwise(chosen[0]))
    assert consecutive >= 80
    oldest_and_newest = Counter(offset >= 800 for _, offset in chosen[0])
    assert min(oldest_and_newest.values()) >= 20


def test_a_small_topic_is_read_as_a_whole(logs: _Logs) -> None:
    for first in (0, 30):
        logs.add([batch_v2(part) for part in _parts(_records(30, first), 3)], first)
    found = logs.measured(20, **_LARGE)
    assert (found.batches, found.sampled_batches, found.records) == (20, 20, 60)
    assert found.with_settings[0].bytes == _one_batch(_records(30) + _records(30, 30))


def test_what_cannot_be_read_is_said_and_the_rest_is_measured(logs: _Logs) -> None:
    """Logs that are missing or shorter than they were, a batch with a wrong checksum, and one that is malformed."""
    batches = [batch_v2(part) for part in _parts(_records(30), 3)]
    missing, cut, wrong = (logs.add(batches, partition=partition) for partition in range(3))
    sound = logs.add(batches, partition=3)
    malformed = batch_v2(_records(3), records=2)
    logs.add([malformed, *batches[1:]], partition=4)
    missing.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    flip(wrong, len(batches[0]) + 80)
    found = logs.measured(**_LARGE)
    assert found.sampled_batches == 9 + 10 + 9
    assert [str(path) in line for path, line in zip((missing, cut, wrong), found.not_read, strict=False)] == [True] * 3
    assert "expected" in found.not_read[1] and "build again" in found.not_read[1]
    assert f"byte {len(batches[0])}: a batch whose checksum is wrong" in found.not_read[2]
    assert "t-4" in found.not_read[3] and len(found.not_read) == 4
    assert str(sound) not in "".join(found.not_read)


def test_no_more_is_read_than_was_allowed(logs: _Logs) -> None:
    """What may be read is shared out among the runs, so that they stay spread."""
    for first in range(0, 1_200, 300):
        logs.add([batch_v2(part) for part in _parts(_records(300, first, value_bytes=1_000), 3)], first)
    found = logs.measured(100, bytes_max=60_000, **_LARGE)
    assert 60_000 <= found.record_bytes < 100_000 and found.sampled_segments == 4 and found.sampled_batches < 40
    [reason] = found.not_read
    assert reason.startswith(f"t: {found.sampled_batches} of 100 batches were read") and "60000 bytes" in reason


def test_topics_that_brokers_write_and_topics_of_markers_are_left_out(logs: _Logs) -> None:
    logs.add([batch_v2(_records(3))], topic="__consumer_offsets")
    logs.add([Batch(**control()).encode(0)], topic="markers")
    assert measure_savings(logs.tables(), 10) == []
    logs.add([batch_v2(_records(3))], topic="a")
    logs.add([batch_v2(_records(3))], topic="b")
    assert [each.topic for each in measure_savings(logs.tables(), 10)] == ["a", "b"]
    assert [each.topic for each in measure_savings(logs.tables(), 10, topics=["b"])] == ["b"]
    assert measure_savings(logs.tables(), 10, sources=["another"]) == []


def test_larger_batches_and_codecs_save_bytes(logs: _Logs) -> None:
    """All settings of a topic of small batches, in the order of codecs and sizes."""
    rng = random.Random(1)
    words = [b"word%d" % number for number in range(90)]
    records = [Record(offset, offset, None, b" ".join(rng.choices(words, k=30))) for offset in range(3_000)]
    logs.add([batch_v2(part) for part in _parts(records, 2)])
    found = logs.measured(3_000)
    assert [(each.codec, each.batch_size) for each in found.with_settings] == [
        (codec, size << 10) for codec in ("none", "gzip", "snappy", "lz4", "zstd") for size in (16, 64, 256, 1024)
    ]
    sizes = [each.bytes for each in found.with_settings]
    assert all(size < found.sampled_bytes for size in sizes) and max(sizes[4:]) < min(sizes[:4]) / 1.5
    for each in found.with_settings:
        assert each.batches - 1 == each.full_batches < each.filled_batches <= each.batches
        assert each.batches * each.batch_size > 0.8 * (each.bytes - each.batch_size)


def test_a_batch_that_nothing_more_was_read_of_counts_in_part(logs: _Logs) -> None:
    """A tenth of the records fills a tenth of a batch; the end of a transaction leaves none to be filled."""
    records = _records(400, value_bytes=400)
    logs.add([batch_v2(part) for part in _parts(records, 4)])
    logs.add([batch_v2(part) for part in _parts(records[:40], 4)], topic="u")
    of_all, of_few = (each.with_settings[0] for each in measure_savings(logs.tables(), 1_000, **_LARGE))
    assert (of_all.batches, of_few.batches) == (1, 1)
    assert of_all.filled_batches == pytest.approx(of_all.bytes / 2**20, rel=0.01)
    assert of_few.filled_batches == pytest.approx(of_all.filled_batches / 10, rel=0.05)


def _read(parts: Sequence[Sequence[Record]]) -> SampledRecords:
    """Records as they are read from batches of a log, a transaction's end between two parts."""
    to_be, offset = SampledRecordsBuilder(), 0
    placer = RecordPlacer(1_000, 1_000_000)
    for part in parts:
        numbered = [Record(offset + number, *_fields(record)) for number, record in enumerate(part)]
        offset += len(part)
        for table in BatchWalk(whole(batch_v2(numbered)), 0, WantedRecords()).tables():
            for placed in placer.placed(table, WantedRecords()):
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
    contents = SimulatedBatches([_read(parts)])
    written: list[bytes] = []
    producer = SimulatedProducer(codec, batch_size, first_ratio)
    laid = contents.batch

    def keeping(*arguments: object) -> tuple[int, int, int]:
        after, plain, compressed = laid(*arguments)  # type: ignore[arg-type]
        written.append(contents.rooms[0][:plain].tobytes())
        return after, plain, compressed

    producer.write(_Watched(contents, keeping), 0)  # type: ignore[arg-type]
    assert written == expected
    sizes = [len(each) if compress is None else compress(each) for each in expected]
    found = producer.written
    assert (found.bytes, found.batches) == (sum(sizes) + _HEADER_BYTES * len(sizes), len(sizes))
    assert found.full_batches <= len(sizes) - len(parts)


class _Watched:
    """Contents of which each batch is looked at."""

    def __init__(self, contents: SimulatedBatches, batch: Callable[..., tuple[int, int, int]]) -> None:
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
    assert updated_ratio(np.float32(ratio), np.float32(observed)) == pytest.approx(then)


def test_a_settled_producer_fills_batches_from_the_first_on() -> None:
    """One that has just started takes records for incompressible, and its first batches are small."""
    records = [Record(0, 0, None, line) for line in _LINES.splitlines()]
    contents = SimulatedBatches([_read([records[:1_000], records[1_000:]])])
    started, settled = (
        SimulatedProducer("gzip", 4_096, ratio) for ratio in (NO_ESTIMATE, settled_ratio(contents, 0, "gzip", 4_096))
    )
    for producer in (started, settled):
        producer.write(contents, 0)
    assert settled.written.batches < started.written.batches / 1.5
    assert 3_000 < settled.written.bytes / settled.written.batches < 4_096
    assert settled.settled_ratio == pytest.approx(settled_ratio(contents, 0, "gzip", 4_096), rel=0.2)
    assert settled_ratio(contents, 0, "none", 4_096) == NO_ESTIMATE
