"""What Spark's JVM prints: held back until it is known whether it starts; the line of it that says why it did not.

Where it does not, spark-submit prints the trace of its stack, or all of its options. One line of that says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
from typing import Final

STDERR: Final = 2
#: What a JVM prints has ended once it has exited, and by then there is little of it left in the pipe.
_DRAIN_SECONDS: Final = 10.0
_READ_BYTES: Final = 65_536
_THROWN: Final = re.compile(r'Exception in thread "[^"]*" (?:(?P<thrown>[\w.$]+): )?(?P<message>.+)')
_LOGGED: Final = re.compile(r"\d\d:\d\d:\d\d (?P<level>[A-Z]+) \w+: (?P<message>.+)")
#: From there on, all of spark-submit's options.
_USAGE: Final = "Usage: "


class JavaOutput(threading.Thread):
    """What the JVM prints: kept at first, then passed on to stderr as long as it runs."""

    def __init__(self, reader: int) -> None:
        super().__init__(name="what Java prints", daemon=True)
        self._reader = reader
        #: Who has it reads from the pipe, and does with it what is to be done.
        self._lock = threading.Lock()
        self._held = bytearray()
        self._is_passed_on = self._has_ended = False

    def run(self) -> None:
        while not self._has_ended:
            _is_readable(self._reader, None)
            with self._lock:
                if _is_readable(self._reader, 0):  # nobody has read it meanwhile
                    self._read()
                    self._write_lines()
        os.close(self._reader)

    def pass_on(self) -> None:
        with self._lock:
            self._is_passed_on = True
            self._write_lines()

    def reason(self) -> str:
        """Why a JVM that has exited did not start; nothing else of what it printed is kept."""
        self.join(_DRAIN_SECONDS)
        with self._lock:
            lines = self._held.decode(errors="replace").splitlines()
            self._held.clear()
        return _reason([line.rstrip() for line in lines])

    def forget(self) -> None:
        """Drop what the JVM has printed until now, and what of it is still in the pipe."""
        with self._lock:
            while not self._has_ended and _is_readable(self._reader, 0):
                self._read()
            self._held.clear()

    def _read(self) -> None:
        output = os.read(self._reader, _READ_BYTES)
        self._has_ended = not output
        self._held += output

    def _write_lines(self) -> None:
        """Whole ones, as this process writes lines, too."""
        if self._is_passed_on:
            end = len(self._held) if self._has_ended else self._held.rfind(b"\n") + 1
            write_stderr(bytes(self._held[:end]))
            del self._held[:end]


def write_stderr(output: bytes) -> None:
    with contextlib.suppress(OSError), open(STDERR, "wb", closefd=False) as stderr:  # who would read it may have gone
        stderr.write(output)


def _is_readable(descriptor: int, milliseconds: int | None) -> bool:
    """Whether something can be read, or there will be nothing more, at the latest after a time; None waits for it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(milliseconds))


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
