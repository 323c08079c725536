"""All cores of this machine, and what happens when a process dies that maps files."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from itertools import takewhile
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from typing import Final, Self, TypeVar

from kidxlib.engine.without_pandas import import_no_pandas
from kidxlib.errors import KidxError
from kidxlib.jit import compiling
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import warn

_PR_SET_PDEATHSIG: Final = 1
#: Where a command is ended at once, Python's own process that then removes semaphores would warn of them.
_NO_WARNING: Final = "ignore::UserWarning:multiprocessing.resource_tracker"

#: In a worker: set once its command was interrupted.
_stop: Event | None = None

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")


def until_stopped(work: Iterable[_Work]) -> Iterator[_Work]:
    """In a worker: what there is to do, until its command is interrupted; what was begun then is done."""
    return takewhile(lambda _: _stop is None or not _stop.is_set(), work)


class _Worker(SpawnProcess):
    """A worker process. A pool of which one has died terminates the others, and since Python 3.12 it waits for them:
    workers mind no SIGTERM, which whoever ends a service sends to all processes.
    """

    def terminate(self) -> None:
        self.kill()


class _Context(SpawnContext):
    """Workers start afresh: a fork would inherit the lock's file and threads that hold locks."""

    Process = _Worker


class Workers:
    """Processes that do pieces of work. They are kept for the next ones, as a process takes a second to start.

    Leaving it as a context waits for them to end; after an error, what was not begun by then is not begun.

    Attributes:
        processes: how many there are at most.
        are_started: they have been given work.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.are_started = False
        if _NO_WARNING not in sys.warnoptions:
            sys.warnoptions.append(_NO_WARNING)
        self._context = _Context()
        with interrupts.kept_from_children():  # Python's own process that removes semaphores minds no other signals
            self._stop = self._context.Event()
        self._compiling = self._context.RawValue(ctypes.c_bool, False)
        compiling.share(self._compiling)
        self._pool = self._new_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    @property
    def is_stopped(self) -> bool:
        """Whether no unit is to be begun any more."""
        return self._stop.is_set()

    def stopping(self) -> AbstractContextManager[None]:
        """While the context lasts no unit is begun once a signal has come; `Interrupted` is raised at its end."""
        return interrupts.stopping(self._stop.set)

    def run(self, do: Callable[[_Work, bool], _Result], work: Sequence[_Work], take: Callable[[_Result], None]) -> None:
        """Do pieces of work, and take each result as it comes. Within `stopping`, what was begun when a signal comes is
        done and taken.

        A worker that dies (a mapped file shrank, or has a bad sector) takes all the others with it. What was not
        finished is done again by new ones, which read instead of mapping: nothing about a file can kill these.

        Args:
            do: what to do with a unit, and whether it may map files.
        """
        self.are_started = True
        for use_mmap in (True, False):
            unfinished = self._try(do, work, use_mmap, take)
            if not unfinished or self._stop.is_set():
                return
            self._pool.shutdown()
            compiling.say(False)
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
        """The pieces that were not finished because a worker died."""
        futures: dict[Future[_Result], _Work] = {}
        unfinished = []
        with interrupts.kept_from_children():
            for unit in work:
                try:
                    futures[self._pool.submit(do, unit, use_mmap)] = unit
                except BrokenProcessPool:  # it died already
                    unfinished.append(unit)
        for future in as_completed(futures):
            try:
                result = future.result()
            except BrokenProcessPool:
                unfinished.append(futures[future])
                continue
            take(result)
        return unfinished

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.processes, self._context, _begin_worker, (os.getpid(), self._stop, self._compiling)
        )


def _begin_worker(parent: int, stop: Event, flag: ctypes.c_bool) -> None:
    """A worker ends when its command does, however that ends; signals are the command's to handle."""
    global _stop
    _stop = stop
    compiling.share(flag)
    for number in interrupts.SIGNALS:  # a terminal sends them to all, and so does who ends a service
        signal.signal(number, signal.SIG_IGN)
    import_no_pandas()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):  # Linux
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
