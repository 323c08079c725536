"""A build that Spark does: bins and partitions on executors, rows committed by Delta."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

from pyspark.sql import DataFrame

from jobs.common.build.catalog import SparkCatalog
from jobs.common.build.counts import count_finished, count_scanned, count_withdrawn
from jobs.common.build.partitions import finish_on_executors
from jobs.common.build.segments import build_on_executors
from jobs.common.build.workers import workers_beginning
from jobs.common.spark.counters import Counters
from jobs.common.spark.masters import is_local
from jobs.common.spark.session import session
from jobs.common.spark.source_access import ensure_logs_visible
from jobs.common.spark.stop_file import StopFile, stop_file
from kidxlib.build.bins import BINS_PER_CORE
from kidxlib.build.changes import FirstPresent
from kidxlib.build.source import Source
from kidxlib.build.summary import Counts
from kidxlib.build.tasks import BuildTask, PartitionTask
from kidxlib.errors import UsageError
from kidxlib.format.topic_partition import PartitionKey
from kidxlib.operations.build.request import BuildRequest
from kidxlib.terminal.phase import Done


@contextlib.contextmanager
def open_spark(request: BuildRequest) -> Iterator[SparkBackend]:
    """A session, and the catalog that it keeps.

    Raises:
        UsageError: in place, and executors would be elsewhere.
    """
    with session("build_index", request.context.event_log_dir) as spark:
        if request.in_place and not is_local(spark):
            raise UsageError("--in-place: only with a local master, so that the log dir's lock covers every writer")
        catalog = SparkCatalog.of(request, spark)
        with stop_file(spark, catalog.staging_path) as stop:
            yield SparkBackend(catalog, stop)


class SparkBackend:
    """See `kidxlib.operations.build.protocol.BuildBackend`."""

    def __init__(self, catalog: SparkCatalog, stop: StopFile) -> None:
        self.catalog = catalog
        self._stop = stop

    @property
    def cores(self) -> int:
        """How many tasks are done at a time."""
        return self.catalog.spark.sparkContext.defaultParallelism

    @property
    def versions(self) -> dict[str, str]:
        """Spark's and Delta's."""
        return {"spark": self.catalog.spark.version, "delta": metadata.version("delta-spark")}

    def beginning_workers(self, wanted: bool) -> AbstractContextManager[None]:
        """Start a Python worker on each core within the context, if wanted."""
        return workers_beginning(self.catalog.spark, wanted)

    def stopping(self) -> AbstractContextManager[None]:
        """While the context lasts, work that was begun comes to its end where the run is interrupted."""
        return self._stop.stopping()

    def done(self) -> Done:
        """How much was read in all scans, as tasks end."""
        return self._counters.done()

    @contextlib.contextmanager
    def scan(self, name: str, bins: Sequence[Sequence[BuildTask]], sources: Sequence[Source]) -> Iterator[_ScannedWave]:
        """Read segments on executors, and stage what is found."""
        with self.catalog.staging(name) as materialise:
            self._counters.begin_wave()
            found = materialise(build_on_executors(self.catalog.spark, bins, sources, self._counters, self._stop))
            results = found.where("segment IS NOT NULL").select("segment.*")
            ensure_logs_visible(results)
            yield _ScannedWave(self.catalog, results, found.where("event IS NOT NULL").select("event.*"))

    @contextlib.contextmanager
    def finish(
        self, name: str, tasks: Mapping[PartitionKey, PartitionTask], first_present: Mapping[PartitionKey, FirstPresent]
    ) -> Iterator[_FinishedPartitions]:
        """Finish partitions on executors, and stage what comes of it."""
        shares = min(len(tasks), self.cores * BINS_PER_CORE)
        with self.catalog.staging(name) as materialise:
            rows = materialise(finish_on_executors(self.catalog.to_finish(first_present), tasks, shares, self._stop))
            yield _FinishedPartitions(self.catalog, tasks, rows)

    @cached_property
    def _counters(self) -> Counters:
        return Counters(self.catalog.spark)


@dataclass(frozen=True, slots=True)
class _ScannedWave:
    catalog: SparkCatalog
    results: DataFrame
    events: DataFrame

    def record(self, build_id: str) -> int:
        return self.catalog.record_scanned(self.results, self.events, build_id)

    def count(self, counts: Counts) -> None:
        count_scanned(self.results, counts)


@dataclass(frozen=True, slots=True)
class _FinishedPartitions:
    catalog: SparkCatalog
    tasks: Mapping[PartitionKey, PartitionTask]
    rows: DataFrame

    @property
    def _segments(self) -> DataFrame:
        return self.rows.where("segment IS NOT NULL").select("segment.*")

    def count(self, counts: Counts) -> None:
        counts.kept += [row["path"] for row in self.rows.where("kept IS NOT NULL").select("kept.path").collect()]
        count_finished(self._segments, counts)
        count_withdrawn(self.catalog.withdrawn(self._segments), counts)

    def record(self, build_id: str) -> int:
        self.catalog.replace_aborted(self.tasks, self.rows.where("aborted IS NOT NULL").select("aborted.*"))
        return self.catalog.merge_finished(self._segments.drop("published"), build_id)
