"""A real Kafka broker: one node that is its own controller (KRaft), on loopback, with its own directory."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import functools
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.kafka.jars import PROJECT, PROMISED, class_path, release_of
from tests.support.kafka.moved import class_name

_ARCHIVES: Final = PROJECT / ".jars"


def class_archive(java: str, class_path: str, run: Callable[[str], None]) -> Path | None:
    """The archive for a Java and a class path of jars and of directories with `/*`; None if this Java makes no archive.
    If there is none for the present jars, `run` gets an option of the JVM, and runs what loads the classes.
    """
    name = hashlib.sha256(class_path.encode()).hexdigest()[:8]
    archive = _ARCHIVES / f"broker-{name}-{_key(java, class_path)}.jsa"
    with (_ARCHIVES / "broker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in _ARCHIVES.glob(f"broker-{name}-*.jsa"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=_ARCHIVES) as directory:
                made = Path(directory, archive.name)
                run(f"-XX:ArchiveClassesAtExit={made}")
                made.touch()  # an empty file if it was not made: then there is no other try
                made.rename(archive)
    return archive if archive.stat().st_size else None


def _key(java: str, class_path: str) -> str:
    """A hash of a Java and of the present jars of a class path: the JVM ignores an archive of others."""
    key = hashlib.sha256()
    for part in (java, *class_path.split(os.pathsep)):
        for path in sorted(Path(part[:-2]).glob("*.jar")) if part.endswith("/*") else [Path(part).resolve()]:
            status = path.stat()
            key.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return key.hexdigest()[:8]


#: A broker starts and stops in seconds, even on a busy machine; one that takes longer hangs.
DEADLINE_SECONDS: Final = 120.0

_STARTED: Final = "Kafka Server started"
_PORT_TAKEN: Final = "Address already in use"
CLUSTER_ID: Final = "S2lkeFRlc3RDbHVzdGVyMQ"  # any 16 bytes, in URL-safe base64
_TAIL_LINES: Final = 40

#: For brokers that are started often and run for seconds: a small heap, and no optimising compiler.
JVM_OPTIONS: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

# Without the first line, log4j's own shutdown hook would end the log amid Kafka's shutdown.
_LOGGING: Final = """\
shutdownHook = disable
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %p %m (%c{1})%n
"""


class BrokerError(Exception):
    """A broker did not start or stop; the end of its log is in the message."""


class Broker:
    """A broker that can be started and stopped again and again.

    A JVM runs Kafka's own main classes, from the jars that `./setup.sh kafka` fetches. The context of `running` has a
    broker that serves; at its end the broker has shut down as `kafka-server-stop.sh` makes it (SIGTERM), and the
    process is gone whatever happened. All runs share one port, so that clients survive a restart.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        jars_before: Sequence[str] = (),
        jars_behind: Sequence[str] = (),
        more_log_dirs: Sequence[str] = (),
        version: str = PROMISED,
        ports: tuple[int, int] | None = None,
        java_options: Sequence[str] | None = None,
        format_with: Sequence[str] | None = (),
        cluster_id: str = CLUSTER_ID,
    ) -> None:
        """Format a new broker's storage in `directory`.

        Args:
            settings: more lines of `server.properties`; None: without a line that would else be there.
            jars_before, jars_behind: what is on the class path on either side of Kafka's own jars.
            more_log_dirs: names of more log dirs.
            ports: the ports of the broker and of its controller; None for any.
            java_options: options of the JVM; None for those with which it starts soonest. A Kafka's first broker makes
                an archive for these, in eight seconds. One that is only formatted needs none: `JVM_OPTIONS`.
            format_with: options of formatting; None: the caller puts log dirs there.
            cluster_id: the id with which storage is formatted.
        """
        self._cluster_id = cluster_id
        self.directory = directory
        self.log_dir = directory / "data"
        self.log_dirs = [self.log_dir, *(directory / name for name in more_log_dirs)]
        self._settings = dict(settings)
        self.version = version
        self._class_path = os.pathsep.join([*jars_before, *class_path(version), *jars_behind])
        if java_options is None:
            java_options = (*JVM_OPTIONS, *_archived(version, tuple(jars_before), tuple(jars_behind)))
        self._java_options = java_options
        self._runs = 0
        directory.mkdir(parents=True)
        self._has_own_ports = ports is None
        self._port, self._controller_port = free_ports(2) if ports is None else ports
        self._configure()
        if format_with is not None:
            self.format(format_with)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def controller(self) -> str:
        """The address of its controller."""
        return f"127.0.0.1:{self._controller_port}"

    def copy(self, directory: Path, settings: Mapping[str, object] | None = None) -> Broker:
        """A stopped broker's twin in another directory, with all its files and their modification times, and with some
        other settings. It has the same port: only one of the two can run at a time.
        """
        twin = copy.copy(self)
        twin.directory, twin.log_dir = directory, directory / "data"
        twin.log_dirs = [directory / log_dir.name for log_dir in self.log_dirs]
        twin._settings, twin._runs = {**self._settings, **(settings or {})}, 0
        directory.mkdir(parents=True)
        for log_dir, of_twin in zip(self.log_dirs, twin.log_dirs, strict=True):
            shutil.copytree(log_dir, of_twin)
        twin._configure()
        return twin

    @contextlib.contextmanager
    def running(self) -> Iterator[BrokerRun]:
        """Start the broker, wait until it serves, and stop it at the end of the context."""
        with self.running_until_killed() as run:
            yield run
            run.stop()

    @contextlib.contextmanager
    def running_until_killed(self) -> Iterator[BrokerRun]:
        """Start the broker, wait until it serves, and kill it (-9) at the end of the context."""
        run = self.start()
        try:
            yield run
        except BaseException as error:
            error.add_note(run.tail())
            raise
        finally:
            run.kill()

    def start(self, deadline_seconds: float = DEADLINE_SECONDS) -> BrokerRun:
        """Start the broker, and wait until it serves. The caller stops or kills it."""
        for _ in range(3):  # another process may take a free port before the broker does
            run = self._run()
            if run.wait_until_started(deadline_seconds):
                return run
            run.kill()
            if not self._has_own_ports or _PORT_TAKEN not in run.log.read_text():
                break
            self._port, self._controller_port = free_ports(2)
            self._configure()
        raise BrokerError(f"the broker did not start:\n{run.tail()}")

    def _run(self) -> BrokerRun:
        self._runs += 1
        return BrokerRun(
            self.command("kafka.Kafka", "server.properties"), self.directory, self.directory / f"run-{self._runs}.log"
        )

    def _configure(self) -> None:
        here, controller = self.bootstrap, self.controller
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{here},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{here}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            **self._settings,
        }
        (self.directory / "server.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in settings.items() if value is not None)
        )
        (self.directory / "log4j2.properties").write_text(_LOGGING)

    def run_tool(self, main_class: str, *arguments: str) -> str:
        """Run one of Kafka's own commands to its end, and return its output."""
        done = subprocess.run(
            self.command(main_class, *arguments),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"{main_class} {' '.join(arguments)}:\n{done.stdout}")
        return done.stdout

    def format(self, options: Sequence[str] = ()) -> None:
        """Format the log dirs with Kafka's own tool."""
        self.run_tool(
            "kafka.tools.StorageTool",
            *("format", "--cluster-id", self._cluster_id, "--config", "server.properties"),
            *options,
        )

    def command(self, main_class: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        main_class = class_name(main_class, release_of(self.version))
        return [_java(), *self._java_options, logging, "-cp", self._class_path, main_class, *arguments]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java") or "java"


@functools.cache
def _archived(version: str, before: tuple[str, ...], behind: tuple[str, ...]) -> tuple[str, ...]:
    """The options with which a JVM takes classes from the archive of a broker that was started and stopped."""

    def run(option: str) -> None:
        with tempfile.TemporaryDirectory() as directory:
            broker = Broker(Path(directory, "broker"), {}, before, behind, version=version, java_options=JVM_OPTIONS)
            broker._java_options = (*JVM_OPTIONS, option)
            with broker.running():
                pass

    archive = class_archive(_java(), os.pathsep.join([*before, *class_path(version), *behind]), run)
    return () if archive is None else (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=error")


class BrokerRun:
    """One run of a broker, from start to stop; the file `log` gets its output."""

    def __init__(self, command: list[str], directory: Path, log: Path) -> None:
        self.log = log
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # the test handles Ctrl-C
        )
        self._started = False
        self._started_or_ended = threading.Event()
        self._reader = threading.Thread(target=self._keep_output, name=f"output of {log.name}", daemon=True)
        self._reader.start()

    def wait_until_started(self, deadline_seconds: float) -> bool:
        """Wait until the broker serves; False: it has ended, or the deadline has passed."""
        self._started_or_ended.wait(deadline_seconds)
        return self._started

    def stop(self) -> None:
        """Shut the broker down cleanly, and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise BrokerError(f"the broker did not stop within {DEADLINE_SECONDS} seconds") from None
        self._reader.join()
        if code != 128 + signal.SIGTERM:  # the exit code of a JVM that a signal has shut down
            raise BrokerError(f"the broker ended with exit code {code}")

    def kill(self) -> None:
        """Kill the broker (-9) if it still runs."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def lines(self) -> list[str]:
        """The broker's output so far; all of it once it has stopped."""
        return self.log.read_text().splitlines()

    def tail(self) -> str:
        return "\n".join([f"(the end of {self.log})", *self.lines()[-_TAIL_LINES:]])

    def _keep_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output, self.log.open("w", buffering=1) as log:
            for line in output:
                log.write(line)
                if _STARTED in line:
                    self._started = True
                    self._started_or_ended.set()
        self._started_or_ended.set()


def free_ports(count: int) -> list[int]:
    """Free ports of loopback, below those that the system gives to outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in ports:
                ports.append(port)
    return ports
