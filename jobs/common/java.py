"""Starts Spark's JVM, and holds back what it prints until it is known whether it starts.

Where it does not, spark-submit prints the trace of its stack, or all of its options. One line of that says why.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from typing import Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from kidxlib import interrupts
from kidxlib.command import ExitCode
from kidxlib.errors import UsageError

_STDERR: Final = 2
#: What a JVM prints has ended once it has exited, and by then there is little of it left in the pipe.
_DRAIN_SECONDS: Final = 10.0
#: Names the file that Java writes when it ends; setup.sh sets it. On a busy machine that takes minutes.
_CLASS_ARCHIVE: Final = "KIDX_CLASS_ARCHIVE"
_CLASS_ARCHIVE_SECONDS: Final = 900.0
_THROWN: Final = re.compile(r'Exception in thread "[^"]*" (?:(?P<thrown>[\w.$]+): )?(?P<message>.+)')
_LOGGED: Final = re.compile(r"\d\d:\d\d:\d\d (?P<level>[A-Z]+) \w+: (?P<message>.+)")
#: From there on, all of spark-submit's options.
_USAGE: Final = "Usage: "


@contextlib.contextmanager
def starting_java() -> Iterator[None]:
    """Start the JVM that all sessions of this process share, if there is none yet; the context starts in the block.

    Raises:
        UsageError: it does not start, or ends amid that, with the options that it was given.
    """
    if SparkContext._gateway is not None:
        yield
        return
    reader, writer = os.pipe()
    printed = _Printed(reader)
    printed.start()
    try:
        gateway = _launch(writer)
        SparkContext._ensure_initialized(gateway=gateway)
        yield
    except (Py4JJavaError, UsageError):  # that says more than Java's log does
        printed.forget()
        interrupts.raise_if_requested()
        raise
    except (Py4JError, ConnectionError, PySparkRuntimeError) as error:
        interrupts.raise_if_requested()  # who sends a signal to this process may send it to Java's, too
        if isinstance(error, PySparkRuntimeError) and error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise UsageError(f"Spark did not start: {printed.why()}") from error
    finally:
        printed.pass_on()


def _launch(writer: int) -> JavaGateway:
    """A JVM that prints to a pipe, whose end this closes."""
    # Who reads our stderr to its end has waited for the end of the JVM, too: it keeps this open as long as it runs.
    stderr = os.dup(_STDERR)
    try:
        with open(writer, "wb") as output:
            # stdout belongs to the job; a JVM says there what it cannot start with.
            # A signal to our process group, as systemd and terminals send it, is ours to handle: Java ends when we do,
            # which is when the pipe closes that it has for standard input.
            options = {"stdout": output, "stderr": output, "pass_fds": (stderr,), "process_group": 0}
            # Left half done it removes the folder where Java is to say that it has started, and without that Java
            # never ends.
            with interrupts.waiting_for("pyspark"):
                gateway: JavaGateway = launch_gateway(popen_kwargs=options)  # type: ignore[no-untyped-call]
    finally:
        os.close(stderr)
    if os.environ.get(_CLASS_ARCHIVE):
        atexit.register(_end_after, gateway.proc, _CLASS_ARCHIVE_SECONDS)
    return gateway


def _end_after(java: subprocess.Popen[bytes], seconds: float) -> None:
    """At the end of this process: wait until Java has ended, too. Where it does not end well, this process fails."""
    assert java.stdin is not None
    java.stdin.close()
    try:
        code = java.wait(seconds)
    except subprocess.TimeoutExpired:
        java.kill()
        code = java.wait()
    if code != 0:
        _write(f"error: Spark's JVM did not end well within {seconds:,.0f} s: exit code {code}\n".encode())
        os._exit(ExitCode.FAILED)


class _Printed(threading.Thread):
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
                        _write(line)
                    else:
                        self._held.append(line)

    def pass_on(self) -> None:
        with self._lock:
            for line in self._held or ():
                _write(line)
            self._held = None

    def why(self) -> str:
        """Why a JVM that has exited did not start; nothing else of what it printed is kept."""
        self.join(_DRAIN_SECONDS)
        with self._lock:
            lines = [line.decode(errors="replace").rstrip() for line in self._held or ()]
        self.forget()
        return _reason(lines)

    def forget(self) -> None:
        with self._lock:
            self._held = []


def _write(line: bytes) -> None:
    with contextlib.suppress(OSError):  # who would read it has gone
        os.write(_STDERR, line)


def _reason(lines: list[str]) -> str:
    said: list[str] = []
    for line in lines:
        if line.startswith(_USAGE):
            break
        if thrown := _THROWN.match(line):
            return thrown["message"]
        logged = _LOGGED.match(line)
        if line and line[0] not in "\t[" and (logged is None or logged["level"] == "ERROR"):
            said.append(logged["message"] if logged else line.removeprefix("Error: "))
    return "; ".join(dict.fromkeys(said[-3:])) or "its JVM ended and said nothing; does java -version work here?"
