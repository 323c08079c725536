"""Spark's session of one job: from its start to its end, and errors as users can read them. A session that is there
already, as in a notebook, is used, and left to whoever started it.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.common.spark.configuration import start
from jobs.common.spark.errors import as_ours
from jobs.common.spark.masters import ensure_reachable_master
from kidxlib.errors import SparkEndedError
from kidxlib.terminal import interrupts
from kidxlib.terminal.progress import begin_phase

_INTERRUPTED: Final = "what is recorded stays, the rest is not done; run the same command again"
_INTERRUPTED_READER: Final = "nothing was changed or recorded; run the same command again"


@contextlib.contextmanager
def session(job: str, event_log_dir: str | None = None, *, changes: bool = True) -> Iterator[SparkSession]:
    """The session of one job, stopped at the end if it was started here.

    Args:
        event_log_dir: absolute path or URL of a directory for Spark's history server; None for no logs. A session that
            is there already logs where its owner said.
        changes: False for a job that changes and records nothing; it says so when it is interrupted.

    Raises:
        UsageError: Spark does not take its options.
        StorageError: a disk did not let Spark read or write a file.
        SparkEndedError: Spark's JVM is no longer there.
        KidxError: what a task on an executor raised as one, without Spark's stack trace around it.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it says of a JVM that ended, it raises
    logging.getLogger().addFilter(_is_not_of_py4j)
    ensure_reachable_master()
    is_ours = not _is_there()
    begin_phase("starting Spark")
    spark = start(job, event_log_dir)
    begin_phase("opening the catalog")
    interrupts.handle_again()  # pyspark's own handler calls Java amid another call
    with (
        interrupts.telling(lambda: _INTERRUPTED if changes else _INTERRUPTED_READER),
        _ending_well(spark, is_ours=is_ours),
        interrupts.cancelling("py4j", lambda: _cancel_all_jobs(spark)),
    ):
        yield spark


@contextlib.contextmanager
def _ending_well(spark: SparkSession, *, is_ours: bool) -> Iterator[None]:
    """Errors as users can read them, and at the end no session of ours."""
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
            "Spark's JVM has ended during the job. If nothing above says why, it was killed, as happens where memory "
            "runs out (see dmesg): give the machine more, or spark.driver.memory less, and run the same command again"
        ) from error
    finally:
        if is_ours:
            _stop(spark)


def _is_there() -> bool:
    return SparkSession.getActiveSession() is not None


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
    """Whether a line of the root logger is not of py4j, which logs there some of what it raises."""
    return record.module != "java_gateway"
