"""The handler of signals while a command runs: what it raises, and how it ends a process at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Comes to the main thread again and again, until it can be interrupted.
AGAIN: Final = signal.SIGUSR1
_AGAIN_SECONDS: Final = 0.1
#: A second signal within this time is the first one once more: to a process, and to its group.
_SAME_SECONDS: Final = 0.5
#: When a person is informed why nothing happens yet.
_PATIENCE_SECONDS: Final = 3.0

NOTHING_DONE: Final = "nothing was done"


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP ends this run.

    Attributes:
        signal: which of them.
        done: what is done and what is not, for a person; empty until somebody says.
    """

    def __init__(self, signal_: int) -> None:
        super().__init__(signal_)
        self.signal, self.done = signal_, ""

    @property
    def exit_code(self) -> int:
        """The exit code of a command that a signal has ended, as shells have it."""
        return 128 + self.signal

    def __str__(self) -> str:
        return f"interrupted: {self.done or NOTHING_DONE}"


class Handler:
    """What is known of signals while a command runs."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.first_at = 0.0
        self.raised = False
        self.stop: Callable[[], None] | None = None
        self.is_asked = False
        #: Held while `stop` is called or changed, so that it is never called after its time. No handler takes it.
        self.stop_lock = threading.Lock()
        self.cancels: list[Callable[[], None]] = []
        self.not_within: set[str] = set()
        self.over = threading.Event()
        self.main = threading.get_ident()
        self.thread = threading.Thread(target=self._go_on, daemon=True)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of all signals: Python runs it in the main thread, between any two of its steps."""
        if number == AGAIN:
            if self.first is not None and not self.raised:
                self._interrupt(self.first, frame)
        elif self.first is None:
            self.first, self.first_at = number, time.monotonic()
            if number == signal.SIGHUP:
                _detach_dead_terminal()
            self.thread.start()
            self._interrupt(number, frame)
        elif time.monotonic() > self.first_at + _SAME_SECONDS:
            end_now(number, "ended at once; the same command goes on from what is done")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.stop is None and self._is_free(frame):
            self.raised = True
            raise Interrupted(number)

    def _is_free(self, frame: FrameType | None) -> bool:
        """Whether the main thread stands in no call that must not be left half done."""
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] in self.not_within:
                return False
            frame = frame.f_back
        return True

    def _go_on(self) -> None:
        """After the first signal: end what others do, and come again where the time was not right."""
        informed = False
        while True:
            self._ask_to_stop()
            if self.over.wait(_AGAIN_SECONDS):
                return
            if self.stop is None:
                if not self.raised:
                    signal.pthread_kill(self.main, AGAIN)
                for cancel in tuple(self.cancels):
                    cancel()
            if not informed and time.monotonic() > self.first_at + _PATIENCE_SECONDS:
                informed = True
                _write("interrupted: the current work is finished first; interrupt again to end at once")

    def _ask_to_stop(self) -> None:
        """Not for the handler: the main thread may hold the lock that `stop` takes, and would wait for itself."""
        with self.stop_lock, contextlib.suppress(OSError):  # of which the next time may know nothing
            if self.stop is not None and not self.is_asked:
                self.stop()
                self.is_asked = True


def _detach_dead_terminal() -> None:
    """What would go to a terminal that has gone goes nowhere: writing there fails, now and when Python ends."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # it is closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and _has_hung_up(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def _has_hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLHUP and POLLERR come unasked
    return bool(poll.poll(0))


def end_now(number: int, done: str) -> NoReturn:
    _write(f"error: interrupted: {done}")
    os._exit(128 + number)


def _write(line: str) -> None:
    """Past Python's streams, which the main thread may be within."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())
