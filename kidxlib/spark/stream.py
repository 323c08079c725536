"""The source `kafka_segment` as a stream: micro-batches of a log dir that grows, or that does not change.

Spark keeps one `KafkaSegmentStreamReader`, which plans the micro-batches, in a process of its own as long as a query
runs. Readers in tasks only read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kidxlib.spark.source import KafkaSegmentReader, TaskReads, show_log
from kidxlib.spark.source_options import Limits, StreamOptions
from kidxlib.spark.stream_offsets import StreamOffsets

if TYPE_CHECKING:
    from kidxlib.spark.stream_planning import StreamPlanner

_log: Final = logging.getLogger(__name__)
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
        from kidxlib.spark.stream_planning import StreamPlanner

        show_log(logging.getLogger("kidxlib.spark"))
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
        limits = Limits(
            offsets=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            log_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
        )
        return self._planner.next_end(_parsed(start), limits).as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of partitions when they were last looked at."""
        latest = self._planner.latest
        return None if latest is None else StreamOffsets(latest).as_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        from kidxlib.spark.task_rows import tasks_of

        plan = self._planner.plan(_parsed(start), StreamOffsets.parse(end))
        if plan is None:
            return []
        _log.info("%s", plan)
        return [TaskReads(reads) for reads in tasks_of(plan.reads)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return KafkaSegmentReader(self._options.source, self._schema).read(partition)


def _parsed(start: Mapping[str, Any]) -> StreamOffsets | None:
    return None if start == _BEGINNING else StreamOffsets.parse(start)
