"""Savings measured in logs that a catalog knows."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from kidxlib.catalog.segments import SEGMENTS
from kidxlib.format import layouts as formats
from kidxlib.format.segment_files import LOG_SUFFIX, segment_file
from kidxlib.operations.report.savings import reading
from kidxlib.operations.report.savings.measure import measure_savings
from kidxlib.operations.report.savings.saving import TopicSavings
from kidxlib.records.reader import Header, Record
from kidxlib.recovery.options import RecoverOptions
from kidxlib.recovery.segment import recover
from kidxlib.tables.memory_tables import MemoryTables
from tests.support.catalog import filled
from tests.support.logs.batches import Batch, control
from tests.support.logs.encoded import WAYS, batch_v2, message, record_v2, wrapper
from tests.support.logs.guarded import whole

_HEADER_BYTES: Final = 61
_PRODUCER: Final[dict[str, Any]] = {"producer_epoch": 0, "base_sequence": 0}


@dataclass(slots=True)
class _Logs:
    """Logs of topics, and a catalog that knows them."""

    directory: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, batches: Sequence[bytes], base_offset: int = 0, topic: str = "t", partition: int = 0) -> Path:
        """Add a segment; its log."""
        log = b"".join(batches)
        path = self.directory / f"{topic}-{partition}" / segment_file(base_offset, LOG_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log)
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
        rows = [filled(SEGMENTS.schema(), row) for row in self.rows]
        tables.append(SEGMENTS, pa.Table.from_pylist(rows, SEGMENTS.schema()))
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
    add = reading._RunReader._add

    def noting(self: Any, path: str, batch: Any, records: Any) -> None:
        read.append((int(Path(path).parent.name[-1]), int(batch.rows["offset_field"][0])))
        add(self, path, batch, records)

    monkeypatch.setattr(reading._RunReader, "_add", noting)
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
    content = bytearray(wrong.read_bytes())
    content[len(batches[0]) + 80] ^= 1
    wrong.write_bytes(bytes(content))
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
