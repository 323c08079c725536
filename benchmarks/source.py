"""Records through Spark: from the files of a broker, from the broker by Spark's Kafka source, and made-up ones that
show what Spark's way from Python takes by itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import kidxlib.spark
from benchmarks.figures import Target, beside, record
from benchmarks.reading import produce
from kidxlib.errors import KidxError
from kidxlib.spark.source import source_schema
from kidxlib.terminal.console import note
from tests.support.kafka.broker import Broker
from tests.support.kafka.jars import PROJECT

#: Bytes of a record's value, and the codec.
_CASES: Final = ((100, "none"), (1000, "none"), (100, "zstd"))
#: How fast the source has to be, beside made-up rows.
_OF_MADE_UP: Final = 0.8
_ROWS_AT_ONCE: Final = 10_000
_KEY_BYTES: Final = 8


@click.command()
@click.option("--megabytes", type=click.IntRange(1), default=1024, show_default=True, help="Of values, in each topic.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("var/benchmarks"), show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
def source(megabytes: int, directory: Path, rounds: int) -> None:
    """Produce to a broker, and read all of it into Spark in each way, with two cores."""
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="source-", dir=directory.resolve()))
    try:
        targets = list(_targets(place / "broker", megabytes, rounds))
        record(directory, "source", targets, [beside("rates", targets)])
    finally:
        shutil.rmtree(place)


def _targets(place: Path, megabytes: int, rounds: int) -> Iterator[Target]:
    broker = Broker(place, {})
    spark = _session()
    kidxlib.spark.register(spark)
    spark.dataSource.register(MadeUp)
    for value_bytes, codec in _CASES:
        topic = f"{codec}-{value_bytes}"
        with broker.running():
            count = produce(broker.bootstrap, topic, value_bytes, codec, megabytes * 1_000_000 // value_bytes)
            note(f"{count:,} records in {topic} …")
            from_broker = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
            of_kafka = _rates(from_broker.option("subscribe", topic).load(), count, rounds)
        path = str(broker.log_dir / f"{topic}-0")
        tasks = kidxlib.spark.read(spark, path).rdd.getNumPartitions()
        of_source = _rates(spark.read.format("kafka_segment").load(path), count, rounds)
        in_bulk = _rates(kidxlib.spark.read(spark, path), count, rounds)
        made_up = spark.read.format(MadeUp.name()).options(rows=count, tasks=tasks, bytes=value_bytes).load()
        of_made_up = _rates(made_up, count, rounds)
        for name, found in (
            ("the source", of_source),
            ("kidxlib.spark.read", in_bulk),
            ("made-up rows", of_made_up),
            ("Spark's Kafka source", of_kafka),
        ):
            yield Target(name=f"{topic}: {name}", unit="M records/s", values=[rate / 1e6 for rate in found])
        for name, theirs, least in (
            ("made-up rows", of_made_up, _OF_MADE_UP),
            ("Spark's Kafka source", of_kafka, None),
        ):
            ratio = max(of_source) / max(theirs)
            yield Target(name=f"{topic}: the source, beside {name}", unit="×", values=[ratio], at_least=least)
    spark.stop()


def _session() -> SparkSession:
    """Two cores, the Kafka source's jars, and Spark's own settings else."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(str(jar) for jar in sorted((PROJECT / ".jars" / "spark-kafka").glob("*.jar")))
    builder = SparkSession.builder.appName("kidx benchmark").master("local[2]").config("spark.jars", jars)
    return builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "2g").getOrCreate()


def _rates(frame: DataFrame, count: int, rounds: int) -> list[float]:
    """Records a second of some passes over all columns, whose rows go nowhere."""
    if (found := frame.count()) != count:
        raise KidxError(f"{found} records, expected {count}")
    return [count / _seconds(lambda: frame.write.format("noop").mode("overwrite").save()) for _ in range(rounds)]


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class MadeUp(DataSource):
    """Rows with the columns of the source, all from the same memory. Options: `rows`, `tasks`, and the `bytes` of a
    value.
    """

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` calls it."""
        return "made_up"

    def schema(self) -> StructType:
        """The columns of the source."""
        return source_schema("records", include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Gives each task its part of the rows."""
        rows, tasks, value_bytes = (int(self.options[name]) for name in ("rows", "tasks", "bytes"))
        return _MadeUpReader(rows, tasks, value_bytes, to_arrow_schema(schema, timezone="UTC"))


class _MadeUpReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int, value_bytes: int, schema: pa.Schema) -> None:
        self._rows, self._tasks, self._value_bytes, self._schema = rows, tasks, value_bytes, schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = self._batch(_ROWS_AT_ONCE)
        end = self._rows * (partition.value + 1) // self._tasks
        for at in range(self._rows * partition.value // self._tasks, end, _ROWS_AT_ONCE):
            yield rows.slice(0, min(_ROWS_AT_ONCE, end - at))

    def _batch(self, rows: int) -> pa.RecordBatch:
        numbers = np.arange(rows)
        columns: dict[str, Any] = {
            "key": _binary(rows, _KEY_BYTES),
            "value": _binary(rows, self._value_bytes),
            "topic": pa.repeat("topic", rows),
            "partition": np.zeros(rows, np.int32),
            "offset": numbers,
            "timestamp": pa.array(numbers).cast(self._schema.field("timestamp").type),
            "timestampType": np.zeros(rows, np.int32),
        }
        return pa.RecordBatch.from_pydict(columns, self._schema)


def _binary(rows: int, size: int) -> pa.Array[pa.BinaryScalar]:
    return pa.array([bytes(size)] * rows, pa.binary())
