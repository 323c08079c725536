"""Spark's data source `kafka_segment`. Slow imports are made only by the processes that need them: Spark gets the
schema in a process of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kidxlib.spark.columns import ensure_columns, source_schema
from kidxlib.spark.pushed import Pushed, push_filters
from kidxlib.spark.source_options import SourceOptions, parse_columns, parse_options, parse_stream_options

if TYPE_CHECKING:
    from kidxlib.reading.segment_read import SegmentRead
    from kidxlib.spark.stream import KafkaSegmentStreamReader

_log: Final = logging.getLogger(__name__)


#: Spark's setting that lets it push filters to sources in Python. Without, those that take filters are refused.
FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the source in a session: `spark.read.format("kafka_segment").load(path)`. docs/spark.md has more.

    The session is set to push filters down.
    """
    spark.conf.set(FILTER_PUSHDOWN, "true")
    spark.dataSource.register(KafkaSegmentSource)


def show_log(log: logging.Logger) -> None:
    """Log to standard error if no handler is set, as in the process that plans for Spark."""
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"{KafkaSegmentSource.name()}: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


class KafkaSegmentSource(DataSource):
    """Segments of a log dir, a partition or one log, as Spark's Kafka source gives the topics of a broker.

    Methods raise `UsageError` for wrong options; Spark puts it at the end of an error of its own.
    """

    @classmethod
    def name(cls) -> str:
        return "kafka_segment"

    def schema(self) -> StructType:
        mode, include_headers = parse_columns(self.options)
        return source_schema(mode, include_headers=include_headers)

    def reader(self, schema: StructType) -> KafkaSegmentReader:
        options = parse_options(self.options)
        ensure_columns(options.mode, schema)
        return KafkaSegmentReader(options, to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: StructType) -> KafkaSegmentStreamReader:  # noqa: N802  # Spark's name
        from kidxlib.spark.stream import KafkaSegmentStreamReader

        options = parse_stream_options(self.options)
        ensure_columns(options.source.mode, schema)
        return KafkaSegmentStreamReader(options, to_arrow_schema(schema, timezone="UTC"))


@dataclass(frozen=True)
class TaskReads(InputPartition):
    reads: tuple[SegmentRead, ...]


class KafkaSegmentReader(DataSourceReader):
    """Plans where the driver is, and reads in tasks. `schema` is the one that Spark expects."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  # Spark's name
        """The filters that Spark has to apply itself."""
        self._pushed, others = push_filters(filters, self._options.mode)
        return others

    def partitions(self) -> list[InputPartition]:
        from kidxlib.spark.planning import plan_source
        from kidxlib.spark.task_rows import tasks_of

        plan = plan_source(self._options, self._pushed)
        show_log(_log)
        _log.info("%s", plan)
        for line in (*plan.problems, *plan.remarks):
            _log.warning("%s", line)
        # Spark takes an empty list for one task that reads everything.
        return [TaskReads(reads) for reads in tasks_of(plan.reads) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kidxlib.spark.task_rows import damage_taker, task_rows

        assert isinstance(partition, TaskReads)
        fails = self._options.fails_on_loss
        on_damage = damage_taker(fails=fails)
        yield from task_rows(partition.reads, self._options.mode, self._schema, on_damage, goes_on=not fails)
