"""Answers of a seek, written where and as what their name says."""

from __future__ import annotations

import enum
import uuid
from pathlib import PurePosixPath

from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.hadoop import concatenate, hadoop_path
from kidxlib.errors import UsageError
from kidxlib.lookup.columns import RESULT_COLUMNS


class Format(enum.Enum):
    """What a name says: one file of text, a directory of Parquet files, or a Delta table."""

    CSV = ".csv"
    JSON = ".json"
    PARQUET = ".parquet"
    DELTA = ""

    @classmethod
    def of(cls, path: str) -> Format:
        """The format that the end of a name says.

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


def ensure_new(spark: SparkSession, path: str) -> None:
    """Answers never replace what is there.

    Raises:
        UsageError: something is.
    """
    directory, file_system = hadoop_path(spark, path)
    if file_system.exists(directory):
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
