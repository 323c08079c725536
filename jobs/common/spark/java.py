"""Starts Spark's JVM. Where it does not start, the error is one line of what it printed."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
from collections.abc import Iterator
from typing import Final

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from jobs.common.spark.java_output import STDERR, JavaOutput, write_stderr
from kidxlib.errors import UsageError
from kidxlib.terminal import interrupts
from kidxlib.terminal.exit_codes import ExitCode

#: Names the file that Java writes when it ends; setup.sh sets it. On a busy machine that takes minutes.
_CLASS_ARCHIVE: Final = "KIDX_CLASS_ARCHIVE"
_CLASS_ARCHIVE_SECONDS: Final = 900.0


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
    printed = JavaOutput(reader)
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
        raise UsageError(f"Spark did not start: {printed.reason()}") from error
    finally:
        printed.pass_on()


def _launch(writer: int) -> JavaGateway:
    """A JVM that prints to a pipe, whose end this closes."""
    # Who reads our stderr to its end has waited for the end of the JVM, too: it keeps this open as long as it runs.
    stderr = os.dup(STDERR)
    try:
        with open(writer, "wb") as output:
            # stdout belongs to the job; a JVM says there what it cannot start with.
            # A signal to our process group, as systemd and terminals send it, is ours to handle: Java ends when we do,
            # which is when the pipe closes that it has for standard input.
            options = {"stdout": output, "stderr": output, "pass_fds": (stderr,), "process_group": 0}
            # Left half done it removes the directory where Java is to say that it has started, and without that Java
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
        write_stderr(f"error: Spark's JVM did not end well within {seconds:,.0f} s: exit code {code}\n".encode())
        os._exit(ExitCode.FAILED)
