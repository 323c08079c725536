"""The exit codes of all commands, and how their processes end."""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import sys
import threading
from typing import NoReturn


class ExitCode(enum.IntEnum):
    """How a command ends."""

    OK = 0
    FAILED = 1
    USAGE = 2  # options or inputs are wrong, nothing was done
    PROBLEMS_FOUND = 3  # done, but some segments have problems and the summary names them
    HUNG_UP = 129  # by SIGHUP, as the end of an ssh session sends it; one line says what is done
    INTERRUPTED = 130  # by SIGINT, as Ctrl-C sends it; one line says what is done
    OUTPUT_CLOSED = 141  # the reader of its output has gone: as SIGPIPE ends other programs, without a message
    TERMINATED = 143  # by SIGTERM; one line says what is done


def end_process(code: int) -> NoReturn:
    """End the process with an exit code, in the main thread, as `multiprocessing` ends a forked one: wait for threads
    that are not daemons, call what was registered with `atexit`, flush output, and finalize nothing else.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader has gone; the stream is closed
            stream.flush()
    os._exit(code)
