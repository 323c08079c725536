"""A standalone Spark cluster on this machine's loopback, from pip's Spark: a master and workers in processes of their
own.
"""

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
from tests.support.spark.processes import processes_of, worker

#: The name that the node without mounts has for itself, and its executors with it.
NODE: Final = "node-without-mounts"
#: Workers at different addresses are different hosts to Spark: only then is a task tried twice at the same time.
HOSTS: Final = ("127.0.0.1", "127.0.0.2")

_SPARK: Final = Path(pyspark.__file__).parent
_ELSEWHERE: Final = ("unshare", "--mount", "--uts", "--", "sh", "-ec")
#: Mounts an empty file system on each directory of the node, and goes on as the command.
_NODE: Final = 'hostname "$1"; shift; until [ "$1" = -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
_START_SECONDS: Final = 120.0
#: Executors live for seconds here: the optimising compiler would take more than it gives back.
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """A master, and workers of one core. All that it writes is below `directory`."""

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
            "SPARK_CONF_DIR": str(directory / "conf"),  # empty: with Spark's own settings it says where it listens
            "SPARK_LOCAL_IP": HOSTS[0],
            "SPARK_LOCAL_DIRS": str(self._temporary),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false -Djava.io.tmpdir={self._temporary} {_JAVA}",
            "TMPDIR": str(self._temporary),
        }
        self.workers: dict[str, subprocess.Popen[str]] = {}
        # By worker: processes known to be of others. There are many, and to look takes longer than a log is mapped.
        self._others: dict[int, set[str]] = {}
        address = ("--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        _, self.url = self._daemon("master.Master", address, "master", r"spark://127\.0\.0\.1:\d+")

    @property
    def options(self) -> tuple[str, ...]:
        """What spark-submit needs to know; nobody else on the network knows of the driver."""
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
        """The directory of a worker's executors."""
        return self._directory / f"work-{host}"

    def start_worker(self, host: str = HOSTS[0], node: Sequence[str] = ()) -> None:
        """Start a worker, in place of one that was there.

        Args:
            node: what starts its command elsewhere.
        """
        address = ("--host", host, "--port", "0", "--webui-port", "0")
        arguments = (*address, "--cores", "1", "--memory", "1g", "--work-dir", str(self.work(host)), self.url)
        ready = "Successfully registered with master"
        self.workers[host], _ = self._daemon("worker.Worker", arguments, f"worker-{host}", ready, node)

    def python_workers(self) -> dict[int, str]:
        """The Python processes of executors, and the host of each."""
        found: dict[int, str] = {}
        for host, process in self.workers.items():
            others = self._others.setdefault(process.pid, set())
            found |= dict.fromkeys(worker(process, others), host)
        return found

    def executor(self, python_worker: int) -> list[int]:
        """The processes of an executor, its JVM first: those that a Python worker has above it, and the worker."""
        host = self.python_workers()[python_worker]
        parents = {pid: parent for pid, parent, _ in processes_of(self.workers[host])}
        daemon = parents[python_worker]
        return [parents[daemon], daemon, python_worker]

    def kill_worker(self, host: str) -> None:
        """Kill a worker (-9), and nothing else of its node."""
        os.kill(self.workers[host].pid, signal.SIGKILL)
        self.workers[host].wait()

    def mend(self) -> None:
        """Restart workers that were killed, and leave nothing of executors whose driver is gone."""
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
        """Start a daemon and wait until it says that it is ready: what it said. It does not outlive the cluster."""
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

        def found() -> str | None:
            match = re.search(ready, log.read_text())
            return match[0] if match else None

        try:
            return process, while_it_runs(process, found, _START_SECONDS)
        except TooLateError as error:
            raise AssertionError(log.read_text()) from error


@contextlib.contextmanager
def cluster(directory: Path, hosts: Sequence[str] = HOSTS) -> Iterator[Cluster]:
    """Start a cluster of two workers, on free ports.

    Args:
        directory: for what it writes; what executors leave there is removed at the end.
        hosts: a worker's each.
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
    """Start a cluster with one worker, on a node that does not see all directories. Skips the test where this user may
    make no node of its own.

    Args:
        directory: for what the cluster writes.
        covered: directories that are empty on the worker's node; here they are as they were.
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
