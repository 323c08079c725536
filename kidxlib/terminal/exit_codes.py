"""The exit codes of all commands."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # options or inputs are wrong, nothing was done
    PROBLEMS_FOUND = 3  # done, but some segments have problems and the summary names them
    HUNG_UP = 129  # by SIGHUP, as the end of an ssh session sends it; one line says what is done
    INTERRUPTED = 130  # by SIGINT, as Ctrl-C sends it; one line says what is done
    OUTPUT_CLOSED = 141  # the reader of its output has gone: as SIGPIPE ends other programs, without a message
    TERMINATED = 143  # by SIGTERM; one line says what is done
