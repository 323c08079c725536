"""The Spark session. Settings that results depend on stand here; what only tunes a machine stands in `conf/`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from kidxlib import errors
from kidxlib.errors import UsageError

#: Where an S3 store is, which executors need to know too. Credentials are theirs to have: Spark shows its settings.
_STORE: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")

#: One of our own errors, as the last line of the traceback that Spark brings back from an executor.
_OUR_ERROR: Final = re.compile(r"^kidxlib\.errors\.(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)


@contextlib.contextmanager
def session(job: str, event_log_dir: str | None = None) -> Iterator[SparkSession]:
    """The session of one job, stopped at the end.

    Args:
        event_log_dir: absolute path or URL of a folder for Spark's history server; None for no logs.

    Raises:
        UsageError: Spark does not take its options.
        KidxError: what a task on an executor raised as one, without Spark's stack trace around it.
    """
    spark = _start(job, event_log_dir)
    try:
        yield spark
    except (PySparkException, Py4JJavaError) as error:
        raised = _OUR_ERROR.search(str(error))
        if raised is None:
            raise
        raise getattr(errors, raised["name"])(raised["message"]) from error
    finally:
        spark.stop()


def _start(job: str, event_log_dir: str | None) -> SparkSession:
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
    for name in _STORE:
        if name in os.environ:
            builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    if event_log_dir is not None:
        builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", _made(event_log_dir))
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise UsageError("Spark did not start; what it said of its options stands above") from error


def _made(folder: str) -> str:
    """The URL of a folder, which Spark expects to be there."""
    if "://" in folder:
        return folder
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"spark.event_log_dir {folder}: cannot be made: {error.strerror}") from error
    return Path(folder).as_uri()
