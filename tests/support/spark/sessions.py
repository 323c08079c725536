"""Spark's sessions within a process of tests: one that all tests share, or one that a test starts and stops."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from jobs.common.spark.session import start

_PROJECT: Final = Path(__file__).resolve().parents[3]


def use_shared_session() -> None:
    """Have one session for all tests of a process: jobs find it, and do not stop it. A session for each test, with its
    Python workers, took a third of the time of these tests.
    """
    _as_spark_submit_does()
    start("tests", None)


def use_own_session() -> None:
    """Stop the session, so that the next job starts and stops its own."""
    _as_spark_submit_does()
    if (spark := SparkSession.getActiveSession()) is not None:
        spark.stop()


@functools.cache
def _as_spark_submit_does() -> None:
    """Set the variables that ./spark-submit.sh sets before it starts a job."""
    # One JVM serves all tests of a process, also those of Spark's Kafka source.
    jars = ",".join(
        str(jar) for name in ("delta", "spark-kafka") for jar in sorted((_PROJECT / ".jars" / name).glob("*.jar"))
    )
    # Queries have a few rows: generating and compiling code for each took a fifth of the tests' time. Jobs that tests
    # start as processes generate code.
    confs = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN"
    os.environ.update(
        SPARK_HOME=str(Path(pyspark.__file__).parent),
        SPARK_CONF_DIR=str(_PROJECT / "conf"),
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=str(_PROJECT),
        # With conf's options for Java. This JVM lives for minutes, but runs most code once: the optimising compiler
        # took a quarter of its time.
        PYSPARK_SUBMIT_ARGS=f'--master "local[*,4]" --jars "{jars}" {confs} pyspark-shell',
    )
