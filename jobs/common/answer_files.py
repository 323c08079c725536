"""Answers of a seek, written where and as what their name says."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.common.hadoop import concatenate, hadoop_path
from kidxlib.answers import OFFSET, RESULT_COLUMNS
from kidxlib.errors import UsageError


class Format(enum.Enum):
    """What a name says: one file of text, a folder of Parquet files, or a Delta table."""

    CSV = ".csv"
    JSON = ".json"
    PARQUET = ".parquet"
    DELTA = ""

    @classmethod
    def of(cls, path: str) -> Format:
        """By the end of a name.

        Raises:
            UsageError: it says something else.
        """
        try:
            return cls(PurePosixPath(path).suffix)
        except ValueError as error:
            raise UsageError(
                f"--output {path}: expected a name that ends in .csv, .json or .parquet, or without a dot for a Delta "
                "table"
            ) from error


def refuse_existing(spark: SparkSession, path: str) -> None:
    """Answers never replace what is there.

    Raises:
        UsageError: something is.
    """
    folder, file_system = hadoop_path(spark, path)
    if file_system.exists(folder):
        raise UsageError(f"--output {path}: it is there already; expected a new name")


def write_answers(answers: DataFrame, path: str) -> None:
    """Write the columns of a result; of text, into one file in the order of the rows."""
    answers, kind = answers.select(*RESULT_COLUMNS), Format.of(path)
    match kind:
        case Format.PARQUET:
            answers.write.parquet(path)
        case Format.DELTA:
            answers.write.format("delta").save(path)
        case Format.CSV | Format.JSON:
            parts = f"{path}.kidx-{uuid.uuid4().hex[:8]}.tmp"
            head = b""
            if kind is Format.CSV:
                answers.write.csv(parts)
                head = ",".join(RESULT_COLUMNS).encode() + b"\n"
            else:
                answers.write.option("ignoreNullFields", "false").json(parts)
            concatenate(answers.sparkSession, parts, path, head)


def reset_offsets(
    answers: Iterator[Mapping[str, Any]], ends: Mapping[tuple[str, int], tuple[int, int | None]]
) -> Iterator[tuple[str, int, int | None]]:
    """Where consumers are to go on: topic, partition, and the offset that `kafka-consumer-groups` would set; None where
    that is not known.

    A consumer starts at the offset that was asked for, or at the record that was found. As in Kafka's tool, one that is
    asked to go where the log does not reach goes to its nearer end, and to the end if no record is so young.

    Args:
        answers: rows of a result, one for each partition.
        ends: log start and log end offset of each partition.
    """
    for answer in answers:
        key = answer["topic"], answer["partition"]
        start, end = ends.get(key, (0, None))
        if not answer["answered"]:
            yield *key, None
        elif answer["found"]:
            yield *key, answer["target"] if answer["query"] == OFFSET else answer["offset"]
        elif end is None:
            yield *key, None
        else:
            yield *key, min(max(answer["target"], start), end) if answer["query"] == OFFSET else end
