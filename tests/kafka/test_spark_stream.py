"""Streams of the source give from a broker's disk what Spark's Kafka source gives from the broker, each record once:
while the broker writes, in as many micro-batches as a limit makes, and if their driver is killed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kidxlib.errors import LostRecordsError
from kidxlib.format.segment_files import LOG_SUFFIX
from kidxlib.library.read import read
from tests.faults.processes import kill_session
from tests.faults.watching import Did, Watch
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.kafka.traffic import Traffic, create_topics
from tests.support.kafka.admin import delete_records, make_topics, set_config
from tests.support.kafka.broker import Broker
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import PROJECT
from tests.support.spark.streams import Stream

_STEPS: Final = 25
#: The topics that streams follow while the broker writes, as a pattern.
_WRITTEN: Final = "^(plain|transactions|append-time)$"
_COMPACTED, _DELETED, _RECORDS = "compacted", "deleted", 600
_LOSING: Final = {"subscribe": f"{_COMPACTED},{_DELETED}", "toLogEnd": "true"}
_ISOLATIONS: Final = ("read_uncommitted", "read_committed")
#: Which transactional producer has a transaction open in the end.
_LEFT_OPEN: Final = 2


@dataclass(frozen=True, slots=True)
class Answered:
    """What Spark's Kafka source gave of a broker, by isolation; what a stream of its disk gave meanwhile of what is
    committed; and a stream whose first micro-batch was planned before the broker deleted and compacted what is in it.
    """

    log_dir: Path
    rows: dict[str, pa.Table]
    streamed: pa.Table
    losing: Stream


@pytest.fixture(scope="module")
def answered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Answered:
    """A broker that rolls segments often, and writes its high watermarks often; transactions end in either way, and one
    stays open.
    """
    settings = {
        "transaction.state.log.num.partitions": 2,
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
        "replica.high.watermark.checkpoint.interval.ms": 50,
    }
    broker = Broker(tmp_path_factory.mktemp("kafka") / "broker", settings, version=broker_version)
    with contextlib.ExitStack() as streams:
        with broker.running():
            create_topics(broker.bootstrap)
            query = streams.enter_context(_in_memory(spark, broker.log_dir))
            traffic = Traffic(broker.bootstrap, seed=3)
            for _ in range(2):
                traffic.run(_STEPS)
                query.processAllAvailable()
            traffic.end_transactions(but=_LEFT_OPEN)
            losing = _losing(broker)
            rows = {each: _from_broker(spark, broker.bootstrap, each) for each in _ISOLATIONS}
        query.processAllAvailable()
        streamed = _sorted(spark.table(query.name))
    return Answered(broker.log_dir, rows, streamed, losing)


def _losing(broker: Broker) -> Stream:
    make_topics(
        broker.bootstrap,
        [NewTopic(topic, 1, 1, config={"internal.segment.bytes": "16384"}) for topic in (_COMPACTED, _DELETED)],
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})
    for _ in range(_RECORDS // 20):
        for topic in (_COMPACTED, _DELETED):
            for key in range(20):
                producer.produce(topic, bytes(100), b"%d" % key)
        assert producer.flush(TIMEOUT_SECONDS) == 0
    stream = Stream(broker.log_dir, **_LOSING)
    assert stream.plan()
    with Watch([broker.log_dir / f"{_COMPACTED}-0"], Did.RENAME_HERE) as watch:
        set_config(broker.bootstrap, _COMPACTED, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        next(event for event in watch.events() if event.name.endswith(LOG_SUFFIX))
    delete_records(broker.bootstrap, {(_DELETED, 0): _RECORDS // 2})
    return stream


def _stream(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("kafka_segment").options(**options).load(str(path))


@contextlib.contextmanager
def _in_memory(spark: SparkSession, log_dir: Path) -> Iterator[StreamingQuery]:
    rows = _stream(spark, log_dir, subscribePattern=_WRITTEN, includeHeaders="true", isolation="read_committed")
    query = rows.writeStream.format("memory").queryName("streamed").trigger(processingTime="1 second").start()
    try:
        yield query
    finally:
        query.stop()


def _from_broker(spark: SparkSession, bootstrap: str, isolation: str) -> pa.Table:
    options = {"subscribePattern": _WRITTEN, "includeHeaders": "true", "kafka.isolation.level": isolation}
    return _sorted(spark.read.format("kafka").options(**options, **{"kafka.bootstrap.servers": bootstrap}).load())


def _sorted(rows: DataFrame) -> pa.Table:
    return rows.toArrow().sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).combine_chunks()


def test_while_a_broker_writes(answered: Answered) -> None:
    assert answered.streamed.equals(answered.rows["read_committed"])
    assert answered.rows["read_committed"].num_rows < answered.rows["read_uncommitted"].num_rows


def test_with_available_now_as_many_micro_batches_as_it_takes(
    spark: SparkSession, answered: Answered, tmp_path: Path
) -> None:
    """The query ends by itself; and again at once, as there is no more."""
    size = sum(log.stat().st_size for log in answered.log_dir.glob("[apt]*-[0-9]/*.log"))
    options = {"subscribePattern": _WRITTEN, "includeHeaders": "true", "maxBytesPerTrigger": size // 3}
    counts = []
    for _ in range(2):
        rows = _stream(spark, answered.log_dir, **options)
        query = _write(rows, tmp_path)
        counts.append(sum(each["numInputRows"] > 0 for each in query.recentProgress))
    assert counts[0] >= 3 and counts[1] == 0
    assert _sorted(spark.read.parquet(str(tmp_path / "rows"))).equals(answered.rows["read_uncommitted"])


def _write(rows: DataFrame, directory: Path) -> StreamingQuery:
    """Append all that there is to Parquet files."""
    writer = rows.writeStream.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    query = writer.format("parquet").start(str(directory / "rows"))
    query.awaitTermination()
    return query


def test_what_a_broker_has_deleted_and_compacted_of_a_planned_micro_batch(
    answered: Answered, caplog: pytest.LogCaptureFixture
) -> None:
    stream = answered.losing
    compacted = rf"compacted-0: offsets 0 to {_RECORDS - 1} are \d+ bytes of batches, and were \d+ when they were plann"
    deleted = f"deleted-0: offsets 0 to {_RECORDS // 2 - 1} are gone: the first one that is left is {_RECORDS // 2}"
    with pytest.raises(LostRecordsError, match=compacted):
        stream.start_again(**_LOSING)
    stream.start_again(**_LOSING, failOnDataLoss="false")
    found = [record.message for record in caplog.records]
    assert len(found) == 2 and re.search(compacted, found[0]) and re.search(deleted, found[1])
    left = read(answered.log_dir, topics="compacted|deleted", columns=["topic", "offset"]).read_all().to_pylist()
    assert stream.rows == [(f"{row['topic']}-0", row["offset"]) for row in left]
    assert 20 <= sum(row["topic"] == _COMPACTED for row in left) < _RECORDS


_KILLED: Final = {"isolation": "read_committed", "maxBytesPerTrigger": "600000"}
_DRIVER: Final = f"""
import sys
from pathlib import Path
import kidxlib.spark
from jobs.common.spark.session import session
from tests.kafka.test_spark_stream import _stream, _write
with session("test") as spark:
    kidxlib.spark.register(spark)
    _write(_stream(spark, Path(sys.argv[1]), **{_KILLED!r}), Path(sys.argv[2]))
"""


@pytest.mark.exhaustive("takes a driver of its own; tests/kidxlib/spark/test_source.py starts again at each offset")
def test_a_driver_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """It has planned its second micro-batch then, and not written it. Of what is gone of that Spark says a line; else
    each record is there once, and none is missing.
    """
    (partition := tmp_path / "log-dir" / "txn-mixed-0").mkdir(parents=True)
    for log in (SAMPLES / partition.name).glob("*.log"):
        shutil.copy(log, partition)
    (planned := tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    with Watch([planned], Did.RENAME_HERE) as watch:
        command = [sys.executable, "-c", _DRIVER, str(partition.parent), str(tmp_path)]
        driver = subprocess.Popen(command, cwd=PROJECT, start_new_session=True, text=True)
        try:
            next(event for event in watch.events() if event.name == "1")
        finally:
            kill_session(driver)
            driver.wait()
    assert sorted(path.name for path in tmp_path.glob("checkpoint/commits/[0-9]")) == ["0"]
    away = sorted(partition.glob("*.log"))[1:]
    for log in away:
        log.rename(tmp_path / log.name)
    with pytest.raises((StreamingQueryException, Py4JJavaError)) as raised:
        _write(_stream(spark, partition.parent, **_KILLED), tmp_path)
    lines = {line for line in str(raised.value).splitlines() if line.startswith("kidxlib.errors.")}
    assert len(lines) == 1 and ".LostRecordsError: " in (line := lines.pop()), lines
    assert re.search(r"txn-mixed-0: offsets \d+ to \d+ are gone: the log ends before 84; it was truncated; fail", line)
    for log in away:
        (tmp_path / log.name).rename(log)
    query = _write(_stream(spark, partition.parent, **_KILLED), tmp_path)
    assert [each["batchId"] for each in query.recentProgress][:2] == [1, 2]
    found = _sorted(spark.read.parquet(str(tmp_path / "rows")))
    expected = read(SAMPLES, topics="txn-mixed", isolation="read_committed").read_all().cast(found.schema)
    assert found.equals(expected.combine_chunks())
