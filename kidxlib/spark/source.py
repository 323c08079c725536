"""Spark's data source `kafka_segment`: its schema, and its readers, of what is there and of a stream.

Slow imports are made only by the processes that need them: Spark gets the schema in a process of its own. It keeps one
`KafkaSegmentStreamReader`, which plans the micro-batches, in another process as long as a query runs. Readers in tasks
only read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import ArrayType, BinaryType, DataType, LongType, StringType, StructField, StructType

from kidxlib.errors import UsageError
from kidxlib.reading.request import requested_schema
from kidxlib.spark.pushed_filters import Pushed, push_filters
from kidxlib.spark.source_options import (
    SourceOptions,
    StreamOptions,
    TriggerLimits,
    parse_columns,
    parse_options,
    parse_stream_options,
)
from kidxlib.spark.stream_offsets import StreamOffsets

if TYPE_CHECKING:
    from kidxlib.reading.segment_read import SegmentRead
    from kidxlib.spark.planning import StreamPlanner

_log: Final = logging.getLogger(__name__)

#: Spark's setting that lets it push filters to sources in Python. Without, those that take filters are refused.
FILTER_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the source in a session: `spark.read.format("kafka_segment").load(path)`. docs/spark.md has more.

    The session is set to push filters down.
    """
    spark.conf.set(FILTER_PUSHDOWN, "true")
    spark.dataSource.register(KafkaSegmentSource)


def _show_log(log: logging.Logger) -> None:
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
        _ensure_columns(options.mode, schema)
        return KafkaSegmentReader(options, to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: StructType) -> KafkaSegmentStreamReader:  # noqa: N802  # Spark's name
        options = parse_stream_options(self.options)
        _ensure_columns(options.source.mode, schema)
        return KafkaSegmentStreamReader(options, to_arrow_schema(schema, timezone="UTC"))


#: The types of columns that Spark has no type for, and of headers as in its Kafka source, where all may be null.
_TYPES: Final[dict[str, DataType]] = {
    "crc": LongType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def nullable_source_schema(schema: pa.Schema) -> StructType:
    """Columns of the source in Spark's types. All are declared nullable, as in Spark's Kafka source."""
    return StructType(
        [StructField(field.name, _TYPES.get(field.name) or from_arrow_type(field.type)) for field in schema]
    )


def source_schema(mode: str, *, include_headers: bool) -> StructType:
    return nullable_source_schema(requested_schema(mode, None, include_headers=include_headers))


def _ensure_columns(mode: str, schema: StructType) -> None:
    """Check that a user's schema has columns of the source, with their types, in any order."""
    names = schema.fieldNames()
    known = nullable_source_schema(requested_schema(mode, names, include_headers=True))
    for given, ours in zip(schema, known, strict=True):
        if given.dataType.simpleString() != ours.dataType.simpleString():
            raise UsageError(
                f"schema: column {given.name} is of type {given.dataType.simpleString()}, "
                f"expected {ours.dataType.simpleString()}; cast it after reading"
            )


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
        from kidxlib.spark.planning import divide_into_tasks, plan_source

        plan = plan_source(self._options, self._pushed)
        _show_log(_log)
        _log.info("%s", plan)
        for line in (*plan.problems, *plan.remarks):
            _log.warning("%s", line)
        # Spark takes an empty list for one task that reads everything.
        return [TaskReads(reads) for reads in divide_into_tasks(plan.reads) or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from kidxlib.spark.task_rows import damage_taker, task_rows

        assert isinstance(partition, TaskReads)
        fails = self._options.fails_on_loss
        on_damage = damage_taker(fails=fails)
        yield from task_rows(partition.reads, self._options.mode, self._schema, on_damage, goes_on=not fails)


@dataclass(frozen=True)
class TaskReads(InputPartition):
    reads: tuple[SegmentRead, ...]


#: Differs from every offset of a micro-batch. The start in options is resolved once, and kept with the end of the first
#: micro-batch, so that it is the same when that micro-batch is read again.
_BEGINNING: Final[dict[str, Any]] = {}


class KafkaSegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are those of Spark's Kafka source (`KafkaSourceOffset`), with additions of `StreamOffsets`. `schema` is
    the one that Spark expects.
    """

    def __init__(self, options: StreamOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema

    @cached_property
    def _planner(self) -> StreamPlanner:
        from kidxlib.spark.planning import StreamPlanner

        _show_log(logging.getLogger("kidxlib.spark"))
        return StreamPlanner(self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        return _BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limits = self._options.limits
        if limits.log_bytes is not None:
            return ReadMaxBytes(limits.log_bytes)
        return ReadAllAvailable() if limits.offsets is None else ReadMaxRows(limits.offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the present ends of partitions."""
        self._planner.stop_at_what_is_there()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; the start, if there is nothing to read."""
        limits = TriggerLimits(
            offsets=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            log_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
        )
        return self._planner.next_end(_parsed(start), limits).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of partitions when they were last looked at."""
        latest = self._planner.latest
        return None if latest is None else StreamOffsets(latest).as_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        from kidxlib.spark.planning import divide_into_tasks

        plan = self._planner.plan(_parsed(start), StreamOffsets.parse(end))
        if plan is None:
            return []
        _log.info("%s", plan)
        return [TaskReads(reads) for reads in divide_into_tasks(plan.reads)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return KafkaSegmentReader(self._options.source, self._schema).read(partition)


def _parsed(start: Mapping[str, Any]) -> StreamOffsets | None:
    return None if start == _BEGINNING else StreamOffsets.parse(start)
