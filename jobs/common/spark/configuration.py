"""Starts the session with the settings that results depend on; what only tunes a machine stands in `conf/`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.common.spark.errors import reason
from jobs.common.spark.java import starting_java
from kidxlib.errors import UsageError

#: Where an S3 store is, which Python's workers need to know too. Credentials are theirs to have: Spark shows settings.
_STORE: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")


def start(job: str, event_log_dir: str | None) -> SparkSession:
    builder = (
        SparkSession.builder.appName(f"kidx {job}")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        # Spark's default, INT96, holds nanoseconds: other readers of a table see years beyond 2262 wrong.
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        # Tasks publish files; they may run twice, but need not.
        .config("spark.speculation", "false")
    )
    if event_log_dir is not None:
        builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", _made(event_log_dir))
    try:
        with starting_java():
            spark = builder.getOrCreate()
            # Its thread would print a stack trace where Java ends; what that fails reaches the job as an exception.
            spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            spark.sparkContext.environment.update({name: os.environ[name] for name in _STORE if name in os.environ})
            _ensure_delta(spark)
    except Py4JJavaError as error:
        raise UsageError(f"Spark did not start: {reason(error)}") from error
    return spark


def _ensure_delta(spark: SparkSession) -> None:
    """What Spark cannot load it leaves out without a word, and fails later."""
    assert spark.sparkContext._jvm is not None
    if isinstance(spark.sparkContext._jvm.io.delta.tables.DeltaTable, JavaPackage):
        spark.stop()
        raise UsageError(
            "Spark found no Delta: its jars are not on the class path; ./spark-submit.sh brings those of .jars/delta "
            "along: leave out what replaces them after --"
        )


def _made(directory: str) -> str:
    """The URL of a directory, which Spark expects to be there."""
    if "://" in directory:
        return directory
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"spark.event_log_dir {directory}: cannot be made: {error.strerror}") from error
    return Path(directory).as_uri()
