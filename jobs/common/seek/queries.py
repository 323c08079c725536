"""Questions for a seek, from a file or from the command line, and which partitions they ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.common.seek.query_file import read_queries
from jobs.common.seek.request import SeekRequest
from jobs.common.spark.local_rows import of_driver
from kidxlib.catalog.partitions import PARTITIONS
from kidxlib.errors import UsageError

#: What a question is to the executors.
QUERIES: Final = pa.schema(
    [
        *PARTITIONS.schema(("topic", "partition")),
        pa.field("query", pa.string(), nullable=False),
        pa.field("target", pa.int64(), nullable=False),
        pa.field("source", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one partition, or of one source of it."""

    topic: str
    partition: int
    source: str | None
    queries: int


def _one_query(spark: SparkSession, topic: str, partition: int, query: str, target: int) -> DataFrame:
    """The question of a command line."""
    return of_driver(spark, [(topic, partition, query, target, None)], QUERIES)


def asked(queries: DataFrame, path: str) -> list[Asked]:
    """Which partitions are asked, and how often; for that the file is read once.

    Raises:
        UsageError: a row is wrong.
    """
    groups = queries.groupBy("topic", "partition", "source").agg(
        F.count("*").alias("queries"), F.min("wrong").alias("wrong")
    )
    found = []
    for row in groups.collect():
        if row["wrong"] is not None:
            of = f"{row['topic']}-{row['partition']}, " if row["partition"] is not None else ""
            raise UsageError(f"--queries {path}: {of}{row['wrong']}; nothing was answered")
        found.append(Asked(row["topic"], row["partition"], row["source"], row["queries"]))
    return found


def questions(spark: SparkSession, request: SeekRequest) -> tuple[DataFrame, list[Asked]]:
    """The questions, and which partitions they ask."""
    if request.question is not None:
        topic, partition, query, target = request.question
        return _one_query(spark, topic, partition, query, target), [Asked(topic, partition, None, 1)]
    assert request.queries is not None
    queries = read_queries(spark, request.queries)
    wanted = asked(queries, request.queries)
    if not wanted:
        raise UsageError(f"--queries {request.queries}: no row in it")
    return queries.drop("wrong"), wanted
