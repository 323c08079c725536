"""The engine of one machine: worker processes on its cores, which are replaced if one dies of a mapped file, and a
directory that the processes and the command share.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import takewhile
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from kidxlib.engine.without_pandas import import_no_pandas
from kidxlib.engine.work import RowsInFile, StagedFiles, UnitDone, Work, do_unit, run_in_process, units_of
from kidxlib.errors import WorkersDiedError
from kidxlib.jit import compiling
from kidxlib.storage.scratch import writing_in
from kidxlib.storage.store.requests import Requests
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import Progress, warn
from kidxlib.terminal.exit_codes import ExitCode, end_process
from kidxlib.text.times import Span

_PR_SET_PDEATHSIG: Final = 1

#: Errors of a pipe whose other process has ended, or was killed amid a message.
_GONE: Final = (EOFError, OSError)

#: Starts workers without forking: a fork would inherit the lock's file, and threads that hold locks.
_spawn: Final = multiprocessing.get_context("spawn")

#: In a worker: set once the command was interrupted.
_stop: ctypes.c_bool | None = None

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


def until_stopped(work: Iterable[_Work]) -> Iterator[_Work]:
    """In a worker, items until the command is interrupted. An item that was begun is finished."""
    return takewhile(lambda _: _stop is None or not _stop.value, work)


class _Worker:
    """A worker process, and the pipe by which it gets a unit at a time and gives the result."""

    def __init__(self, stop: ctypes.c_bool, flag: ctypes.c_bool) -> None:
        self.pipe, workers_end = _spawn.Pipe()
        self._process = _spawn.Process(target=_serve, args=(workers_end, os.getpid(), stop, flag))
        with interrupts.kept_from_children():
            self._process.start()
        workers_end.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def begin(self, do: Callable[[_Work, bool], object], unit: _Work, use_mmap: bool) -> bool:
        """Give it a unit; False: it has died."""
        try:
            self.pipe.send((do, unit, use_mmap))
        except _GONE:
            return False
        return True

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        """Wait until it has done its unit, if it has one, and has ended."""
        self.pipe.close()
        self._process.join()


class Workers:
    """Processes that do units of work. They are reused, as a process takes a second to start.

    Leaving the context waits for them to end. After an error, no further unit is begun.

    A worker may be killed at any moment. So each has a pipe of its own. It shares two bytes with the command, and no
    lock, which would stay locked: queues and events have some. And `concurrent.futures` of Python 3.11 waits for ever
    where a worker dies while the next one is started.

    Attributes:
        processes: the most processes.
        are_started: they have got work.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.are_started = False
        self._stop = _spawn.RawValue(ctypes.c_bool, False)
        self._compiling = _spawn.RawValue(ctypes.c_bool, False)
        compiling.share_flag(self._compiling)
        self._all: list[_Worker] = []
        self._idle: list[_Worker] = []  # without a unit; some may have died

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask_to_stop()
        for worker in self._all:
            worker.pipe.close()
        for worker in self._all:
            worker.join()

    def _ask_to_stop(self) -> None:
        self._stop.value = True

    def until_stopped(self, items: Iterable[_Work]) -> Iterator[_Work]:
        """In the command itself, items until it is interrupted."""
        return takewhile(lambda _: not self._stop.value, items)

    def stopping(self) -> AbstractContextManager[None]:
        """Within the context, no unit is begun after a signal; `Interrupted` is raised at its end."""
        return interrupts.stopping(self._ask_to_stop)

    def abandoning(self) -> AbstractContextManager[None]:
        """Within the context, a signal ends workers amid their units; `Interrupted` is raised at its end."""
        return interrupts.stopping(self._abandon)

    def _abandon(self) -> None:
        self._ask_to_stop()
        for worker in tuple(self._all):
            worker.kill()

    def run(self, do: Callable[[_Work, bool], _Result], work: Sequence[_Work], take: Callable[[_Result], None]) -> None:
        """Do units of work, and take each result as it comes. `do` is told whether it may map files. Within `stopping`,
        units that were begun before a signal are finished and taken.

        If a worker dies (a mapped file shrank, or has a bad sector), no further unit is begun. What is unfinished then
        is done again by workers that read files instead of mapping them: no file can kill a worker then.
        """
        self.are_started = True
        for use_mmap in (True, False):
            unfinished = self._try(do, work, use_mmap, take)
            if not unfinished or self._stop.value:
                return
            compiling.set_compiling(False)
            warn(f"a worker process died; {len(unfinished)} of {len(work)} parts of the work are done again")
            work = unfinished
        raise WorkersDiedError(
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
        coming, lost = deque(work), list[_Work]()
        begun: dict[Connection, tuple[_Worker, _Work]] = {}
        results, failure = list[_Result](), None
        self._idle = [worker for worker in self._idle if worker.is_alive]
        # All at once, before the first gets a unit, for which this process waits until it has started.
        self._idle += [self._new_worker() for _ in range(min(self.processes, len(work)) - len(self._idle))]
        while True:
            while coming and self._idle and not (lost or failure or self._stop.value):
                worker, unit = self._idle.pop(), coming.popleft()
                if worker.begin(do, unit, use_mmap):
                    begun[worker.pipe] = worker, unit
                else:
                    lost.append(unit)
            for result in results:
                take(result)
            if failure is not None:
                raise failure
            if not begun:
                return [*lost, *coming]
            results = []
            for pipe in wait(list(begun)):
                assert isinstance(pipe, Connection)
                worker, unit = begun.pop(pipe)
                try:
                    result, error = pipe.recv()
                except _GONE:
                    lost.append(unit)
                    continue
                self._idle.append(worker)
                if error is None:
                    results.append(result)
                else:
                    failure = error

    def _new_worker(self) -> _Worker:
        worker = _Worker(self._stop, self._compiling)
        self._all.append(worker)
        return worker


def _serve(pipe: Connection, command: int, stop: ctypes.c_bool, flag: ctypes.c_bool) -> None:
    """Be a worker: do units, until the command has closed its end of the pipe."""
    _begin_worker(command, stop, flag)
    with contextlib.suppress(*_GONE):
        while True:
            do, unit, use_mmap = pipe.recv()
            result = error = None
            try:
                result = do(unit, use_mmap)
            except Exception as failure:  # noqa: BLE001  (the command raises it)
                failure.add_note(f"in a worker process:\n{traceback.format_exc()}")
                error = failure
            pipe.send((result, error))
    end_process(ExitCode.OK)  # to finalize Python, with all that is imported, takes it half a second


def _begin_worker(command: int, stop: ctypes.c_bool, flag: ctypes.c_bool) -> None:
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
    if os.getppid() != command:
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

    def abandoning(self) -> AbstractContextManager[None]:
        return self._workers.abandoning()

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

    def done(self) -> Progress:
        return Progress(self._segments, self._log_bytes, self._seconds + self._span.seconds)

    def requests(self) -> Requests:
        return self._requests
