"""The engine of a cluster: Spark's executors, and a directory that they and the driver share.

A run stages rows in its own folder there, which has a heartbeat and is removed with the run; folders of killed runs are
swept. A file in the folder tells executors that the run was interrupted: they look for it before each unit. A unit that
was begun is finished, and its results count.

Before work begins, each executor checks that it sees the sources that the driver has listed, and a new checkout waits
for the loops that setup.sh still compiles.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Accumulator, AccumulatorParam, StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession

from jobs.common.spark.local_rows import as_column, one_a_task, spark_schema
from jobs.common.spark.session import JobSession, hadoop_path, is_local_master, named_master
from kidxlib.catalog.change import Found
from kidxlib.catalog.conditions import Condition
from kidxlib.engine.without_pandas import import_no_pandas
from kidxlib.engine.work import (
    ItemRows,
    RowsInFile,
    RowsInItem,
    SharedRows,
    StagedFiles,
    StagedRows,
    Unit,
    Work,
    batch_of_kind,
    do_unit,
    row_batches,
    run_in_process,
    units_of,
)
from kidxlib.errors import UsageError
from kidxlib.jit import compiling
from kidxlib.storage.location import Location
from kidxlib.storage.scratch import DEAD_AFTER, HEARTBEAT, beating, beating_in, scratch_directory, writing_in
from kidxlib.storage.store.requests import Requests, requests_made
from kidxlib.storage.store.s3 import ObjectPath
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Progress
from kidxlib.terminal.options import PROJECT
from kidxlib.text.times import Span

#: The number of cores before the cluster is started, when its own is not known.
_CORES_HERE: Final = os.cpu_count() or 1

#: setup.sh locks this file while it compiles. It stays, and is missing if there was nothing to compile.
_LOCK: Final = PROJECT / ".jars/loops.lock"

_T = TypeVar("_T")

_NO_TIME: Final = Span()

_DEAD_AFTER_MS: Final = DEAD_AFTER // timedelta(milliseconds=1)


@contextlib.contextmanager
def spark_engine(session: JobSession, staging: str | None, run: str) -> Iterator[SparkEngine]:
    """The engine of one run. Staged rows are removed at the end. `staging` is a directory or URL that driver and
    executors share, in which the run makes a directory with the name `run`. None: they share none. Rows then wait in a
    temporary directory of this machine, or on the disks of executors elsewhere.
    """
    with scratch_directory() as scratch, contextlib.ExitStack() as stack:
        yield SparkEngine(session, staging, run, scratch, stack)


def wait_for_loops() -> None:
    """Wait, before the engine starts executors, until setup.sh no longer compiles loops: each worker would compile them
    itself.
    """
    if not os.access(_LOCK, os.R_OK):
        return
    import fcntl  # here, as not each system has it that a job starts on

    with _LOCK.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            compiling.set_compiling(True)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
            finally:
                compiling.set_compiling(False)


@dataclass(frozen=True, slots=True)
class _StopFile:
    """A file that tells executors to stop.

    Attributes:
        path: None if executors would not see the file. Their work is then cancelled, and its results are lost.
    """

    path: str | None = None

    def until_stopped(self, work: Iterable[_T]) -> Iterator[_T]:
        """On an executor: yield items until the run is interrupted."""
        return iter(work) if self.path is None else takewhile(lambda _: not os.path.exists(self.path or ""), work)

    def stopping(self) -> AbstractContextManager[None]:
        """On the driver: within the context, an interrupted run finishes the work that was begun."""
        return contextlib.nullcontext() if self.path is None else interrupts.stopping(Path(self.path).touch)


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
    """The counters that tasks add to.

    Attributes:
        span: the time of the wave that is being read, by the executors' clocks.
        requests: requests to object stores.
    """

    segments: Accumulator[int]
    log_bytes: Accumulator[int]
    span: Accumulator[Span]
    requests: Accumulator[Requests]

    def add(self, segments: int = 0, log_bytes: int = 0, span: Span = _NO_TIME) -> None:
        """Count, on an executor, what a task has read, for the engine."""
        self.segments.add(segments)
        self.log_bytes.add(log_bytes)
        self.span.add(span)

    @contextlib.contextmanager
    def of_requests(self) -> Iterator[None]:
        """Count, on an executor, the requests to object stores within the context."""
        before = requests_made()
        yield
        self.requests.add(requests_made() - before)


class _Counters:
    """The work of executors so far, counted as tasks end. A task gets `of_tasks`, and nothing else of the driver's."""

    def __init__(self, spark: SparkSession) -> None:
        new = spark.sparkContext.accumulator
        self.of_tasks = TaskCounters(new(0), new(0), new(Span(), _SpanParam()), new(Requests(), _RequestsParam()))
        self._seconds = 0.0

    def begin_wave(self) -> None:
        """Begin to count the time in which Spark's executors read another wave of segments; the time in between does
        not count.
        """
        span = self.of_tasks.span
        self._seconds += span.value.seconds
        span.value = Span()

    def done(self) -> Progress:
        counters = self.of_tasks
        return Progress(counters.segments.value, counters.log_bytes.value, self._seconds + counters.span.value.seconds)

    def requests(self) -> Requests:
        return self.of_tasks.requests.value


@dataclass(frozen=True, slots=True)
class StagedBySpark:
    """Rows that Spark reads for the driver, from places that only Spark can read. See `kidxlib.engine.work.StagedRows`.

    Attributes:
        data: the computed rows.
        path: the directory of the rows, which is removed with them; None: they are on executors' disks.
    """

    data: DataFrame
    schema: pa.Schema
    path: str | None

    def rows(self, kind: str, names: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        schema = pa.schema([field for field in self.schema.field(kind).type if names is None or field.name in names])
        of_kind = self.data.where(f"{kind} IS NOT NULL").select(f"{kind}.*")
        for condition in where:
            of_kind = of_kind.where(as_column(condition))
        return of_kind.select(*schema.names).toArrow().cast(schema)

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """See `StagedRows.batches`. Rows on executors' disks come task by task, in order. Files are read one by one, as
        Spark would order them by size.
        """
        for data in [self.data] if self.path is None else self._files(self.path):
            rows = data.where(f"{kind} IS NOT NULL").select(kind).mapInArrow(_as_bytes, "batch binary")
            for row in rows.toLocalIterator():
                for batch in pa.ipc.open_stream(row["batch"]):
                    yield batch_of_kind(batch.column(kind))

    def found(self, *kinds: str) -> Found:
        return {kind: self.rows(kind) for kind in kinds}

    def remove(self) -> None:
        self.data.unpersist()
        if self.path is not None:
            directory, file_system = hadoop_path(self.data.sparkSession, self.path)
            file_system.delete(directory, True)

    def _files(self, path: str) -> Iterator[DataFrame]:
        spark = self.data.sparkSession
        parts, file_system = hadoop_path(spark, f"{path}/part-*")
        files = sorted(str(part.getPath()) for part in file_system.globStatus(parts))
        return (spark.read.schema(self.data.schema).parquet(file).coalesce(1) for file in files)


def _as_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one row, in Arrow's stream format."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})


@contextlib.contextmanager
def _folder_in_file_system(folder: Path) -> Iterator[None]:
    """A new directory that is removed at the end."""
    try:
        with contextlib.ExitStack() as stack:
            with writing_in(folder.parent):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(beating_in(folder))
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _folder_at_url(spark: SparkSession, folder: str) -> Iterator[None]:
    """A new folder at a URL that Spark writes to, which is removed at the end."""
    place, file_system = hadoop_path(spark, folder)
    heartbeat, _ = hadoop_path(spark, f"{folder}/{HEARTBEAT}")

    def beat() -> None:
        try:
            file_system.create(heartbeat, True).close()
        except Py4JError as error:
            raise OSError(errno.EIO, str(error).partition("\n")[0], folder) from error

    try:
        with beating(beat):
            yield
    finally:
        file_system.delete(place, True)


def _sweep_url(spark: SparkSession, place: str, own: str, unmarked_before_ms: int) -> None:
    """Remove the folders of killed runs at a URL, as `kidxlib.storage.scratch.sweep_folders` does in a directory. The
    heartbeat in the run's `own` folder tells the time there. A folder without a heartbeat is removed if it was last
    changed before `unmarked_before_ms` (ms since the epoch).
    """
    directory, file_system = hadoop_path(spark, place)
    heartbeat, _ = hadoop_path(spark, f"{own}/{HEARTBEAT}")
    dead_before_ms = file_system.getFileStatus(heartbeat).getModificationTime() - _DEAD_AFTER_MS
    for entry in file_system.listStatus(directory):
        with contextlib.suppress(Py4JError):  # its run has ended meanwhile
            heartbeat, _ = hadoop_path(spark, f"{entry.getPath()}/{HEARTBEAT}")
            if file_system.exists(heartbeat):
                is_dead = file_system.getFileStatus(heartbeat).getModificationTime() < dead_before_ms
            else:
                is_dead = entry.getModificationTime() < unmarked_before_ms
            if is_dead:
                file_system.delete(entry.getPath(), True)


class SparkEngine:
    """Spark's executors; see `kidxlib.engine.protocol.Engine`. They are started to read logs, or for much work; the
    driver does a little work itself.
    """

    def __init__(
        self, session: JobSession, staging: str | None, run: str, scratch: Path, stack: contextlib.ExitStack
    ) -> None:
        self._session, self._staging, self._scratch, self._run = session, staging, scratch, run
        self._stack = stack
        self._shared = itertools.count()

    @property
    def spark(self) -> SparkSession:
        """The session, which is started at the first use."""
        return self._session.get()

    @property
    def cores(self) -> int:
        return self._session.get().sparkContext.defaultParallelism if self._session.is_started else _CORES_HERE

    @property
    def is_on_this_machine(self) -> bool:
        """Whether this process's JVM, and workers that it starts, do all work."""
        if not self._session.is_started and (master := named_master()):
            return is_local_master(master)
        return is_local_master(str(self._session.get().sparkContext.master))

    def start(self) -> None:
        self._session.get()

    def stopping(self) -> AbstractContextManager[None]:
        """See `Engine.stopping`. Before the session starts, only the driver works, which a signal may end."""
        return self._stop_file.stopping() if self._session.is_started else contextlib.nullcontext()

    def abandoning(self) -> AbstractContextManager[None]:
        return self.stopping()

    def share(self, rows: pa.Table) -> SharedRows:
        if not self._is_of_file_system:
            return RowsInItem(rows)
        return RowsInFile.write(rows, f"{self._made_directory}/shared-{next(self._shared)}.parquet")

    def run(self, work: Work[Any]) -> StagedRows:
        if not self._session.is_started and work.is_small and not work.directories:
            return run_in_process(work, self._scratch / work.name, iter, lambda _: None)  # it reads no logs to count
        self._counters.begin_wave()
        wait_for_loops()
        with self._described(work.name):
            return self._run_into_files(work) if self._is_of_file_system else self._run_into_rows(work)

    def sweep(self, older_than_ms: int) -> None:
        """See `Engine.sweep`. A catalog at such a URL has started the session already."""
        if self._staging is not None and "://" in self._staging:
            _sweep_url(self._session.get(), self._staging, self._made_directory, older_than_ms)

    def done(self) -> Progress:
        return self._counters.done() if self._session.is_started else Progress()

    def requests(self) -> Requests:
        return self._counters.requests() if self._session.is_started else Requests()

    @property
    def _directory(self) -> str | None:
        """Where the run stages rows; None: on executors' disks, or it is not known yet where executors are."""
        if self._staging is not None:
            return f"{self._staging}/{self._run}"
        return str(self._scratch / self._run) if self._session.is_started and self.is_on_this_machine else None

    @property
    def _is_of_file_system(self) -> bool:
        """Whether staged rows are in a directory that this process can read."""
        return self._directory is not None and "://" not in self._directory

    @cached_property
    def _made_directory(self) -> str:
        """The directory or URL, which is made when there is something to stage, and removed with the engine."""
        directory = self._directory
        assert directory is not None  # rows are kept on executors' disks
        if self._is_of_file_system:
            self._stack.enter_context(_folder_in_file_system(Path(directory)))
        else:
            self._stack.enter_context(_folder_at_url(self._session.get(), directory))
        return directory

    @cached_property
    def _counters(self) -> _Counters:
        return _Counters(self._session.get())

    @cached_property
    def _stop_file(self) -> _StopFile:
        """The stop file, in a directory that every executor sees and that is removed at the end."""
        if self.is_on_this_machine:
            return _StopFile(f"{self._scratch}/stop")
        return _StopFile(f"{self._made_directory}/stop" if self._is_of_file_system else None)

    @contextlib.contextmanager
    def _described(self, work: str) -> Iterator[None]:
        """Name the jobs within the context in Spark's pages and event log."""
        context = self._session.get().sparkContext
        context.setJobDescription(f"kidx: {work}")
        try:
            yield
        finally:
            context.setJobDescription(None)  # type: ignore[arg-type]  # as it was

    def _run_into_files(self, work: Work[Any]) -> StagedFiles:
        """Each task writes its unit's file itself, like a process of one machine: Spark would convert the rows in Java.
        Attempts at a task have their own files; the attempt that Spark accepts names the unit's.
        """
        counters, directories, until_stopped = self._counters.of_tasks, work.directories, self._stop_file.until_stopped

        def do_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import_no_pandas()
            with counters.of_requests():
                _ensure_seen(directories)
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
        """Rows of `work.schema`, computed lazily, each unit in one Spark task."""
        counters, directories, until_stopped = self._counters.of_tasks, work.directories, self._stop_file.until_stopped
        # As bytes, so that its imports happen after `import_no_pandas`.
        do_pickled, schema, maps = pickle.dumps(work.do), work.schema, work.maps

        def rows_of_units(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any] | pa.RecordBatch]:
            do: Callable[..., Iterator[ItemRows]] = pickle.loads(do_pickled)
            for items in _pickled(batches):
                begin = time.time()
                to_do = until_stopped(items)
                for done in do(to_do, _may_map()) if maps else do(to_do):
                    yield from done.batches
                    yield from done.rows
                    counters.add(done.segments, done.log_bytes)
                counters.add(span=Span(begin, time.time()))

        def do_units(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import_no_pandas()
            with counters.of_requests():
                _ensure_seen(directories)
                yield from row_batches(rows_of_units(batches), schema)

        units = [pickle.dumps(unit) for unit in work.units]
        return one_a_task(self._session.get(), units).mapInArrow(do_units, spark_schema(schema))


def _may_map() -> bool:
    """Whether this attempt of a Spark task may map files: only the first may. If that died of a mapped file that shrank
    or has a bad sector, later ones read, which kills no process.
    """
    attempt = TaskContext.get()
    return attempt is None or attempt.attemptNumber() == 0


def _of_attempt(unit: Unit) -> Unit:
    attempt = TaskContext.get()
    assert attempt is not None
    path = Path(unit.path)
    return replace(unit, path=str(path.with_stem(f"{path.stem}-{attempt.taskAttemptId()}")))


def _pickled(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    for value in itertools.chain.from_iterable(batch.column("work") for batch in batches):
        yield pickle.loads(value.as_buffer())


def _why_unseen(directory: Location) -> str | None:
    """Why this machine does not see the entries of a listed directory; None: it sees some.

    If a mount is missing, its directory is usually there and empty. Then every log would seem to be deleted since the
    listing, which is no error.
    """
    try:
        if isinstance(directory, ObjectPath):
            return None if directory.exists() else "no object with this prefix"
        with os.scandir(directory) as entries:
            return None if any(True for _ in entries) else "an empty directory"
    except OSError as error:
        return error.strerror or str(error)


def _ensure_seen(directories: Sequence[Location]) -> None:
    """Raise `UsageError` if this executor does not see the directory of a source."""
    for directory in directories:
        if why := _why_unseen(directory):
            what_to_do = (
                "give executors the endpoint and credentials that the driver has, as docs/object-stores.md says"
                if isinstance(directory, ObjectPath)
                else "mount it at the same path on every executor"
            )
            raise UsageError(
                f"executor {socket.gethostname()} does not see the source {directory} ({why}); {what_to_do}"
            )
