"""How a process of ours ends: before Python is taken apart, which threads of native libraries do not live through.

Arrow and delta-rs have pools of threads, which give back what they hold of Python when they come to it: a moment after
a command is done, perhaps, and at no time that Python knows of. Until 3.13 Python ends a thread that asks for its lock
while it is being taken apart. It does so by unwinding the thread's stack, which destructors of C++ and Rust do not let
pass: the process aborts (SIGABRT) after it has done its work well, or waits for that thread for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from types import TracebackType
from typing import NoReturn

from kidxlib.terminal.exit_codes import ExitCode


def end_process(code: int) -> NoReturn:
    """End it in the main thread, as a forked process of `multiprocessing` ends: threads that are not daemons end first,
    then what was registered with `atexit` is called and output flushed. No other object of Python is taken apart.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # who would read it has gone; it is closed
            stream.flush()
    os._exit(code)


def end_with_trace(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> NoReturn:
    """In the place of `sys.excepthook`: what nobody caught is told as ever, and ends the process."""
    sys.__excepthook__(kind, error, trace)
    end_process(ExitCode.FAILED)
