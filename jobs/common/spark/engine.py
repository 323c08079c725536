"""The engine of a cluster: Spark's executors, and a directory that they and the driver share."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.counters import Counters
from jobs.common.spark.job_session import JobSession
from jobs.common.spark.local_rows import one_a_task
from jobs.common.spark.loops import wait_for_loops
from jobs.common.spark.masters import is_local, is_local_master, named_master
from jobs.common.spark.schema import spark_schema
from jobs.common.spark.source_access import ensure_seen
from jobs.common.spark.staged import StagedBySpark
from jobs.common.spark.staging_folder import folder_at_url, folder_in_file_system, sweep_url
from jobs.common.spark.stop_file import StopFile
from kidxlib.engine.in_process import run_in_process
from kidxlib.engine.row_batches import row_batches
from kidxlib.engine.shared_rows import RowsInFile, RowsInItem, SharedRows
from kidxlib.engine.staged import Staged, StagedFiles
from kidxlib.engine.units import Unit, UnitDone, do_unit, units_of
from kidxlib.engine.without_pandas import import_no_pandas
from kidxlib.engine.work import ItemRows, Work
from kidxlib.run.scratch import scratch_directory
from kidxlib.storage.location import Location
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal.phase import Done, Span

#: Of a cluster that is not started yet nobody knows how many cores it has.
_CORES_HERE: Final = os.cpu_count() or 1


@contextlib.contextmanager
def spark_engine(session: JobSession, staging: str | None, run: str) -> Iterator[SparkEngine]:
    """The engine of one run. What it has staged goes at the end.

    Args:
        staging: a directory or URL that driver and executors share, and in which the run makes one of its own; None
            where they share none. Rows then wait in a temporary directory of this machine, or, where executors are
            elsewhere, on their disks.
        run: names that directory.
    """
    with scratch_directory() as scratch, contextlib.ExitStack() as stack:
        yield SparkEngine(session, staging, run, scratch, stack)


class SparkEngine:
    """Spark's executors; see `kidxlib.engine.protocol.Engine`. They are started when logs are to be read, or when there
    is much to do: the driver does a little itself.
    """

    def __init__(
        self, session: JobSession, staging: str | None, run: str, scratch: Path, stack: contextlib.ExitStack
    ) -> None:
        self._session, self._staging, self._scratch, self._run = session, staging, scratch, run
        self._stack = stack
        self._shared = itertools.count()

    @property
    def spark(self) -> SparkSession:
        """The session, which starts if nobody needed it so far."""
        return self._session.get()

    @property
    def cores(self) -> int:
        """See `Engine.cores`."""
        return self._session.get().sparkContext.defaultParallelism if self._session.is_started else _CORES_HERE

    @property
    def is_on_this_machine(self) -> bool:
        """See `Engine.is_on_this_machine`."""
        if not self._session.is_started and (master := named_master()):
            return is_local_master(master)
        return is_local(self._session.get())

    def start(self) -> None:
        """See `Engine.start`."""
        self._session.get()

    def stopping(self) -> AbstractContextManager[None]:
        """See `Engine.stopping`. Before the session there is only work of the driver, which a signal may cut short."""
        return self._stop_file.stopping() if self._session.is_started else contextlib.nullcontext()

    def share(self, rows: pa.Table) -> SharedRows:
        """See `Engine.share`."""
        if not self._is_of_file_system:
            return RowsInItem(rows)
        return RowsInFile.write(rows, f"{self._made_directory}/shared-{next(self._shared)}.parquet")

    def run(self, work: Work[Any]) -> Staged:
        """See `Engine.run`."""
        if not self._session.is_started and work.is_small and not work.directories:
            return run_in_process(work, self._scratch / work.name, iter, _ignore)
        self._counters.begin_wave()
        wait_for_loops()
        with self._described(work.name):
            return self._run_into_files(work) if self._is_of_file_system else self._run_into_rows(work)

    def sweep(self, older_than_ms: int) -> None:
        """See `Engine.sweep`. A catalog at such a URL has started the session already."""
        if self._staging is not None and "://" in self._staging:
            sweep_url(self._session.get(), self._staging, self._made_directory, older_than_ms)

    def done(self) -> Done:
        """See `Engine.done`."""
        return self._counters.done() if self._session.is_started else Done()

    def requests(self) -> Requests:
        """See `Engine.requests`."""
        return self._counters.requests() if self._session.is_started else Requests()

    @property
    def _directory(self) -> str | None:
        """Where the run stages rows; None on executors' disks, and while nobody knows where executors are."""
        if self._staging is not None:
            return f"{self._staging}/{self._run}"
        return str(self._scratch / self._run) if self._session.is_started and self.is_on_this_machine else None

    @property
    def _is_of_file_system(self) -> bool:
        """Whether what is staged lies in a directory that this process reads."""
        return self._directory is not None and "://" not in self._directory

    @cached_property
    def _made_directory(self) -> str:
        """The directory or URL, made once there is something to stage; it goes with the engine."""
        directory = self._directory
        assert directory is not None  # rows are kept on executors' disks
        if self._is_of_file_system:
            self._stack.enter_context(folder_in_file_system(Path(directory)))
        else:
            self._stack.enter_context(folder_at_url(self._session.get(), directory))
        return directory

    @cached_property
    def _counters(self) -> Counters:
        return Counters(self._session.get())

    @cached_property
    def _stop_file(self) -> StopFile:
        """In a directory that every executor sees, and with which it goes."""
        if self.is_on_this_machine:
            return StopFile(f"{self._scratch}/stop")
        return StopFile(f"{self._made_directory}/stop" if self._is_of_file_system else None)

    @contextlib.contextmanager
    def _described(self, work: str) -> Iterator[None]:
        """Spark's pages and event log call by this name what is done within."""
        context = self._session.get().sparkContext
        context.setJobDescription(f"kidx: {work}")
        try:
            yield
        finally:
            context.setJobDescription(None)  # type: ignore[arg-type]  # as it was

    def _run_into_files(self, work: Work[Any]) -> StagedFiles:
        """Each task writes the file of its unit itself, as a process of one machine does: Spark would take the rows to
        Java and apart. Attempts at a task have files of their own; the one that Spark takes says which is the unit's.
        """
        counters, directories, until_stopped = (
            self._counters.of_tasks(),
            work.directories,
            self._stop_file.until_stopped,
        )

        def do_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import_no_pandas()
            with counters.of_requests():
                _ensure_all_seen(directories)
                for unit in _pickled(batches):
                    done = do_unit(_of_attempt(unit), _may_map(), until_stopped)
                    counters.add(done.segments, done.log_bytes, done.span)
                    yield pa.RecordBatch.from_pydict({"path": [done.path]})

        units = [pickle.dumps(unit) for unit in units_of(work, Path(f"{self._made_directory}/{work.name}"))]
        done = one_a_task(self._session.get(), units).mapInArrow(do_units, "path string").collect()
        return StagedFiles(sorted(row["path"] for row in done), work.schema)

    def _run_into_rows(self, work: Work[Any]) -> StagedBySpark:
        """Spark keeps the rows, on executors' disks or at a URL."""
        rows = self._rows(work)
        if self._directory is None:
            kept = rows.persist(StorageLevel.DISK_ONLY)
            kept.count()
            return StagedBySpark(kept, work.schema, None)
        path = f"{self._made_directory}/{work.name}"
        rows.write.parquet(path)
        return StagedBySpark(self._session.get().read.schema(rows.schema).parquet(path), work.schema, path)

    def _rows(self, work: Work[Any]) -> DataFrame:
        """Rows of `work.schema`, computed where they are used: each unit in one Spark task."""
        counters, directories, until_stopped = (
            self._counters.of_tasks(),
            work.directories,
            self._stop_file.until_stopped,
        )
        # As bytes: what is imported with it then finds no pandas.
        do_pickled, schema = pickle.dumps(work.do), work.schema

        def rows_of_units(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any] | pa.RecordBatch]:
            do: Callable[[Iterable[Any], bool], Iterator[ItemRows]] = pickle.loads(do_pickled)
            for items in _pickled(batches):
                begin = time.time()
                for done in do(until_stopped(items), _may_map()):
                    yield from done.batches
                    yield from done.rows
                    counters.add(done.segments, done.log_bytes)
                counters.add(span=Span(begin, time.time()))

        def do_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import_no_pandas()
            with counters.of_requests():
                _ensure_all_seen(directories)
                yield from row_batches(rows_of_units(batches), schema)

        units = [pickle.dumps(unit) for unit in work.units]
        return one_a_task(self._session.get(), units).mapInArrow(do_units, spark_schema(schema))


def _ignore(done: UnitDone) -> None:
    """Nothing is counted of work that reads no logs."""


def _may_map() -> bool:
    """Whether this attempt of a Spark task may map files. The attempt before may have died of a mapped file that shrank
    or has a bad sector; reads cannot kill this one.
    """
    attempt = TaskContext.get()
    return attempt is None or attempt.attemptNumber() == 0


def _of_attempt(unit: Unit) -> Unit:
    """The unit with a file that no other attempt at it has."""
    attempt = TaskContext.get()
    assert attempt is not None
    path = Path(unit.path)
    return replace(unit, path=str(path.with_stem(f"{path.stem}-{attempt.taskAttemptId()}")))


def _pickled(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """What the driver has given to the task."""
    for value in itertools.chain.from_iterable(batch.column("work") for batch in batches):
        yield pickle.loads(value.as_buffer())


def _ensure_all_seen(directories: Sequence[Location]) -> None:
    for directory in directories:
        ensure_seen(directory)
