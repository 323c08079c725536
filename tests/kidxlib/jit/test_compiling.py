"""Whoever shows what a command does knows when it compiles."""

from __future__ import annotations

import time

from numba.core import event

from kidxlib.jit import compiling
from kidxlib.jit.compiler import njit
from kidxlib.terminal.console import Phase


def test_a_phase_is_called_compiling_while_loops_are_compiled() -> None:
    phase = Phase("reading", time.monotonic(), None, 0, 0, "")
    called: list[str] = []

    class Watching(event.Listener):
        def on_start(self, event: event.Event) -> None:
            called.append(phase.state()[0])

        def on_end(self, event: event.Event) -> None:
            called.append(phase.state()[0])

    @njit
    def inner(number):  # type: ignore[no-untyped-def]
        return number + 1

    @njit
    def outer(number):  # type: ignore[no-untyped-def]
        return inner(number) * 2

    watching = Watching()
    event.register("numba:compile", watching)  # type: ignore[no-untyped-call]
    try:
        assert outer(1) == 4
    finally:
        event.unregister("numba:compile", watching)  # type: ignore[no-untyped-call]
    assert len(called) == 4 and set(called[:3]) == {"compiling for this processor, once"}, "one function is in another"
    assert not compiling.is_compiling() and phase.state()[0] == "reading"


def test_who_asks_is_told_once() -> None:
    told: list[str] = []
    compiling.at_first_compilation(lambda: told.append("compiling"))
    compiling.set_compiling(False)
    assert told == []
    for _ in range(2):
        compiling.set_compiling(True)
        compiling.set_compiling(False)
    assert told == ["compiling"]
