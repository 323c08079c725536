"""Ctrl-C, SIGTERM and SIGHUP: what a command lets finish, or cancels, before it ends and says what is done.

The first signal raises `Interrupted` in the main thread, but neither amid a call that must not be left half done
(`waiting_for`, `cancelling`), nor within `stopping`, where the work itself is asked to come to its end. The second one
ends the process at once. A SIGHUP that is ignored at the start, as nohup wants it, stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from kidxlib.terminal.signals import AGAIN, NOTHING_DONE, SIGNALS, Handler, Interrupted, end_now

_state: Handler | None = None


@contextlib.contextmanager
def handled(*, for_good: bool) -> Iterator[None]:
    """While the context lasts signals end the run as this module says; in the main thread only.

    Args:
        for_good: the process ends with the context, so there is nothing that a signal could find to do after it;
            otherwise the handlers from before come back.
    """
    global _state
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    state = Handler()
    outer, _state = _state, state
    before = {number: signal.signal(number, state.handle) for number in (*_handled_here(), AGAIN)}
    try:
        yield
    finally:
        state.over.set()
        again_before = before.pop(AGAIN)
        for number in before:
            signal.signal(number, _end if for_good else before[number])
        # One may be on its way.
        signal.signal(AGAIN, again_before if state.first is None else signal.SIG_IGN)
        _state = outer


def handle_again() -> None:
    """Take signals back from a library that has put a handler of its own in place."""
    if _state is not None and threading.get_ident() == _state.main:
        for number in _handled_here():
            signal.signal(number, _state.handle)


def end_at_once() -> None:
    """Until `handled`, while modules are imported: one line, and the end."""
    for number in _handled_here():
        signal.signal(number, lambda number, _: end_now(number, NOTHING_DONE))


@contextlib.contextmanager
def kept_from_children() -> Iterator[None]:
    """A process that is started in the context gets no signal until it lets one through; this one gets it after it.

    A terminal sends signals to all processes, also to one that has not come to ignoring them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raise_if_requested() -> None:
    """Raise `Interrupted` where a signal has come; what failed since may have failed of that."""
    if _state is not None and _state.first is not None:
        _state.raised = True
        raise Interrupted(_state.first)


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """While the context lasts a signal raises nothing: `stop` asks the work to come to its end soon, with what it has
    done by then. `Interrupted` is raised at the end of the context.

    Args:
        stop: called once, in a thread of its own; again where it raises an OSError.
    """
    state = _state
    if state is None or state.raised:
        yield
        return
    with state.stop_lock:
        state.stop, state.is_asked = stop, False
    try:
        yield
    except Exception:
        raise_if_requested()
        raise
    finally:
        with state.stop_lock:
            state.stop = None
    raise_if_requested()


@contextlib.contextmanager
def waiting_for(module: str) -> Iterator[None]:
    """While the context lasts no call of a module is left half done, however long it takes; `Interrupted` is raised
    after it.

    Args:
        module: the top-level name of a package.
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
    """While the context lasts no call of a module is left half done; `cancel` makes its calls return soon. Nor is one
    after it, until the command ends: what was begun with a module is ended with it, as Spark's session is.

    Args:
        module: the top-level name of a package.
        cancel: called in a thread of its own, again and again until the context ends.
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
    """What is done and what is not, for an `Interrupted` that passes; the innermost context says it."""
    try:
        yield
    except Interrupted as interrupted:
        interrupted.done = interrupted.done or done()
        raise


def _handled_here() -> tuple[signal.Signals, ...]:
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in SIGNALS if number != signal.SIGHUP or not is_nohup)


def _end(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)
