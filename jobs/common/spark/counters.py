"""How much executors have done so far, counted as tasks end."""

from __future__ import annotations

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from kidxlib.terminal.phase import Done, Span


class _SpanParam(AccumulatorParam[Span]):
    def zero(self, value: Span) -> Span:
        return Span()

    def addInPlace(self, value1: Span, value2: Span) -> Span:  # noqa: N802
        return value1 | value2


class Counters:
    """How much executors have done so far, counted as tasks end.

    Attributes:
        span: of the wave that is being read, by the executors' clocks.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.segments: Accumulator[int] = spark.sparkContext.accumulator(0)
        self.log_bytes: Accumulator[int] = spark.sparkContext.accumulator(0)
        self.span: Accumulator[Span] = spark.sparkContext.accumulator(Span(), _SpanParam())
        self._seconds = 0.0

    def begin_wave(self) -> None:
        """From now on further segments are read: the time until then is not to count."""
        self._seconds += self.span.value.seconds
        self.span.value = Span()

    def done(self) -> Done:
        return Done(self.segments.value, self.log_bytes.value, self._seconds + self.span.value.seconds)
