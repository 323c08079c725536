"""Spark gets from the source what `kidxlib.read` gives, in the columns of its own Kafka source."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

import kidxlib.spark
from kidxlib.library.read import read
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.spark.source import FILTER_PUSHDOWN, KafkaSegmentSource
from tests.docs.pages import PROJECT
from tests.support.logs.golden import SAMPLES
from tests.support.spark.jobs import kidx_build_here

TIERED: Final = PROJECT / "samples" / "tiered"
#: Of Spark's Kafka source, as its guide lists them (`KafkaRecordToRowConverter`).
_COLUMNS: Final = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def _load(spark: SparkSession, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka_segment").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(str(SAMPLES))


def _assert_same(found: DataFrame, **options: Any) -> None:
    """Rows and their order: partitions of the DataFrame are in the order of logs."""
    expected = read(SAMPLES, **options).read_all().cast(to_arrow_schema(found.schema, timezone="UTC"))
    assert found.toArrow().equals(expected) and expected.num_rows > 0


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession) -> None:
    assert _load(spark).schema.simpleString() == _COLUMNS
    assert _load(spark, includeHeaders="true").schema.simpleString() == f"{_COLUMNS[:-1]},headers:{_HEADERS}>"
    assert all(field.nullable for field in _load(spark, includeHeaders="true").schema)


def test_log_dirs_of_a_broker_are_loaded_together(spark: SparkSession, tmp_path: Path) -> None:
    """As a list, which Spark makes the option `paths` of."""
    for log_dir, partition in (("a", "txn-mixed-0"), ("b", "append-time-0")):
        shutil.copytree(SAMPLES / partition, tmp_path / log_dir / partition)
    rows = spark.read.format("kafka_segment").load([str(tmp_path / "a"), str(tmp_path / "b")])
    assert rows.count() == read([tmp_path / "a", tmp_path / "b"], columns=["offset"]).read_all().num_rows == 18_186


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_the_library(spark: SparkSession, isolation: str) -> None:
    found = _load(spark, includeHeaders="true", isolation=isolation)
    _assert_same(found, include_headers=True, isolation=isolation)


def test_a_catalog_changes_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The process that plans for Spark reads it by way of delta-rs."""
    place = tmp_path / "catalog"
    assert kidx_build_here(SAMPLES, "--index-dir", tmp_path / "index", "--catalog", place).code == 0
    found = _load(spark, catalog=str(place), isolation="read_committed").where(f"timestamp >= {_MOMENT}")
    _assert_same(found, isolation="read_committed", times=("2026-11-21T01:32:20.500Z", None))


def test_a_bucket_of_tiered_storage(spark: SparkSession, tmp_path: Path) -> None:
    """By its name, or as the options say."""
    other = shutil.copytree(TIERED / STORAGE_DIRECTORY, tmp_path / "archive")
    expected = read(TIERED, tiered_metadata=[TIERED / "log-dir"]).read_all()
    said = {"layout": "local", "tieredMetadata": str(TIERED / "log-dir")}
    frames = [
        spark.read.format("kafka_segment").load(str(TIERED)),
        spark.read.format("kafka_segment").options(**said).load(str(other)),
        kidxlib.spark.read(spark, other, layout="local", tiered_metadata=[TIERED / "log-dir"]),
    ]
    for found in frames:
        assert found.toArrow().equals(expected.cast(to_arrow_schema(found.schema, timezone="UTC")))
    with pytest.raises(PySparkException, match="no bucket of remote segments, for which --tiered-metadata is"):
        spark.read.format("kafka_segment").option("tieredMetadata", "x").load(str(SAMPLES)).count()


def test_a_schema_chooses_columns(spark: SparkSession) -> None:
    _assert_same(_load(spark, schema="offset long, topic string"), columns=["offset", "topic"])
    headers = f"timestamp timestamp, headers {_HEADERS}"
    _assert_same(_load(spark, schema=headers), columns=["timestamp", "headers"])


def test_batches(spark: SparkSession) -> None:
    found = _load(spark, mode="batches")
    assert dict(found.dtypes)["crc"] == "bigint"
    _assert_same(found, mode="batches")
    _assert_same(_load(spark, mode="batches", schema="last_offset long"), mode="batches", columns=["last_offset"])


_MOMENT: Final = "timestamp '2026-11-21 01:32:20.5'"


@pytest.mark.parametrize(
    ("condition", "options", "pushed"),
    [
        ("offset between 5000 and 5009", {"offsets": (5_000, 5_010)}, True),
        ("topic like 'txn%' and partition in (0, 1)", {"topics": "txn.*"}, True),
        (f"timestamp >= {_MOMENT}", {"times": ("2026-11-21T01:32:20.500Z", None)}, True),
        (f"timestamp < {_MOMENT} + interval 100 microseconds", {"times": (None, "2026-11-21T01:32:20.501Z")}, True),
        ("offset in (5000, 5001)", {"offsets": (5_000, 5_002)}, True),
        ("topic = 'txn-mixed' and offset % 10000 = 5000", {"offsets": {"txn-mixed-0": (5_000, 5_001)}}, False),
    ],
)
def test_filters_are_pushed_down(spark: SparkSession, condition: str, options: Any, pushed: bool) -> None:
    """And are not applied by Spark again, which would have to know all rows."""
    found = _load(spark).where(condition)
    _assert_same(found, **options)
    assert ("Filter (" not in _plan(found)) == pushed


def _plan(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue()


def test_without_the_setting_spark_says_which_one_it_is(spark: SparkSession) -> None:
    spark.conf.set(FILTER_PUSHDOWN, "false")
    try:
        with pytest.raises(PySparkException, match=re.escape(FILTER_PUSHDOWN)):
            _load(spark).count()
    finally:
        kidxlib.spark.register(spark)
    assert _load(spark, subscribe="txn-mixed").count() == 10_186


def test_nothing_may_be_asked_for(spark: SparkSession) -> None:
    assert _load(spark, subscribePattern="none-of-them").count() == 0


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (None, {"kafka.bootstrap.servers": "a:9092"}, "UsageError: option kafka.bootstrap.servers: it means nothing"),
        (None, {"subscribe": "other"}, "UsageError: no partition of other; there are topics"),
        ("offsets long", {}, "UsageError: column 'offsets': expected each of these once at most: key, value, topic"),
        ("offset int", {}, "UsageError: schema: column offset is of type int, expected bigint; cast it after reading"),
    ],
)
def test_what_is_wrong_is_a_line_of_what_spark_says(
    spark: SparkSession, schema: str | None, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        _load(spark, schema=schema, **options).count()
    (line,) = [line for line in str(raised.value).splitlines() if line.startswith("kidxlib.errors.")]
    assert line.startswith(f"kidxlib.errors.{said}")


def test_tasks_are_of_neighbouring_segments(caplog: pytest.LogCaptureFixture) -> None:
    """Small ones together: the sample's are read by one task."""
    source = KafkaSegmentSource({"path": str(SAMPLES)})
    with caplog.at_level(logging.INFO, "kidxlib"):
        tasks: list[Any] = source.reader(source.schema()).partitions()
    assert [len(task.reads) for task in tasks] == [11]
    assert caplog.messages[0].startswith("11 segments to read, ")


def test_what_is_read_is_told_where_the_driver_is() -> None:
    """The process that plans has nobody who says where its log goes."""
    script = f"""
        from kidxlib.spark.source import FILTER_PUSHDOWN, KafkaSegmentSource
        source = KafkaSegmentSource({{"path": {str(SAMPLES)!r}, "subscribe": "txn-mixed"}})
        for _ in range(2):
            source.reader(source.schema()).partitions()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert re.fullmatch(
        r"(kafka_segment: 4 segments to read, [0-9,]+ bytes of logs; passed over: .*\n){2}", done.stderr
    )
