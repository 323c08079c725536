"""The Spark session. Settings that results depend on stand here; what only tunes a machine stands in `conf/`."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.common.java import starting_java
from jobs.common.masters import refuse_unreachable_master
from jobs.common.spark_errors import as_ours, reason
from kidxlib import interrupts
from kidxlib.errors import SparkEndedError, UsageError
from kidxlib.progress import begin_phase

#: Where an S3 store is, which executors need to know too. Credentials are theirs to have: Spark shows its settings.
_STORE: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")
_INTERRUPTED: Final = "what is recorded stays, the rest is not done; run the same command again"
_INTERRUPTED_READER: Final = "nothing was changed or recorded; run the same command again"


@contextlib.contextmanager
def session(job: str, event_log_dir: str | None = None, *, changes: bool = True) -> Iterator[SparkSession]:
    """The session of one job, stopped at the end.

    Args:
        event_log_dir: absolute path or URL of a folder for Spark's history server; None for no logs.
        changes: False for a job that changes and records nothing; it says so when it is interrupted.

    Raises:
        UsageError: Spark does not take its options.
        StorageError: a disk did not let Spark read or write a file.
        SparkEndedError: Spark's JVM is no longer there.
        KidxError: what a task on an executor raised as one, without Spark's stack trace around it.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it says of a JVM that ended, it raises
    logging.getLogger().addFilter(_is_not_of_py4j)
    refuse_unreachable_master()
    begin_phase("starting Spark")
    spark = _start(job, event_log_dir)
    begin_phase("opening the catalog")
    interrupts.handle_again()  # pyspark's own handler calls Java amid another call
    with (
        interrupts.telling(lambda: _INTERRUPTED if changes else _INTERRUPTED_READER),
        _ending_well(spark),
        interrupts.cancelling("py4j", lambda: _cancel_all_jobs(spark)),
    ):
        yield spark


@contextlib.contextmanager
def _ending_well(spark: SparkSession) -> Iterator[None]:
    """Errors as users can read them, and at the end no session."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        interrupts.raise_if_requested()  # its jobs were cancelled
        ours = as_ours(error)
        if ours is None:
            raise
        raise ours from error
    except (Py4JError, ConnectionError) as error:  # of a JVM that has gone py4j also says that a class does not exist
        interrupts.raise_if_requested()  # who sends SIGTERM to this process may send it to Java's, too
        if _answers(spark):
            raise
        raise SparkEndedError(
            "Spark's JVM has ended amid the job. If nothing above says why, it was killed, as a machine without memory "
            "does (dmesg tells): give it more, or spark.driver.memory less, and run the same command again"
        ) from error
    finally:
        _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Stop a session. Where its JVM has gone, or goes amid that, nothing is left to stop."""
    if not _answers(spark):
        return
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # pyspark's, that it has gone
            spark.stop()
    except (Py4JError, OSError):
        if _answers(spark):
            raise


def _answers(spark: SparkSession) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


def _cancel_all_jobs(spark: SparkSession) -> None:
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # Java has ended, or the context is being stopped
        spark.sparkContext.cancelAllJobs()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """It logs some of what it raises by the root logger."""
    return record.module != "java_gateway"


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
    if event_log_dir is not None:
        builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", _made(event_log_dir))
    for name in _STORE:
        if name in os.environ:
            builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    try:
        with starting_java():
            spark = builder.getOrCreate()
            # Its thread would print a stack trace where Java ends; what that fails reaches the job as an exception.
            spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            _refuse_missing_delta(spark)
    except Py4JJavaError as error:
        raise UsageError(f"Spark did not start: {reason(error)}") from error
    return spark


def _refuse_missing_delta(spark: SparkSession) -> None:
    """What Spark cannot load it leaves out without a word, and fails later."""
    assert spark.sparkContext._jvm is not None
    if isinstance(spark.sparkContext._jvm.io.delta.tables.DeltaTable, JavaPackage):
        spark.stop()
        raise UsageError(
            "Spark found no Delta: its jars are not on the class path; ./spark-submit.sh brings those of .jars/delta "
            "along, and what is given behind -- has to leave them in place"
        )


def _made(folder: str) -> str:
    """The URL of a folder, which Spark expects to be there."""
    if "://" in folder:
        return folder
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"spark.event_log_dir {folder}: cannot be made: {error.strerror}") from error
    return Path(folder).as_uri()
