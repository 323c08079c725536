"""What a task raises reaches the driver as an error of ours, whichever of Spark's own errors brings it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.common.spark.session import as_kidx_error, session
from kidxlib import errors
from kidxlib.errors import (
    MADE_OF_PARTS,
    KidxError,
    MalformedError,
    MalformedRecordsError,
    SparkEndedError,
    UnknownRecordTypeError,
    UnreadableMessageError,
)
from tests.support.spark.sessions import use_own_session

_ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KidxError)]
#: Those that are made of parts, and some others: each costs a second.
_SOME = [*MADE_OF_PARTS, *(kind for kind in _ALL if kind not in MADE_OF_PARTS)][: len(MADE_OF_PARTS) + 4]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    use_own_session()
    SparkSession.builder.master("local[1]").getOrCreate()  # tries a task once, where jobs try it four times
    with session("test") as spark:
        yield spark
    spark.stop()  # who shares a session expects that tasks are tried again


def test_an_error_of_each_class_in_a_task(spark: SparkSession, exhaustive: bool) -> None:
    assert len(_ALL) > 20
    for number, kind in enumerate(_ALL if exhaustive else _SOME):
        error = _example(kind)

        def fail(_: Iterator[pa.RecordBatch], error: KidxError = error) -> Iterator[pa.RecordBatch]:
            raise error from KidxError("/a: the cause, which stands first in a traceback")

        failing = spark.range(1).mapInArrow(fail, "id long")
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:  # one of reading, another of writing
            failing.collect() if number % 2 else failing.write.format("noop").mode("overwrite").save()
        ours = as_kidx_error(raised.value)
        assert str(ours) == str(error)
        assert type(ours) is (KidxError if kind in MADE_OF_PARTS else kind)


def test_a_worker_that_ends_before_it_has_said_who_it_is(spark: SparkSession) -> None:
    """The frames are those of a worker that was killed as it began; a connection of Spark's to others has none of
    `PythonWorkerFactory`.
    """
    reader = ("java.io.DataInputStream", "readInt"), ("org.apache.spark.security.SocketAuthHelper", "readUtf8")
    begun = ("org.apache.spark.api.python.PythonWorkerFactory", "createWorker$1")
    assert isinstance(as_kidx_error(_end_of_file(spark, *reader, begun)), SparkEndedError)
    assert (
        as_kidx_error(_end_of_file(spark, *reader, ("org.apache.spark.launcher.LauncherConnection", "run"), begun))
        is None
    )


def _end_of_file(spark: SparkSession, *frames: tuple[str, str]) -> Py4JJavaError:
    gateway: Any = spark.sparkContext._gateway
    trace = gateway.new_array(gateway.jvm.StackTraceElement, len(frames))
    for number, (name, method) in enumerate(frames):
        trace[number] = gateway.jvm.StackTraceElement(name, method, None, 1)
    thrown = gateway.jvm.java.io.EOFException()
    thrown.setStackTrace(trace)
    return Py4JJavaError("", gateway.jvm.org.apache.spark.SparkException("Job aborted", thrown))


def _example(kind: Any) -> KidxError:
    """An error of a class, whatever it is made of."""
    parts: list[Any] = ["/data/kafka/a-0/00000000000000000000.log: 3 bytes, expected 8: copy it again"]
    if kind in (MalformedError, UnreadableMessageError):
        parts = ["3 bytes", "8"]
    if kind is MalformedRecordsError:
        parts = [17, "3 bytes", "8"]
    if kind is UnknownRecordTypeError:
        parts = [9]
    error = kind(*parts)
    assert isinstance(error, KidxError)
    return error
