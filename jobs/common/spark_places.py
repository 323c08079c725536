"""Files of questions and answers in places that Spark alone reaches, such as hdfs:// or a store with jars of its own;
and Delta tables of kinds that delta-rs does not read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.engine import SparkEngine
from jobs.common.spark.session import hadoop_path, spark_message
from kidxlib.errors import UsageError
from kidxlib.operations.backend import Backend
from kidxlib.operations.seek.seek_files import (
    EXPECTED,
    JSON_SUFFIXES,
    QUESTION_COLUMNS,
    AnswerFormat,
    output_exists,
    write_answers,
)
from kidxlib.storage.scratch import scratch_directory

_COLUMNS: Final = frozenset(QUESTION_COLUMNS)
_ROWS_AT_ONCE: Final = 65_536


class SparkPlaces:
    def read(self, backend: Backend, path: str) -> Iterator[pa.RecordBatch]:
        try:
            rows = _read(_session(backend), path)
            if rows.columns:
                rows = rows.select(*(name for name in rows.columns if name in _COLUMNS))
            table = rows.toArrow()
            # At least one batch: the reader looks at its columns even if there is no row.
            yield from table.to_batches(_ROWS_AT_ONCE) or [pa.RecordBatch.from_pylist([], table.schema)]
        except (AnalysisException, Py4JJavaError) as error:
            raise UsageError(f"--queries {path}: {spark_message(error)}; {EXPECTED}") from error

    def ensure_new(self, backend: Backend, path: str) -> None:
        try:
            directory, file_system = hadoop_path(_session(backend), path)
        except Py4JJavaError as error:
            raise UsageError(f"--output {path}: {spark_message(error)}; give Spark its jars after --") from error
        if file_system.exists(directory):
            raise output_exists(path)

    def write(self, backend: Backend, answers: Iterator[pa.RecordBatch], path: str) -> None:
        """See `SeekFilesElsewhere.write`. The answers are written on this machine first, and copied as a whole."""
        spark = _session(backend)
        if AnswerFormat.of_path(path) is AnswerFormat.DELTA:
            parts = f"{path}.kidx-{uuid.uuid4().hex[:8]}.tmp"
            _copy(spark, answers, f"{parts}/answers.parquet")
            spark.read.parquet(f"{parts}/answers.parquet").write.format("delta").save(path)
            directory, file_system = hadoop_path(spark, parts)
            file_system.delete(directory, True)
        else:
            _copy(spark, answers, path)


def _session(backend: Backend) -> SparkSession:
    assert isinstance(backend.engine, SparkEngine)
    return backend.engine.spark


def _read(spark: SparkSession, path: str) -> DataFrame:
    match PurePosixPath(path).suffix:
        case ".csv":
            return spark.read.csv(path, header=True)
        case suffix if suffix in JSON_SUFFIXES:
            return spark.read.json(path, primitivesAsString=True)
        case ".parquet":
            return spark.read.parquet(path)
        case _:
            return spark.read.format("delta").load(path)


def _copy(spark: SparkSession, answers: Iterator[pa.RecordBatch], path: str) -> None:
    with scratch_directory() as scratch:
        local = scratch / PurePosixPath(path).name
        write_answers(answers, str(local))
        target, file_system = hadoop_path(spark, path)
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        file_system.mkdirs(target.getParent())
        file_system.copyFromLocalFile(True, False, jvm.org.apache.hadoop.fs.Path(str(local)), target)
