"""Spark's session of one job, from its start to its end, with readable errors.

The session starts when it is needed, with the settings that results depend on; settings that only tune a machine are in
`conf/`. An existing session, as in a notebook, is used and not stopped. A master that cannot be reached is refused
first: Spark would try for a minute, and then report something else.

The output of Spark's JVM is held back until the JVM has started. If it does not start, spark-submit prints a stack
trace, or all of its options; the error is the one line of that which says why.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import logging
import os
import re
import select
import shlex
import socket
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from py4j.java_gateway import JavaGateway, JavaObject, JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kidxlib import errors
from kidxlib.errors import KidxError, SparkEndedError, StorageError, UsageError
from kidxlib.terminal import interrupts
from kidxlib.terminal.console import begin_phase
from kidxlib.terminal.exit_codes import ExitCode


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path, and the file system that holds it, as objects of Hadoop in the session's JVM."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    directory = jvm.org.apache.hadoop.fs.Path(path)
    return directory, directory.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())


_INTERRUPTED_READER: Final = "nothing was changed or recorded; run the same command again"

#: The S3 store's place, which Python workers need too. They must have credentials themselves, as Spark shows settings.
_STORE: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION")

#: setup.sh sets this to the file that Java writes when it ends, which takes minutes on a busy machine.
_CLASS_ARCHIVE: Final = "KIDX_CLASS_ARCHIVE"
_CLASS_ARCHIVE_SECONDS: Final = 900.0

_STDERR: Final = 2
#: The time to read the rest of a JVM's output after its exit; by then little is left in the pipe.
_DRAIN_SECONDS: Final = 10.0
_READ_BYTES: Final = 65_536
_THROWN: Final = re.compile(r'Exception in thread "[^"]*" (?:(?P<thrown>[\w.$]+): )?(?P<message>.+)')
_LOGGED: Final = re.compile(r"\d\d:\d\d:\d\d (?P<level>[A-Z]+) \w+: (?P<message>.+)")
#: The beginning of the list of spark-submit's options.
_USAGE: Final = "Usage: "

_TIMEOUT_SECONDS: Final = 10.0
_STANDALONE: Final = "spark://"
_KUBERNETES: Final = "k8s://"
#: With one of these, Spark's client may reach a Kubernetes API that this process does not reach.
_PROXIES: Final = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


class JavaOutput(threading.Thread):
    """The output of the JVM: kept at first, then passed on to stderr."""

    def __init__(self, reader: int) -> None:
        super().__init__(name="what Java prints", daemon=True)
        self._reader = reader
        #: Held while the pipe is read and its output processed.
        self._lock = threading.Lock()
        self._held = bytearray()
        self._is_passed_on = self._has_ended = False

    def run(self) -> None:
        while not self._has_ended:
            _is_readable(self._reader, None)
            with self._lock:
                if _is_readable(self._reader, 0):  # another thread may have read it meanwhile
                    self._read()
                    self._write_lines()
        os.close(self._reader)

    def pass_on(self) -> None:
        with self._lock:
            self._is_passed_on = True
            self._write_lines()

    def reason(self) -> str:
        """Why a JVM that has exited did not start. Its other output is dropped."""
        self.join(_DRAIN_SECONDS)
        with self._lock:
            lines = self._held.decode(errors="replace").splitlines()
            self._held.clear()
        return _reason([line.rstrip() for line in lines])

    def forget(self) -> None:
        """Drop the output of the JVM so far, including what is in the pipe."""
        with self._lock:
            while not self._has_ended and _is_readable(self._reader, 0):
                self._read()
            self._held.clear()

    def _read(self) -> None:
        output = os.read(self._reader, _READ_BYTES)
        self._has_ended = not output
        self._held += output

    def _write_lines(self) -> None:
        """Write whole lines only, as this process writes lines, too."""
        if self._is_passed_on:
            end = len(self._held) if self._has_ended else self._held.rfind(b"\n") + 1
            _write_stderr(bytes(self._held[:end]))
            del self._held[:end]


def _write_stderr(output: bytes) -> None:
    with contextlib.suppress(OSError), open(_STDERR, "wb", closefd=False) as stderr:  # the reader may have gone
        stderr.write(output)


def _is_readable(descriptor: int, milliseconds: int | None) -> bool:
    """Whether there is something to read, or the end, within a time; None: wait without limit."""
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


@contextlib.contextmanager
def _starting_java() -> Iterator[None]:
    """Start the JVM that all sessions of this process share, if there is none yet; the context starts in the block."""
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
    except (Py4JJavaError, UsageError):  # such an error says more than Java's log
        printed.forget()
        interrupts.raise_if_requested()
        raise
    except (Py4JError, ConnectionError, PySparkRuntimeError) as error:
        interrupts.raise_if_requested()  # a signal to this process may have been sent to Java's, too
        if isinstance(error, PySparkRuntimeError) and error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise UsageError(f"Spark did not start: {printed.reason()}") from error
    finally:
        printed.pass_on()


def _launch(writer: int) -> JavaGateway:
    """Start a JVM that prints to a pipe, whose writing end is closed here."""
    # A reader of our stderr to its end waits for the end of the JVM, too: the JVM keeps this descriptor open.
    stderr = os.dup(_STDERR)
    try:
        with open(writer, "wb") as output:
            # stdout belongs to the job; a JVM prints there why it cannot start.
            # This process handles a signal to the process group, as systemd and terminals send it. Java ends with this
            # process, which closes the pipe of Java's standard input.
            options = {"stdout": output, "stderr": output, "pass_fds": (stderr,), "process_group": 0}
            # A call that is left half done removes the directory in which Java is to report its start, and without that
            # directory Java never ends.
            with interrupts.waiting_for("pyspark"):
                gateway: JavaGateway = launch_gateway(popen_kwargs=options)  # type: ignore[no-untyped-call]
    finally:
        os.close(stderr)
    if os.environ.get(_CLASS_ARCHIVE):
        atexit.register(_end_after, gateway.proc, _CLASS_ARCHIVE_SECONDS)
    return gateway


def _end_after(java: subprocess.Popen[bytes], seconds: float) -> None:
    """At the end of this process, wait until Java has ended, too. If it fails, this process fails."""
    assert java.stdin is not None
    java.stdin.close()
    try:
        code = java.wait(seconds)
    except subprocess.TimeoutExpired:
        java.kill()
        code = java.wait()
    if code != 0:
        _write_stderr(f"error: Spark's JVM did not end well within {seconds:,.0f} s: exit code {code}\n".encode())
        os._exit(ExitCode.FAILED)


def start(job: str, event_log_dir: str | None) -> SparkSession:
    """Start Spark's session of a job, with its JVM."""
    builder = (
        SparkSession.builder.appName(f"kidx {job}")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        # Spark's default, INT96, holds nanoseconds: other readers of a table see years beyond 2262 wrong.
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        # Tasks publish files; they may run twice, but need not.
        .config("spark.speculation", "false")
    )
    if event_log_dir is not None:
        builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", _made(event_log_dir))
    try:
        with _starting_java():
            spark = builder.getOrCreate()
            # The server's thread would print a stack trace when Java ends; the job gets an exception in any case.
            spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
            spark.sparkContext.environment.update({name: os.environ[name] for name in _STORE if name in os.environ})
            _ensure_delta(spark)
    except Py4JJavaError as error:
        raise UsageError(f"Spark did not start: {spark_message(error)}") from error
    return spark


def _ensure_delta(spark: SparkSession) -> None:
    """Check that Delta is loaded. Spark silently skips classes that it cannot load, and fails later."""
    assert spark.sparkContext._jvm is not None
    if isinstance(spark.sparkContext._jvm.io.delta.tables.DeltaTable, JavaPackage):
        spark.stop()
        raise UsageError(
            "Spark found no Delta: its jars are not on the class path; ./spark-submit.sh brings those of .jars/delta "
            "along: leave out what replaces them after --"
        )


def _made(directory: str) -> str:
    """Make a directory, as Spark expects it to exist, and return its URL."""
    if "://" in directory:
        return directory
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"spark.event_log_dir {directory}: cannot be made: {error.strerror}") from error
    return Path(directory).as_uri()


def is_local_master(master: str) -> bool:
    """Whether the name of a session's master is that of a local one."""
    return master.startswith("local")


def named_master() -> str:
    """The master that the session of this process will have, the last one in spark-submit's options; empty: none."""
    options = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    master = ""
    for option, value in itertools.pairwise([*options, ""]):
        name, equals, given = option.partition("=")
        if name == "--master":
            master = given if equals else value
    return master


def ensure_reachable_master() -> None:
    """Check, before a session starts, that its master can be reached, if that has an address."""
    master = named_master()
    errors = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
        except OSError as error:
            errors.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if errors:
        raise UsageError(f"--master {master}: no connection: {'; '.join(errors)}")


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(ValueError):  # Spark says what is wrong with an address
        if master.startswith(_STANDALONE):
            for address in master.removeprefix(_STANDALONE).split(","):
                host, _, port = address.rpartition(":")
                yield host.strip("[]"), int(port)
        elif master.startswith(_KUBERNETES) and not any(map(os.environ.get, _PROXIES)):
            url = urlsplit(master.removeprefix(_KUBERNETES))
            if url.hostname is not None:
                yield url.hostname, url.port or (80 if url.scheme == "http" else 443)


@contextlib.contextmanager
def session(job: str, event_log_dir: str | None = None, *, changes: bool = True) -> Iterator[SparkSession]:
    """The session of one job, stopped at the end if it was started here. `event_log_dir` is the absolute path or URL of
    a directory for Spark's history server (None: no logs); an existing session keeps its own. The message of an
    interruption says if the job changes and records nothing.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j also raises what it logs of a JVM that ended
    logging.getLogger().addFilter(_is_not_of_py4j)
    ensure_reachable_master()
    is_ours = not _is_there()
    begin_phase("starting Spark")
    spark = start(job, event_log_dir)
    begin_phase("opening the catalog")
    interrupts.handle_again()  # pyspark's own handler calls Java amid another call
    with (
        interrupts.telling(lambda: interrupts.RECORDED_STAYS if changes else _INTERRUPTED_READER),
        _ending_well(spark, is_ours=is_ours),
        interrupts.cancelling("py4j", lambda: _cancel_all_jobs(spark)),
    ):
        yield spark


@contextlib.contextmanager
def _ending_well(spark: SparkSession, *, is_ours: bool) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        interrupts.raise_if_requested()  # its jobs were cancelled
        ours = as_kidx_error(error)
        if ours is None:
            raise
        raise ours from error
    except (Py4JError, ConnectionError) as error:  # if a JVM has gone, py4j may also say that a class does not exist
        interrupts.raise_if_requested()  # a SIGTERM to this process may have been sent to Java's, too
        if _answers(spark):
            raise
        raise SparkEndedError(
            "Spark's JVM has ended during the job. If nothing above says why, it was killed, as happens where memory "
            "runs out (see dmesg): give the machine more, or spark.driver.memory less, and run the same command again"
        ) from error
    finally:
        if is_ours:
            _stop(spark)


def _is_there() -> bool:
    return SparkSession.getActiveSession() is not None


def _stop(spark: SparkSession) -> None:
    """Stop a session, also if its JVM ends before or meanwhile."""
    if not _answers(spark):
        return
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # pyspark's, if the JVM has gone
            spark.stop()
    except (Py4JError, OSError):
        if _answers(spark):
            raise


def _answers(spark: SparkSession) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


def _cancel_all_jobs(spark: SparkSession) -> None:
    with contextlib.suppress(Py4JError, OSError, AttributeError):  # Java has ended, or the context is being stopped
        spark.sparkContext.cancelAllJobs()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a line of the root logger is not py4j's, which logs some of its exceptions there."""
    return record.module != "java_gateway"


class JobSession:
    """A context that stops the session started within it; its arguments are those of `session`."""

    def __init__(self, job: str, event_log_dir: str | None, *, changes: bool = True) -> None:
        self._job, self._event_log_dir, self._changes = job, event_log_dir, changes
        self._stack = contextlib.ExitStack()
        self._spark: SparkSession | None = None

    @property
    def is_started(self) -> bool:
        return self._spark is not None

    def get(self) -> SparkSession:
        """The session. The main thread, which gets signals, must make the first call."""
        if self._spark is None:
            self._spark = self._stack.enter_context(session(self._job, self._event_log_dir, changes=self._changes))
        return self._spark

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, traceback)


#: An error of kidx in the traceback that Spark brings back from an executor. The error's cause is above that line.
_OURS: Final = re.compile(r"^kidxlib\.errors\.(\w+): (.+)$", re.MULTILINE)

#: The operating system's words for a file that it does not let Spark read or write.
_REFUSED: Final = "|".join(
    re.escape(os.strerror(number))
    for number in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.EMFILE,
        errno.ENFILE,
    )
)
#: Java gives no reason for a directory that cannot be made.
_OF_STORAGE: Final = re.compile(rf"(?:{_REFUSED})\W*$|^Mkdirs failed to create |^\[DELTA_CANNOT_CREATE_LOG_PATH\] ")
#: The package of Java's connections to Python workers.
_TALKS_TO_WORKERS: Final = "org.apache.spark.api.python."
#: What such a connection is read by: Java's own readers, and Spark's as a worker that has just begun proves who it is
#: (`SocketAuthHelper`).
_READERS: Final = ("java.", "org.apache.spark.security.")
_NO_CLASS: Final = ("ClassNotFoundException", "NoClassDefFoundError")
_PLACE: Final = re.compile(r"(?:[a-z0-9]+:)?/\S*[^\s.,;:)]")


def as_kidx_error(error: PySparkException | Py4JJavaError) -> KidxError | None:
    """The error of kidx that an error of Spark stands for: one that a task raised, a `StorageError`, or a
    `SparkEndedError` if a worker has ended; None for any other error.
    """
    if raised := _OURS.findall(str(error)):
        return errors.raised_elsewhere(*raised[-1])
    if not isinstance(error, Py4JJavaError):
        return None
    messages = list(_messages(error.java_exception))
    if _was_cut_off(error.java_exception) or any(
        text.startswith("Python worker exited unexpectedly") for text in messages
    ):
        return SparkEndedError(
            "a Python worker has ended at each attempt at a task: it crashed, or was killed, as happens where memory "
            "runs out (see dmesg); fewer workers at once (-- --master 'local[1,4]') need less memory; run the same "
            "command again to go on"
        )
    if not _OF_STORAGE.search(messages[-1]):
        return None
    place = ""
    if not _PLACE.search(messages[-1]):
        places = (match[0] for text in messages if (match := _PLACE.search(text)))
        place = next(places, "a file of the catalog, or of Spark's own below spark.local.dir") + ": "
    return StorageError(
        f"{place}{messages[-1]}; mend that and run the same command again; it goes on from what is done"
    )


def spark_message(error: PySparkException | Py4JJavaError) -> str:
    """Spark's message in one line; for an exception of Java, the message of the innermost cause."""
    if isinstance(error, Py4JJavaError):
        return list(_messages(error.java_exception))[-1]
    return str(error).strip().splitlines()[0]


def _was_cut_off(thrown: JavaObject) -> bool:
    """Whether the innermost cause was thrown in a connection to a Python worker: the worker ended without a message.
    The readers and writers of that connection are below in the same trace, so the first frame that is none of
    `_READERS` counts.
    """
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    if thrown.getClass().getSimpleName() not in ("EOFException", "SocketException"):
        return False
    frames = (str(frame.getClassName()) for frame in thrown.getStackTrace())
    return next((name for name in frames if not name.startswith(_READERS)), "").startswith(_TALKS_TO_WORKERS)


def _messages(thrown: JavaObject | None) -> Iterator[str]:
    """The first lines of the messages of an exception, its cause, and so on."""
    while thrown is not None:
        message = str(thrown.getMessage() or thrown.toString()).strip().partition("\n")[0]
        # The message of such an exception is the class's name and nothing else.
        yield f"{message}: no such class" if thrown.getClass().getSimpleName() in _NO_CLASS else message
        thrown = thrown.getCause()
