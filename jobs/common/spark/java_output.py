"""What Spark's JVM prints: held back until it is known whether it starts; the line of it that says why it did not.

Where it does not, spark-submit prints the trace of its stack, or all of its options. One line of that says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import Final

STDERR: Final = 2
#: What a JVM prints has ended once it has exited, and by then there is little of it left in the pipe.
_DRAIN_SECONDS: Final = 10.0
_THROWN: Final = re.compile(r'Exception in thread "[^"]*" (?:(?P<thrown>[\w.$]+): )?(?P<message>.+)')
_LOGGED: Final = re.compile(r"\d\d:\d\d:\d\d (?P<level>[A-Z]+) \w+: (?P<message>.+)")
#: From there on, all of spark-submit's options.
_USAGE: Final = "Usage: "


class JavaOutput(threading.Thread):
    """What the JVM prints: kept at first, then passed on to stderr as long as it runs."""

    def __init__(self, reader: int) -> None:
        super().__init__(name="what Java prints", daemon=True)
        self._reader = reader
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []

    def run(self) -> None:
        with open(self._reader, "rb") as lines:
            for line in lines:
                with self._lock:
                    if self._held is None:
                        write_stderr(line)
                    else:
                        self._held.append(line)

    def pass_on(self) -> None:
        with self._lock:
            for line in self._held or ():
                write_stderr(line)
            self._held = None

    def reason(self) -> str:
        """Why a JVM that has exited did not start; nothing else of what it printed is kept."""
        self.join(_DRAIN_SECONDS)
        with self._lock:
            lines = [line.decode(errors="replace").rstrip() for line in self._held or ()]
        self.forget()
        return _reason(lines)

    def forget(self) -> None:
        with self._lock:
            self._held = []


def write_stderr(line: bytes) -> None:
    with contextlib.suppress(OSError):  # who would read it has gone
        os.write(STDERR, line)


def _reason(lines: list[str]) -> str:
    messages: list[str] = []
    for line in lines:
        if line.startswith(_USAGE):
            break
        if thrown := _THROWN.match(line):
            return thrown["message"]
        logged = _LOGGED.match(line)
        if line and line[0] not in "\t[" and (logged is None or logged["level"] == "ERROR"):
            messages.append(logged["message"] if logged else line.removeprefix("Error: "))
    return "; ".join(dict.fromkeys(messages[-3:])) or "its JVM ended and said nothing; does java -version work here?"
