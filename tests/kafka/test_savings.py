"""What producers with other settings would write, compared with what Java's producer writes with them to a real broker,
and with the class that closes its batches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.library.read import read_batches, read_records
from kidxlib.operations.report import savings
from kidxlib.operations.report.savings import (
    BATCH_SIZES,
    CODECS,
    SampledRecordsBuilder,
    SimulatedBatches,
    TopicSavings,
    measure_savings,
)
from kidxlib.records.batch_table import BatchWalk
from kidxlib.records.placed_records import RecordPlacer
from kidxlib.records.reader import Record
from kidxlib.records.wanted_records import WantedRecords
from kidxlib.tables.delta_tables import DeltaTables
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import kidx
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.support.kafka.admin import make_topics
from tests.support.kafka.broker import Broker
from tests.support.kafka.classes import Kafka
from tests.support.kafka.records import INTERNAL
from tests.support.logs.encoded import batch_v2
from tests.support.logs.guarded import whole

#: Where the records are as one has them: small batches, no codec.
_NOW: Final = "now"
_NOW_BATCH_SIZE: Final = 2_048
#: Written by another client, without a codec.
_LIBRDKAFKA: Final = "librdkafka"
_LIBRDKAFKA_BATCH_SIZE: Final = 64 << 10
_RECORDS: Final = 30_000
#: A producer knows the ratio of a batch once it is sent. So many batches have room in its memory, so it never has many
#: that are not, however busy the machine is.
_BATCHES_IN_MEMORY: Final = 2
_TOLERANCE: Final = 0.1
#: A producer estimates well only after some hundred batches. There are as many only of these.
_SETTLES: Final = 16 * 1024
#: Batches of the end, by which it does.
_SETTLED: Final = 0.3
_SETTINGS: Final = [
    *((codec, _SETTLES) for codec in CODECS),
    *((codec, 1 << 20) for codec in CODECS),
    ("gzip", 64 << 10),
    ("zstd", 256 << 10),
]


@dataclass(frozen=True, slots=True)
class _Written:
    """Batches that a producer has written: how many, their bytes, and the records in them."""

    batches: int
    bytes: int
    records: int


@dataclass(frozen=True, slots=True)
class _Topics:
    """The same records in topics that were written with different settings.

    Attributes:
        settings: of the topics but the first.
        catalog: of all of them.
    """

    log_dir: Path
    settings: list[tuple[str, int]]
    catalog: Path

    def log(self, topic: str) -> Path:
        [log] = (self.log_dir / f"{topic}-0").glob(f"*{LOG_SUFFIX}")
        return log

    def written(self, codec: str, batch_size: int, share: float = 1.0) -> _Written:
        """What was written with some settings: its last batches, or all of them."""
        rows = read_batches(str(self.log(_topic(codec, batch_size))))
        rows = rows.slice(int((1 - share) * rows.num_rows))
        sums = [int(np.sum(rows[name].to_numpy())) for name in ("bytes", "records")]
        return _Written(rows.num_rows, *sums)

    def measured(self, sample: int = 10**9, **more: Any) -> TopicSavings:
        """What is measured in the topic of small batches."""
        [found] = measure_savings(DeltaTables(str(self.catalog)), sample, topics=[_NOW], bytes_max=1 << 30, **more)
        return found


def _topic(codec: str, batch_size: int) -> str:
    return f"{codec}-{batch_size}"


@pytest.fixture(scope="module")
def topics(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, broker_version: str, exhaustive: bool
) -> Iterator[_Topics]:
    """Kafka's own tool writes the same records again and again: which line comes next is decided by a fixed seed."""
    directory = tmp_path_factory.mktemp("savings")
    payload = directory / "payload"
    payload.write_text("".join(f"{line}\n" for line in _lines(_RECORDS)))
    settings = [(codec, size) for codec in CODECS for size in BATCH_SIZES] if exhaustive else _SETTINGS
    broker = Broker(directory / "broker", {}, version=broker_version)
    with broker.running():
        named = {_NOW: ("none", _NOW_BATCH_SIZE), **{_topic(*each): each for each in settings}}
        make_topics(broker.bootstrap, [NewTopic(topic, 1, 1) for topic in named])
        for topic, setting in named.items():
            _write(kafka, broker, payload, topic, *setting)
        _write_by_librdkafka(broker, payload)
    catalog = directory / "catalog"
    built = kidx("build", broker.log_dir, "--index-dir", directory / "index", "--catalog", catalog)
    assert built.code == ExitCode.OK, built
    yield _Topics(broker.log_dir, settings, catalog)


@pytest.fixture(scope="module")
def whole_topic(topics: _Topics) -> TopicSavings:
    """What is measured of all records."""
    return topics.measured()


def _lines(count: int) -> Iterator[str]:
    rng = random.Random(29)
    words = [f"word{number}" for number in range(500)]
    for _ in range(count):
        note = " ".join(rng.choices(words, k=rng.randrange(2, 40)))
        yield json.dumps(
            {"id": rng.randrange(10**9), "user": rng.choice(words), "note": note, "ok": rng.random() < 0.5}
        )


def _write(kafka: Kafka, broker: Broker, payload: Path, topic: str, codec: str, batch_size: int) -> None:
    """Let Java's producer write all records, as fast as it may."""
    settings: Mapping[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "batch.size": batch_size,
        "compression.type": codec,
        "linger.ms": 60_000,
        "acks": 1,
        "buffer.memory": (100 if topic == _NOW else _BATCHES_IN_MEMORY) * batch_size,
    }
    arguments = [
        *("--topic", topic, "--num-records", str(_RECORDS), "--payload-file", str(payload), "--throughput", "-1"),
        *("--producer-props", *(f"{name}={value}" for name, value in settings.items())),
    ]
    strings = kafka.array(kafka.gateway.jvm.String, *arguments)
    kafka.gateway.jvm.org.apache.kafka.tools.ProducerPerformance.main(strings)


def _write_by_librdkafka(broker: Broker, payload: Path) -> None:
    """Let librdkafka write each line once; no batch is closed by the number of its records, nor by time.

    As soon as there is a batch's worth of records, librdkafka sends all that it has, the last batch with what is left
    (`rd_kafka_toppar_producer_serve`). The topic is made once all records wait for it, so that there is one such batch.
    """
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "batch.size": _LIBRDKAFKA_BATCH_SIZE,
        "batch.num.messages": 1_000_000,
        "linger.ms": 60_000,
        "topic.metadata.propagation.max.ms": TIMEOUT_SECONDS * 1_000,
        "allow.auto.create.topics": False,
        "log_level": 2,
    }
    producer = Producer(settings)
    for line in payload.read_bytes().splitlines():
        producer.produce(_LIBRDKAFKA, line, partition=0)
    make_topics(broker.bootstrap, [NewTopic(_LIBRDKAFKA, 1, 1)])
    assert producer.flush(TIMEOUT_SECONDS) == 0


def test_estimates_are_those_of_a_real_producer(
    topics: _Topics, whole_topic: TopicSavings, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and batches are within a tenth of what Java's producer writes, or a batch, for each codec and size; without
    a codec nothing is estimated but the bytes that times take. A producer that has just started has no estimate.
    """
    assert _values(topics, _NOW).equals(_values(topics, _topic(*topics.settings[0])))
    assert _values(topics, _NOW).num_rows == _RECORDS
    monkeypatch.setattr(savings, "settled_ratio", lambda *_: savings.NO_ESTIMATE)
    monkeypatch.setattr(savings, "_CODECS_WITH_SMALL_WINDOW", frozenset())
    started = {(each.codec, each.batch_size): each for each in topics.measured().with_settings}
    settled = {(each.codec, each.batch_size): each for each in whole_topic.with_settings}
    compared = [(started[each], topics.written(*each)) for each in topics.settings]
    compared += [(settled[each], topics.written(*each, _SETTLED)) for each in topics.settings if each[1] == _SETTLES]
    worst = {"bytes": 0.0, "batches": 0.0}
    for ours, theirs in compared:
        share = theirs.records / _RECORDS
        found = {"bytes": ours.bytes * share / theirs.bytes, "batches": ours.batches * share / theirs.batches}
        errors = {name: abs(ratio - 1) for name, ratio in found.items()}
        assert errors["bytes"] < _TOLERANCE, (errors, ours, theirs)
        assert errors["batches"] < _TOLERANCE or abs(ours.batches - theirs.batches) == 1, (errors, ours, theirs)
        if (ours.codec, share) == ("none", 1):
            assert errors["bytes"] < 0.005 and abs(ours.batches - theirs.batches) <= 1
        worst = {name: max(error, errors[name]) for name, error in worst.items()}
    say(", ".join(f"{name} within {error:.1%}" for name, error in worst.items()))


def test_a_sample_tells_what_all_records_tell(topics: _Topics, whole_topic: TopicSavings, say: Say) -> None:
    sample = topics.measured(1_000, seed=4)
    assert whole_topic.sampled_batches == whole_topic.batches and sample.sampled_batches == 1_000
    worst = 0.0
    for of_all, of_sample in zip(whole_topic.with_settings, sample.with_settings, strict=True):
        ratios = [each.bytes / found.sampled_bytes for each, found in ((of_all, whole_topic), (of_sample, sample))]
        worst = max(worst, abs(ratios[1] / ratios[0] - 1))
        assert worst < _TOLERANCE, (of_all, of_sample)
    say(f"{sample.sampled_batches} of {whole_topic.batches} batches: within {worst:.1%}")


def test_batches_of_librdkafka_without_a_codec_are_alike(topics: _Topics, say: Say) -> None:
    [found] = measure_savings(
        DeltaTables(str(topics.catalog)),
        10**9,
        topics=[_LIBRDKAFKA],
        batch_sizes=[_LIBRDKAFKA_BATCH_SIZE],
        codecs=["none"],
        bytes_max=1 << 30,
    )
    [written] = found.with_settings
    # On a busy machine librdkafka sends what it has in more and smaller batches: full ones are fewer.
    full_batches = found.sampled_bytes / _LIBRDKAFKA_BATCH_SIZE
    assert written.batches <= found.sampled_batches * (1 + _TOLERANCE)
    errors = written.bytes / found.sampled_bytes - 1, written.batches / full_batches - 1
    assert found.records == _RECORDS and max(map(abs, errors)) < _TOLERANCE, (written, found)
    say(f"bytes {errors[0]:+.2%}, batches {errors[1]:+.2%}")


def _values(topics: _Topics, topic: str) -> pa.Table:
    return read_records(str(topics.log(topic)), columns=["value"])


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batches_are_closed_where_kafkas_builder_has_no_room(kafka: Kafka, rng: random.Random, codec: str) -> None:
    """Records with and without keys and values, in limits that some of them exceed by themselves. The builder's ratio
    is 1, as of a producer that has just started.
    """
    records = [
        Record(number, 1_700_000_000_000 + rng.randrange(-9, 9_000), _bytes(rng, 30), _bytes(rng, 300))
        for number in range(120)
    ]
    to_be = SampledRecordsBuilder()
    for table in BatchWalk(whole(batch_v2(records)), 0, WantedRecords()).tables():
        for placed in RecordPlacer(1_000, 1_000_000).placed(table, WantedRecords()):
            to_be.add(placed.places)
    contents = SimulatedBatches([to_be.records()])
    batch_size, first = rng.choice([150, 400, 1_000]), 0
    while first < len(records):
        after, plain, _ = contents.batch(0, first, codec, batch_size, np.float32(1))
        count, size, body = _built(kafka, records[first:], batch_size, codec)
        assert after - first == count
        if codec == "none":
            assert (plain + 61, contents.rooms[0][:plain].tobytes()) == (size, body)
        first = after


def _bytes(rng: random.Random, most: int) -> bytes | None:
    return None if rng.random() < 0.1 else rng.randbytes(rng.randrange(most))


def _built(kafka: Kafka, records: list[Record], batch_size: int, codec: str) -> tuple[int, int, bytes]:
    """What Kafka's builder takes of records: how many, the bytes of the batch, and what stands after its header."""
    jvm = kafka.gateway.jvm
    common = jvm.org.apache.kafka.common
    first = records[0]
    most = kafka.find(f"{INTERNAL}.AbstractRecords").estimateSizeInBytesUpperBound
    compression = getattr(common.compress.Compression, codec)().build()
    magic, no_headers = 2, kafka.array(common.header.Header)
    limit = max(batch_size, most(magic, compression.type(), first.key, first.value, no_headers))
    buffer = jvm.java.nio.ByteBuffer.allocate(limit)
    create_time = common.record.TimestampType.CREATE_TIME
    builder = kafka.find(f"{INTERNAL}.MemoryRecords").builder(buffer, magic, compression, create_time, 0)
    count = 0
    for record in records:
        if not builder.hasRoomFor(record.timestamp, record.key, record.value, no_headers):
            break
        builder.append(record.timestamp, record.key, record.value)
        count += 1
    built = builder.build().buffer()
    content = bytes(built.array())[: built.limit()]
    return count, len(content), content[61:]
