"""The source gives from a broker's disk what Spark's Kafka source gives from the broker: the same rows, as often."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from kidxlib.format.segment_files import LOG_SUFFIX
from tests.kafka.reading import TIMEOUT_SECONDS
from tests.kafka.traffic import FIRST_TIMESTAMP, PARTITIONS, STEP_MS, Traffic, create_topics
from tests.support.kafka.broker import Broker
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import kidx_build_here

_COMPACTED: Final = "compacted"
_STEPS: Final = 150
#: Which transactional producer has a transaction open in the end.
_LEFT_OPEN: Final = 2


def _middle(topic: str, step: float) -> str:
    """A timestamp amid those of a topic, which go forward and back."""
    return str(int(FIRST_TIMESTAMP[topic] + step * _STEPS * STEP_MS))


def _by_partition(topics: Mapping[str, int], *numbers: int) -> str:
    """JSON with a number for each partition of some topics, taken in turn."""
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    found: dict[str, dict[str, int]] = {}
    for number, (topic, partition) in enumerate(places):
        found.setdefault(topic, {})[str(partition)] = numbers[number % len(numbers)]
    return json.dumps(found)


_TRANSACTIONS: Final = {"transactions": 3}
_BOTH: Final = {"plain": 2, **_TRANSACTIONS}
#: Options that mean the same to both.
_QUERIES: Final[dict[str, dict[str, str]]] = {
    "all topics": {"subscribePattern": ".*", "includeHeaders": "true"},
    "a pattern": {"subscribePattern": "[a-p].*"},
    "topics by name": {"subscribe": "plain,append-time"},
    "the compacted topic": {"subscribe": _COMPACTED},
    "partitions": {"assign": '{"plain": [1], "transactions": [0, 2]}'},
    "offsets": {
        "subscribe": "plain,transactions",
        "startingOffsets": _by_partition(_BOTH, -2, 7, 11),
        "endingOffsets": _by_partition(_BOTH, 35, -1, 30),
    },
    "offsets of a compacted topic": {
        "subscribe": _COMPACTED,
        "startingOffsets": _by_partition({_COMPACTED: 1}, 9_000),
        "endingOffsets": _by_partition({_COMPACTED: 1}, 20_000),
    },
    "times": {
        "subscribe": "transactions",
        "startingTimestamp": _middle("transactions", 0.3),
        "endingTimestamp": _middle("transactions", 0.6),
    },
    "a start that few are as late as": {
        "subscribe": "transactions",
        "startingTimestamp": _middle("transactions", 1.05),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "times by partition": {
        "subscribe": "plain",
        "startingOffsetsByTimestamp": _by_partition({"plain": 2}, int(_middle("plain", 0.2)), 0),
        "endingOffsetsByTimestamp": _by_partition({"plain": 2}, int(_middle("plain", 0.9)), 2**62),
    },
}
_ISOLATIONS: Final = ("read_uncommitted", "read_committed")


@dataclass(frozen=True, slots=True)
class Answered:
    """What Spark's Kafka source gave of a broker that has stopped since, by query and isolation."""

    log_dir: Path
    rows: dict[tuple[str, str], pa.Table]


@pytest.fixture(scope="module")
def answered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, broker_version: str) -> Answered:
    """Of every codec and header, keys and values that are null, transactions that ended in either way and one that is
    open, timestamps of producers and of the broker, and a topic that a broker has compacted.
    """
    settings = {"transaction.state.log.num.partitions": 2, "log.cleaner.enable": "false"}
    broker = Broker(tmp_path_factory.mktemp("kafka") / "broker", settings, version=broker_version)
    with broker.running():
        create_topics(broker.bootstrap)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(_COMPACTED, 1, 1)])[_COMPACTED].result(TIMEOUT_SECONDS)
    for log in (SAMPLES / "compacted-0").glob(f"*{LOG_SUFFIX}"):
        shutil.copy2(log, broker.log_dir / f"{_COMPACTED}-0" / log.name)
    with broker.running():
        traffic = Traffic(broker.bootstrap, seed=2)
        traffic.run(_STEPS)
        traffic.end_transactions(but=_LEFT_OPEN)
        rows = {
            (query, isolation): _sorted(_from_broker(spark, broker.bootstrap, options, isolation))
            for query, options in _QUERIES.items()
            for isolation in _ISOLATIONS
        }
    return Answered(broker.log_dir, rows)


@pytest.fixture(scope="module")
def catalog(answered: Answered, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the broker's disk as it stopped."""
    place = tmp_path_factory.mktemp("catalog")
    ended = kidx_build_here(answered.log_dir, "--index-dir", place / "index", "--catalog", place / "catalog")
    assert ended.code == 0, ended.err
    return place / "catalog"


def _from_broker(spark: SparkSession, bootstrap: str, options: dict[str, str], isolation: str) -> pa.Table:
    reader = spark.read.format("kafka").options(**options)
    reader = reader.option("kafka.bootstrap.servers", bootstrap).option("kafka.isolation.level", isolation)
    return reader.load().toArrow()


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).combine_chunks()


def test_the_rows_are_of_many_kinds(answered: Answered) -> None:
    """What is compared holds what can go wrong: else it shows little."""
    everything, committed = (answered.rows["all topics", isolation] for isolation in _ISOLATIONS)
    places = set(zip(everything["topic"].to_pylist(), everything["partition"].to_pylist(), strict=True))
    assert places == {*PARTITIONS, (_COMPACTED, 0)}
    assert 0 < committed.num_rows < everything.num_rows
    assert set(everything["timestampType"].to_pylist()) == {0, 1}
    for column in ("key", "value", "headers"):
        assert 0 < everything[column].null_count < everything.num_rows
    headers: list[Any] = [header for row in everything["headers"].to_pylist() for header in row or ()]
    assert {header["value"] is None for header in headers} == {True, False}
    # Of records that few are as late as, all may belong to transactions that are open.
    assert [query for query in _QUERIES if not answered.rows[query, "read_uncommitted"].num_rows] == []


@pytest.mark.parametrize("isolation", _ISOLATIONS)
@pytest.mark.parametrize("query", _QUERIES)
def test_rows_are_those_of_sparks_kafka_source(
    spark: SparkSession, answered: Answered, query: str, isolation: str
) -> None:
    reader = spark.read.format("kafka_segment").options(**_QUERIES[query]).option("isolation", isolation)
    _assert_same(_sorted(reader.load(str(answered.log_dir)).toArrow()), answered.rows[query, isolation])


@pytest.mark.parametrize("query", ["all topics", "offsets", "times"])
def test_so_are_they_with_a_catalog(spark: SparkSession, answered: Answered, catalog: Path, query: str) -> None:
    reader = spark.read.format("kafka_segment").options(**_QUERIES[query]).option("isolation", "read_committed")
    found = _sorted(reader.option("catalog", str(catalog)).load(str(answered.log_dir)).toArrow())
    _assert_same(found, answered.rows[query, "read_committed"])


def _assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert (found.schema, found.num_rows) == (expected.schema, expected.num_rows)
    if not found.equals(expected):  # as it should: a list for each row takes longer
        pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
        assert next(((ours, theirs) for ours, theirs in pairs if ours != theirs), None) is None
