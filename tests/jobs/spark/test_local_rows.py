"""The driver's rows as Java makes them: those that Spark's own way, through Python, would have made."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from jobs.common.spark.local_rows import of_arrow, one_a_task


@pytest.mark.parametrize("count", [0, 1, 50])
def test_rows_of_every_type_that_tables_have(spark: SparkSession, count: int) -> None:
    epochs = t.StructType([t.StructField("epoch", t.IntegerType()), t.StructField("start_offset", t.LongType())])
    schema = t.StructType(
        [
            t.StructField("name", t.StringType(), False),
            t.StructField("at", t.TimestampType()),
            t.StructField("counts", t.MapType(t.StringType(), t.LongType())),
            t.StructField("epochs", t.ArrayType(epochs)),
            t.StructField("seconds", t.DoubleType()),
            t.StructField("well", t.BooleanType()),
        ]
    )
    moment = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    full = (moment, {"ok": 2**62, "": 0}, [(1, -1), (None, 2**63 - 1)], 1 / 3, True)
    rows = [(f"ü{number}", *(full if number % 3 else (None, None, [], None, None))) for number in range(count)]
    values = [
        {**dict(zip(schema.names, row, strict=True)), "counts": None if row[2] is None else list(row[2].items())}
        for row in rows
    ]
    made = pa.Table.from_pylist(values, to_arrow_schema(schema, timezone="UTC"))
    assert_df_equality(of_arrow(spark, made), spark.createDataFrame(rows, schema))


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0), (2, 0, 5), (0, 0, 1, 0, 1)])
def test_rows_in_chunks_of_which_some_are_empty(spark: SparkSession, sizes: tuple[int, ...]) -> None:
    """None is lost: a change of the catalog is put together from several tables."""
    chunks = [
        pa.table({"number": pa.array([10 * place + row for row in range(size)], pa.int64())})
        for place, size in enumerate(sizes)
    ]
    rows = pa.concat_tables(chunks)
    assert [row["number"] for row in of_arrow(spark, rows).collect()] == rows["number"].to_pylist()


@pytest.mark.parametrize("count", [1, 7, 300])
def test_each_value_is_alone_in_its_task(spark: SparkSession, count: int, rng: random.Random) -> None:
    values = [rng.randbytes(rng.randrange(2000)) for _ in range(count)]
    rows = one_a_task(spark, values).withColumn("task", F.spark_partition_id()).collect()
    assert {row["task"]: bytes(row["work"]) for row in rows} == dict(enumerate(values))
