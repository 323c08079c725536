"""A standalone Spark cluster on loopback, from pip's Spark: a master and workers, each a process."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.faults.processes import TooLateError, end_gently, kill_session, while_it_runs
from tests.support.spark.jobs import clean_environment

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


#: The host name of the node without mounts, and of its executors.
NODE: Final = "node-without-mounts"
#: Workers at different addresses are different hosts to Spark: only then does a task have two attempts at a time.
HOSTS: Final = ("127.0.0.1", "127.0.0.2")

_SPARK: Final = Path(pyspark.__file__).parent
_ELSEWHERE: Final = ("unshare", "--mount", "--uts", "--", "sh", "-ec")
#: Mounts an empty file system on each directory of the node, and then runs the command.
_NODE: Final = 'hostname "$1"; shift; until [ "$1" = -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
_START_SECONDS: Final = 120.0
#: Executors live for seconds here: the optimising compiler would cost more time than it saves.
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """A master, and workers of one core. All their files are below `directory`."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._temporary = directory / "tmp"
        for made in (directory / "logs", directory / "conf", self._temporary):
            made.mkdir()
        # With the credentials of a store, Spark's daemons want an address for the name of their node.
        credentials = {name for name in os.environ if name.startswith("AWS_")}
        self._environment = {
            **{name: value for name, value in clean_environment().items() if name not in credentials},
            "SPARK_HOME": str(_SPARK),
            "SPARK_CONF_DIR": str(directory / "conf"),  # empty: by Spark's own settings the master logs its address
            "SPARK_LOCAL_IP": HOSTS[0],
            "SPARK_LOCAL_DIRS": str(self._temporary),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false -Djava.io.tmpdir={self._temporary} {_JAVA}",
            "TMPDIR": str(self._temporary),
        }
        self.workers: dict[str, subprocess.Popen[str]] = {}
        # By worker, processes of others. There are many, and looking at all of them takes longer than mapping a log.
        self._others: dict[int, set[str]] = {}
        address = ("--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        _, self.url = self._daemon("master.Master", address, "master", r"spark://127\.0\.0\.1:\d+")

    @property
    def options(self) -> tuple[str, ...]:
        """The options of spark-submit; the driver listens on loopback alone."""
        confs = {
            "spark.driver.host": HOSTS[0],
            "spark.driver.bindAddress": HOSTS[0],
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={self._temporary} {_JAVA}",
        }
        return (
            "--master",
            self.url,
            *(word for name, value in confs.items() for word in ("--conf", f"{name}={value}")),
        )

    def work(self, host: str) -> Path:
        return self._directory / f"work-{host}"

    def start_worker(self, host: str = HOSTS[0], node: Sequence[str] = ()) -> None:
        """Start a worker, in place of a former one; `node` are the words before its command on another node."""
        address = ("--host", host, "--port", "0", "--webui-port", "0")
        arguments = (*address, "--cores", "1", "--memory", "1g", "--work-dir", str(self.work(host)), self.url)
        ready = "Successfully registered with master"
        self.workers[host], _ = self._daemon("worker.Worker", arguments, f"worker-{host}", ready, node)

    def python_workers(self) -> dict[int, str]:
        """The Python processes of executors, and the host of each."""
        hosts: dict[int, str] = {}
        for host, process in self.workers.items():
            others = self._others.setdefault(process.pid, set())
            hosts |= dict.fromkeys(worker(process, others), host)
        return hosts

    def executor(self, python_worker: int) -> list[int]:
        """The processes of an executor: its JVM, pyspark's daemon and the Python worker."""
        host = self.python_workers()[python_worker]
        parents = {pid: parent for pid, parent, _ in processes_of(self.workers[host])}
        daemon = parents[python_worker]
        return [parents[daemon], daemon, python_worker]

    def kill_worker(self, host: str) -> None:
        """Kill a worker (-9), and nothing else of its node."""
        os.kill(self.workers[host].pid, signal.SIGKILL)
        self.workers[host].wait()

    def mend(self) -> None:
        """Restart killed workers, and kill what is left of executors whose driver has gone."""
        for pid in self.python_workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for host, process in list(self.workers.items()):
            if process.poll() is not None:
                kill_session(process)
                self.start_worker(host)

    def _daemon(
        self, name: str, arguments: Sequence[str], log_name: str, ready: str, node: Sequence[str] = ()
    ) -> tuple[subprocess.Popen[str], str]:
        """Start a daemon that ends with the cluster, wait until its log matches `ready`, and return both."""
        log = self._directory / "logs" / log_name
        command = [*node, str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                env=self._environment,
            )
        self._stack.callback(end_gently, process)

        def when_ready() -> str | None:
            match = re.search(ready, log.read_text())
            return match[0] if match else None

        try:
            return process, while_it_runs(process, when_ready, _START_SECONDS)
        except TooLateError as error:
            raise AssertionError(log.read_text()) from error


@contextlib.contextmanager
def cluster(directory: Path, hosts: Sequence[str] = HOSTS) -> Iterator[Cluster]:
    """Start a cluster with a worker for each host, on free ports. Its files are in `directory`; those of executors are
    removed at the end.
    """
    with contextlib.ExitStack() as stack:
        started = Cluster(directory, stack)
        for host in hosts:
            stack.callback(shutil.rmtree, started.work(host), ignore_errors=True)
        stack.callback(shutil.rmtree, directory / "tmp", ignore_errors=True)
        for host in hosts:
            started.start_worker(host)
        yield started


@contextlib.contextmanager
def cluster_elsewhere(directory: Path, covered: Sequence[Path]) -> Iterator[Cluster]:
    """Start a cluster with one worker, on a node on which the `covered` directories are empty. Skip the test if this
    user may not make such a node.
    """
    _skip_without_nodes(directory)
    with contextlib.ExitStack() as stack:
        started = Cluster(directory, stack)
        started.start_worker(node=(*_ELSEWHERE, _NODE, "sh", NODE, *map(str, covered), "--"))
        yield started


def _skip_without_nodes(directory: Path) -> None:
    if shutil.which(_ELSEWHERE[0]) is None:
        pytest.skip("needs Linux' unshare")
    tried = subprocess.run(
        [*_ELSEWHERE, _NODE, "sh", NODE, directory, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if tried.returncode != 0:
        pytest.skip(f"needs root and the right to make name spaces and mounts: {tried.stderr.strip()}")
