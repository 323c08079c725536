"""How much executors have done so far, counted as tasks end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.terminal.phase import Done, Span

_NO_TIME: Final = Span()


class _SpanParam(AccumulatorParam[Span]):
    def zero(self, value: Span) -> Span:
        return Span()

    def addInPlace(self, value1: Span, value2: Span) -> Span:  # noqa: N802
        return value1 | value2


class _RequestsParam(AccumulatorParam[Requests]):
    def zero(self, value: Requests) -> Requests:
        return Requests()

    def addInPlace(self, value1: Requests, value2: Requests) -> Requests:  # noqa: N802
        return value1 + value2


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """What tasks add to.

    Attributes:
        span: of the wave that is being read, by the executors' clocks.
        requests: of object stores.
    """

    segments: Accumulator[int]
    log_bytes: Accumulator[int]
    span: Accumulator[Span]
    requests: Accumulator[Requests]

    def add(self, segments: int = 0, log_bytes: int = 0, span: Span = _NO_TIME) -> None:
        """Count what a task has done."""
        self.segments.add(segments)
        self.log_bytes.add(log_bytes)
        self.span.add(span)

    @contextlib.contextmanager
    def of_requests(self) -> Iterator[None]:
        """Count the requests that this process makes within."""
        before = requests_made()
        yield
        self.requests.add(requests_made() - before)


class Counters:
    """How much executors have done so far, counted as tasks end."""

    def __init__(self, spark: SparkSession) -> None:
        new = spark.sparkContext.accumulator
        self._of_tasks = TaskCounters(new(0), new(0), new(Span(), _SpanParam()), new(Requests(), _RequestsParam()))
        self._seconds = 0.0

    def of_tasks(self) -> TaskCounters:
        """What a task takes along: it has nothing else of the driver's."""
        return self._of_tasks

    def begin_wave(self) -> None:
        """From now on further segments are read: the time until then is not to count."""
        span = self._of_tasks.span
        self._seconds += span.value.seconds
        span.value = Span()

    def done(self) -> Done:
        counted = self._of_tasks
        return Done(counted.segments.value, counted.log_bytes.value, self._seconds + counted.span.value.seconds)

    def requests(self) -> Requests:
        """How many requests of object stores executors have made."""
        return self._of_tasks.requests.value
