"""The engine of one machine: worker processes on its cores, which are replaced if one dies of a mapped file, and a
directory that the processes and the command share.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import partial
from itertools import takewhile
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from kidxlib.engine.staged import StagedFiles
from kidxlib.engine.units import UnitDone, do_unit, run_in_process, units_of
from kidxlib.engine.without_pandas import import_no_pandas
from kidxlib.engine.work import RowsInFile, Work
from kidxlib.errors import KidxError
from kidxlib.jit import compiling
from kidxlib.storage.scratch import writing_in
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn
from kidxlib.terminal.exit_codes import ExitCode, end_process
from kidxlib.terminal.progress import Done
from kidxlib.text.times import Span

_PR_SET_PDEATHSIG: Final = 1
#: If a command is killed, Python's process that removes its semaphores would print a warning.
_NO_WARNING: Final = "ignore::UserWarning:multiprocessing.resource_tracker"

#: In a worker: set once the command was interrupted.
_stop: Event | None = None

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


def until_stopped(work: Iterable[_Work]) -> Iterator[_Work]:
    """In a worker, items until the command is interrupted. An item that was begun is finished."""
    return takewhile(lambda _: _stop is None or not _stop.is_set(), work)


class _Worker(SpawnProcess):
    """A worker process. A pool with a dead worker terminates the others, and since Python 3.12 waits for them. But
    workers ignore SIGTERM, which is sent to all processes of a service, so they are killed.
    """

    def run(self) -> None:
        super().run()
        end_process(ExitCode.OK)  # to finalize Python, with all that is imported, takes it half a second

    def terminate(self) -> None:
        self.kill()


class _Context(SpawnContext):
    """Starts workers without forking: a fork would inherit the lock's file, and threads that hold locks."""

    Process = _Worker


class Workers:
    """Processes that do units of work. They are reused, as a process takes a second to start.

    Leaving the context waits for them to end. After an error, no further unit is begun.

    Attributes:
        processes: the most processes.
        are_started: they have got work.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.are_started = False
        if _NO_WARNING not in sys.warnoptions:
            sys.warnoptions.append(_NO_WARNING)
        self._context = _Context()
        with interrupts.kept_from_children():  # Python's process that removes semaphores ignores only these signals
            self._stop = self._context.Event()
        self._compiling = self._context.RawValue(ctypes.c_bool, False)
        compiling.share_flag(self._compiling)
        self._pool = self._new_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def until_stopped(self, items: Iterable[_Work]) -> Iterator[_Work]:
        """In the command itself, items until it is interrupted."""
        return takewhile(lambda _: not self._stop.is_set(), items)

    def stopping(self) -> AbstractContextManager[None]:
        """Within the context, no unit is begun after a signal; `Interrupted` is raised at its end."""
        return interrupts.stopping(self._stop.set)

    def run(self, do: Callable[[_Work, bool], _Result], work: Sequence[_Work], take: Callable[[_Result], None]) -> None:
        """Do units of work, and take each result as it comes. `do` is told whether it may map files. Within `stopping`,
        units that were begun before a signal are finished and taken.

        If a worker dies (a mapped file shrank, or has a bad sector), all others end too. New workers repeat the
        unfinished units, and read files instead of mapping them: no file can kill a worker then.
        """
        self.are_started = True
        for use_mmap in (True, False):
            unfinished = self._try(do, work, use_mmap, take)
            if not unfinished or self._stop.is_set():
                return
            self._pool.shutdown()
            compiling.set_flag(False)
            self._pool = self._new_pool()
            warn(f"a worker process died; {len(unfinished)} of {len(work)} parts of the work are done again")
            work = unfinished
        raise KidxError(
            "worker processes die again and again: they crash, or are killed, as happens where memory "
            "runs out (see dmesg); give fewer --processes and run the same command again"
        )

    def _try(
        self,
        do: Callable[[_Work, bool], _Result],
        work: Sequence[_Work],
        use_mmap: bool,
        take: Callable[[_Result], None],
    ) -> list[_Work]:
        """Returns the units that were not finished because a worker died."""
        futures: dict[Future[_Result], _Work] = {}
        unfinished = []
        with interrupts.kept_from_children():
            for unit in work:
                try:
                    futures[self._pool.submit(do, unit, use_mmap)] = unit
                except BrokenProcessPool:  # a worker has died already
                    unfinished.append(unit)
        for future in as_completed(futures):
            try:
                result = future.result()
            except BrokenProcessPool:
                unfinished.append(futures[future])
            else:
                take(result)
        return unfinished

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.processes, self._context, _begin_worker, (os.getpid(), self._stop, self._compiling)
        )


def _begin_worker(parent: int, stop: Event, flag: ctypes.c_bool) -> None:
    """Make a worker end with its command, however that ends. The command handles signals."""
    global _stop
    _stop = stop
    compiling.share_flag(flag)
    for number in interrupts.SIGNALS:  # a terminal, or the end of a service, sends them to all processes
        signal.signal(number, signal.SIG_IGN)
    import_no_pandas()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):  # Linux
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class LocalEngine:
    """Processes of this machine. They are started when there is much work; the command does a little work itself. Rows
    are written to a directory that its owner removes.
    """

    def __init__(self, workers: Workers, directory: Path) -> None:
        self._workers, self._directory = workers, directory
        self._segments = self._log_bytes = 0
        self._requests = Requests()
        self._span = Span()
        self._seconds = 0.0
        self._shared = itertools.count()

    @property
    def cores(self) -> int:
        return self._workers.processes

    @property
    def is_on_this_machine(self) -> bool:
        return True

    def start(self) -> None:
        """Processes start with their first unit."""

    def stopping(self) -> AbstractContextManager[None]:
        return self._workers.stopping()

    def share(self, rows: pa.Table) -> RowsInFile:
        with writing_in(self._directory):
            return RowsInFile.write(rows, str(self._directory / f"shared-{next(self._shared)}.parquet"))

    def run(self, work: Work[Any]) -> StagedFiles:
        directory = self._directory / work.name
        files: list[str] = []
        self._seconds, self._span = self.done().seconds, Span()

        def take(unit: UnitDone) -> None:
            files.append(unit.path)
            self._segments += unit.segments
            self._log_bytes += unit.log_bytes
            self._span |= unit.span

        def take_of_worker(unit: UnitDone) -> None:
            take(unit)
            self._requests += unit.requests

        if work.is_small and not self._workers.are_started:
            return run_in_process(work, directory, self._workers.until_stopped, take)
        do = partial(do_unit, until_stopped=until_stopped)
        self._workers.run(do, units_of(work, directory), take_of_worker)
        return StagedFiles(sorted(files), work.schema)

    def sweep(self, older_than_ms: int) -> None:
        """This engine stages nothing at URLs."""

    def done(self) -> Done:
        return Done(self._segments, self._log_bytes, self._seconds + self._span.seconds)

    def requests(self) -> Requests:
        return self._requests
