"""The driver's rows as DataFrames, Spark's types of the catalog's columns, and conditions on rows.

Java alone makes the DataFrames. For rows in Python, Spark would start one more Python worker for each core, only to
hand rows on: half a second of processor each, in every job.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StructType

from kidxlib.catalog.conditions import Among, Condition
from kidxlib.catalog.rows import Column


def spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's schema of rows as one of Spark."""
    return from_arrow_schema(schema)


def spark_type(column: Column) -> DataType:
    """Spark's type of a column; its `simpleString` is what SQL calls it."""
    return from_arrow_type(column.arrow_type)


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The driver's rows as a DataFrame, in one chunk: Spark loses the chunks after an empty one amid others (PySpark
    4.2.0).
    """
    return spark.createDataFrame(rows.combine_chunks(), spark_schema(rows.schema))


def one_a_task(spark: SparkSession, values: Sequence[bytes]) -> DataFrame:
    """The driver's values as a DataFrame with the column `work`, and a task for each value."""
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


def as_column(condition: Condition) -> SparkColumn:
    """The driver's condition on rows as a column of a DataFrame, true or false and never null."""
    column = F.col(condition.column)
    if isinstance(condition, Among):
        is_among = F.coalesce(column.isin(*condition.values), F.lit(False))
        return ~is_among if condition.negated else is_among
    return F.coalesce(column.between(condition.least, condition.most), F.lit(False))
