"""Rows that the driver has, as DataFrames.

Java alone makes them. Of rows in Python Spark would let more Python workers begin, one more for each core, whose only
work is to hand rows on: half a second of processor each, in every job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.schema import spark_schema


def of_driver(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: pa.Schema) -> DataFrame:
    """Rows with a value for each column."""
    values = [dict(zip(schema.names, map(_entries, row), strict=True)) for row in rows]
    return of_arrow(spark, pa.Table.from_pylist(values, schema))


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of a table.

    Spark takes a table chunk by chunk and loses those after an empty one amid others (PySpark 4.2.0), so it gets one.
    """
    return spark.createDataFrame(rows.combine_chunks(), spark_schema(rows.schema))


def _entries(value: Any) -> Any:
    """A map as Arrow takes it."""
    return list(value.items()) if isinstance(value, dict) else value


def one_a_task(spark: SparkSession, values: Sequence[bytes]) -> DataFrame:
    """The column `work`, each of its rows in a task of its own."""
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    assert jvm is not None and gateway is not None
    rows = jvm.java.util.ArrayList()
    for value in values:
        columns = gateway.new_array(jvm.Object, 1)
        columns[0] = value
        rows.add(jvm.org.apache.spark.sql.RowFactory.create(columns))
    tasks = spark.sparkContext._jsc.parallelize(rows, max(1, len(values)))
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("work binary")
    return DataFrame(spark._jsparkSession.createDataFrame(tasks, schema), spark)
