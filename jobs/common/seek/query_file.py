"""A file of questions, read by Spark, checked, and brought into one form."""

from __future__ import annotations

from functools import reduce
from pathlib import PurePosixPath
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from jobs.common.seek.local_file import EXPECTED_COLUMNS, JSON_SUFFIXES
from jobs.common.spark.errors import reason
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PARTITION_MAX
from kidxlib.lookup.columns import OFFSET, TIMESTAMP

_NAMES: Final = ("topic", "partition", "offset", "timestamp", "source")
_NUMBER: Final = r"\A-?[0-9]{1,19}\z"
#: What `kidxlib.times.parse_time` takes, and Spark reads as the same moment. Hours of an offset: Spark knows 18.
_MOMENT: Final = (
    r"\A(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})\z"
)
#: Of the years 1 to 9999 in UTC.
_MICROSECONDS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def read_queries(spark: SparkSession, path: str) -> DataFrame:
    """The questions of a file, with the columns of `QUERIES` and `wrong`, which says what is wrong with a row.

    Raises:
        UsageError: it cannot be read, or has not the columns that it needs.
    """
    read = _read(spark, path)
    columns = {field.name: field.dataType for field in read.schema.fields}
    if not {"topic", "partition"} <= columns.keys() or not {"offset", "timestamp"} & columns.keys():
        raise UsageError(f"--queries {path}: columns {', '.join(columns) or 'none'}; expected {EXPECTED_COLUMNS}")
    for name in _NAMES:
        if name not in columns:
            read = read.withColumn(name, F.lit(None).cast("string"))
    text = {name: F.trim(F.col(name).cast("string")) for name in _NAMES}
    text = {name: F.when(value != "", value) for name, value in text.items()}
    offset, timestamp = _number(text["offset"]), _milliseconds(text["timestamp"])
    if isinstance(columns.get("timestamp"), t.TimestampType):
        timestamp = _first_millisecond(F.col("timestamp"))
    partition = _number(text["partition"])
    wrong = _first_wrong(
        (text["topic"].isNull(), F.lit("a row without a topic")),
        (
            partition.isNull() | (partition < 0) | (partition > PARTITION_MAX),
            _says("partition", text["partition"], "a whole number from 0 on"),
        ),
        (text["offset"].isNotNull() & text["timestamp"].isNotNull(), F.lit("a row with an offset and a timestamp")),
        (text["offset"].isNull() & text["timestamp"].isNull(), F.lit("a row without an offset and a timestamp")),
        (text["offset"].isNotNull() & offset.isNull(), _says("offset", text["offset"], "a whole number")),
        (
            text["timestamp"].isNotNull() & timestamp.isNull(),
            _says(
                "timestamp",
                text["timestamp"],
                "ISO 8601 with a zone (2026-11-20T10:00Z) or milliseconds since the epoch",
            ),
        ),
    )
    return read.select(
        text["topic"].alias("topic"),
        partition.cast("int").alias("partition"),
        F.when(text["offset"].isNotNull(), OFFSET).otherwise(TIMESTAMP).alias("query"),
        F.coalesce(offset, timestamp).alias("target"),
        text["source"].alias("source"),
        wrong.alias("wrong"),
    )


def _read(spark: SparkSession, path: str) -> DataFrame:
    try:
        match PurePosixPath(path).suffix:
            case ".csv":
                return spark.read.csv(path, header=True)
            case suffix if suffix in JSON_SUFFIXES:
                return spark.read.json(path, primitivesAsString=True)
            case ".parquet":
                return spark.read.parquet(path)
            case _:
                return spark.read.format("delta").load(path)
    except (AnalysisException, Py4JJavaError) as error:
        raise UsageError(
            f"--queries {path}: {reason(error)}; expected a file called .csv, .json or .parquet, or a Delta table"
        ) from error


def _number(text: Column) -> Column:
    return F.when(text.rlike(_NUMBER), text.try_cast("bigint"))


def _milliseconds(text: Column) -> Column:
    with_seconds = F.regexp_replace(text, "([T ][0-9]{2}:[0-9]{2})(Z|[+-])", "$1:00$2")  # Spark wants them
    moment = F.when(text.rlike(_MOMENT), F.try_to_timestamp(with_seconds))
    moment = F.when(F.unix_micros(moment).between(*_MICROSECONDS), moment)
    return F.coalesce(_number(text), _first_millisecond(moment))


def _first_millisecond(moment: Column) -> Column:
    """The first full one that is not before."""
    return F.unix_millis(moment) + F.when(F.pmod(F.unix_micros(moment), F.lit(1000)) > 0, 1).otherwise(0)


def _says(name: str, value: Column, expected: str) -> Column:
    return F.concat(F.lit(f"{name} "), F.coalesce(value, F.lit("missing")), F.lit(f", expected {expected}"))


def _first_wrong(*checks: tuple[Column, Column]) -> Column:
    """The remark of the first check that fails; null where none does."""
    nothing = F.lit(None).cast("string")
    return reduce(lambda rest, check: F.when(check[0], check[1]).otherwise(rest), reversed(checks), nothing)
