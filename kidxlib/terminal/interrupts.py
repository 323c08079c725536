"""Ctrl-C, SIGTERM and SIGHUP: a command finishes or cancels its work, and says what is done.

The first signal raises `Interrupted` in the main thread, but neither amid a call that must not be left half done
(`waiting_for`, `cancelling`), nor within `stopping`, which asks the work itself to end. The second signal ends the
process at once. A SIGHUP that is ignored at the start, as nohup wants it, stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

from kidxlib.errors import PublishError, describe_error

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Sent to the main thread again and again, until it can be interrupted.
_AGAIN: Final = signal.SIGUSR1
_AGAIN_SECONDS: Final = 0.1
#: A second signal within this time is the first one once more: to a process, and to its group.
_SAME_SECONDS: Final = 0.5
#: After this time a person is told why nothing happens yet.
_PATIENCE_SECONDS: Final = 3.0

NOTHING_DONE: Final = "nothing was done"
#: The message of a command that writes, where nobody knows how far it came.
DONE_STAYS: Final = "what is done stays, the rest is not done; run the same command again"
#: The message once nothing but the end of the process is left.
DONE_AND_PRINTED: Final = "all is done, and was printed"
#: The message of a run that records each change at once.
RECORDED_STAYS: Final = "what is recorded stays, the rest is not done; run the same command again"


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP ends this run.

    Attributes:
        signal: its number.
        done: what is done and what is not, for a person; empty until a context of `telling` says it.
        by_default: the same, where no context says it.
        failure: which file could not be read or written after the signal, and why; empty: none is known.
    """

    def __init__(self, signal_: int, failure: str = "", by_default: str = NOTHING_DONE) -> None:
        super().__init__(signal_)
        self.signal, self.done, self.failure, self.by_default = signal_, "", failure, by_default

    @property
    def exit_code(self) -> int:
        """The exit code with which shells report a command that a signal has ended."""
        return 128 + self.signal

    def __str__(self) -> str:
        text = f"interrupted: {self.done or self.by_default}"
        return f"{text}; after the signal this failed: {self.failure}" if self.failure else text


class _Handler:
    """The signals of a running command, and how they may end it."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.first_at = 0.0
        self.raised = False
        self.done = NOTHING_DONE
        self.stop: Callable[[], None] | None = None
        self.is_asked = False
        #: Held while `stop` is called or changed, so that it is never called after its context. No handler takes it.
        self.stop_lock = threading.Lock()
        self.cancels: list[Callable[[], None]] = []
        self.not_within: set[str] = set()
        self.over = threading.Event()
        self.main = threading.get_ident()
        self.thread = threading.Thread(target=self._go_on, daemon=True)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of all signals: Python runs it in the main thread, between any two of its steps."""
        if number == _AGAIN:
            if self.first is not None and not self.raised:
                self._interrupt(self.first, frame)
        elif self.first is None:
            self.first, self.first_at = number, time.monotonic()
            if number == signal.SIGHUP:
                _detach_dead_terminal()
            self.thread.start()
            self._interrupt(number, frame)
        elif time.monotonic() > self.first_at + _SAME_SECONDS:
            _end_now(number, "ended at once, amid its work; what was done by then stays")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.stop is None and self._is_free(frame):
            self.raised = True
            raise Interrupted(number, by_default=self.done)

    def _is_free(self, frame: FrameType | None) -> bool:
        """Whether the main thread is in no call that must not be left half done."""
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] in self.not_within:
                return False
            frame = frame.f_back
        return True

    def _go_on(self) -> None:
        """After the first signal: stop or cancel the work, and signal the main thread until it can be interrupted."""
        informed = False
        while True:
            self._ask_to_stop()
            if self.over.wait(_AGAIN_SECONDS):
                return
            if self.stop is None:
                if not self.raised:
                    signal.pthread_kill(self.main, _AGAIN)
                for cancel in tuple(self.cancels):
                    cancel()
            if not informed and time.monotonic() > self.first_at + _PATIENCE_SECONDS:
                informed = True
                _write("interrupted: the current work is finished first; interrupt again to end at once")

    def _ask_to_stop(self) -> None:
        """No handler calls this: the main thread may hold the lock that `stop` takes, and would wait for itself."""
        with self.stop_lock, contextlib.suppress(OSError):  # the next call may succeed
            if self.stop is not None and not self.is_asked:
                self.stop()
                self.is_asked = True


def _detach_dead_terminal() -> None:
    """Discard output to a terminal that has gone: writing there fails, now and when Python ends."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and _has_hung_up(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def _has_hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLHUP and POLLERR come unasked
    return bool(poll.poll(0))


def _end_now(number: int, done: str) -> NoReturn:
    _write(f"error: interrupted: {done}")
    os._exit(128 + number)


def _write(line: str) -> None:
    """Write past Python's streams, in which the main thread may be."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


_state: _Handler | None = None


@contextlib.contextmanager
def handled(*, for_good: bool) -> Iterator[None]:
    """While the context lasts, signals end the run as this module says; in the main thread only. `for_good` says that
    the process ends with the context: a later signal then just ends it. Otherwise the former handlers come back.
    """
    global _state
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    state = _Handler()
    outer, _state = _state, state
    before = {number: signal.signal(number, state.handle) for number in (*_handled_here(), _AGAIN)}
    try:
        yield
    finally:
        state.over.set()
        again_before = before.pop(_AGAIN)
        for number in before:
            signal.signal(number, _end if for_good else before[number])
        # After a first signal, one of these may be on its way.
        signal.signal(_AGAIN, again_before if state.first is None else signal.SIG_IGN)
        _state = outer


def handle_again() -> None:
    """Take signals back from a library that has installed a handler of its own."""
    if _state is not None and threading.get_ident() == _state.main:
        for number in _handled_here():
            signal.signal(number, _state.handle)


def end_at_once() -> None:
    """Until `handled`, while modules are imported, end the process with one line."""
    for number in _handled_here():
        signal.signal(number, lambda number, _: _end_now(number, NOTHING_DONE))


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """Block signals in the context: a process that is started there inherits that until it unblocks them, and this
    process gets them afterwards. A terminal sends signals to all processes, even to one that does not yet ignore them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raise_if_requested(failed: Exception | None = None) -> None:
    """Raise `Interrupted` if a signal has come: a later failure may have come of it. A disk that fails has not, and is
    told, too.
    """
    if _state is not None and _state.first is not None:
        _state.raised = True
        of_disk = isinstance(failed, PublishError) or (isinstance(failed, OSError) and failed.filename is not None)
        failure = describe_error(failed) if of_disk and failed is not None else ""
        raise Interrupted(_state.first, failure, _state.done)


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """While the context lasts, a signal raises nothing: `stop` asks the work to end soon, with the results so far.
    `Interrupted` is raised at the end of the context. `stop` is called once, in a thread of its own, and again if it
    raises an OSError.
    """
    state = _state
    if state is None or state.raised:
        yield
        return
    with state.stop_lock:
        state.stop, state.is_asked = stop, False
    try:
        yield
    except Exception as error:
        raise_if_requested(error)
        raise
    finally:
        with state.stop_lock:
            state.stop = None
    raise_if_requested()


@contextlib.contextmanager
def waiting_for(module: str) -> Iterator[None]:
    """While the context lasts, no call of a package is left half done, however long it takes; `Interrupted` is raised
    afterwards. `module` is the package's top-level name.
    """
    state = _state
    if state is None:
        yield
        return
    state.not_within.add(module)
    try:
        yield
    finally:
        state.not_within.discard(module)
    raise_if_requested()


@contextlib.contextmanager
def cancelling(module: str, cancel: Callable[[], None]) -> Iterator[None]:
    """From here until the command ends, no call of a package is left half done: a session of Spark is ended with the
    package that began it. While the context lasts, a thread calls `cancel` again and again after a signal, so that
    calls return soon. `module` is the package's top-level name.
    """
    state = _state
    if state is None:
        yield
        return
    state.not_within.add(module)
    state.cancels.append(cancel)
    try:
        yield
    finally:
        state.cancels.remove(cancel)


@contextlib.contextmanager
def telling(done: Callable[[], str]) -> Iterator[None]:
    """Give an `Interrupted` that passes its text about what is done; the innermost context's text stays."""
    try:
        yield
    except Interrupted as interrupted:
        interrupted.done = interrupted.done or done()
        raise


def tell_from_here(done: str) -> None:
    """From here on an interruption says this of what is done, where no context of `telling` does: before, between and
    after these contexts, until the process ends.
    """
    if _state is not None and threading.get_ident() == _state.main:
        _state.done = done


def _handled_here() -> tuple[signal.Signals, ...]:
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in SIGNALS if number != signal.SIGHUP or not is_nohup)


def _end(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)
