"""The processes that Spark starts, by the session of the first one, and the output of pyspark's daemon."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

#: pyspark's daemon prints such a traceback if Java closes the socket of a worker that it has just requested. The daemon
#: writes line by line, so a worker that a test kills meanwhile leaves the first lines, without the error's name.
_OF_A_WORKER_THAT_JAVA_LEFT = re.compile(
    r"Traceback \(most recent call last\):\n(?: .*\n)*+"
    r"(?:EOFError\n|(?:BrokenPipe|ConnectionReset)Error: .*\n|(?!\S+(?:Error|Exception|Exit|Interrupt)\b))"
)


def processes_of(first: subprocess.Popen[str], others: set[str] | None = None) -> Iterator[tuple[int, int, str]]:
    """The process ids, parents and command lines of a session, by its first process. An ended process that nobody has
    waited for has no command line any more, and is left out. The set of processes of `others` grows: they are not
    looked at again.
    """
    others = set() if others is None else others
    for name in os.listdir("/proc"):
        if not name.isdigit() or name in others:
            continue
        with contextlib.suppress(OSError, IndexError):
            directory = Path("/proc", name)
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == first.pid:
                command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:
                    yield int(name), int(fields[1]), command
            else:
                others.add(name)


def worker(first: subprocess.Popen[str], others: set[str] | None = None) -> list[int]:
    """The Python workers, which are forks of pyspark's daemon."""
    daemons = {pid: parent for pid, parent, command in processes_of(first, others) if "pyspark.daemon" in command}
    return [pid for pid, parent in daemons.items() if parent in daemons]


def without_tracebacks_of_daemons(messages: str) -> str:
    """The messages of a job on Spark without tracebacks of workers that Java had left."""
    return re.sub(_OF_A_WORKER_THAT_JAVA_LEFT, _of_others, messages)


def _of_others(traceback: re.Match[str]) -> str:
    _, *frames = traceback[0].splitlines()
    is_of_daemon = not frames or ("pyspark/daemon.py" in traceback[0] and "kidxlib" not in traceback[0])
    return "" if is_of_daemon else traceback[0]
