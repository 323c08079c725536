"""A standalone Spark cluster on this machine's loopback, its worker on a node that does not see all folders."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
import pytest

from tests.faults.processes import TooLateError, end_gently, while_it_runs
from tests.support.build_job import clean_environment

#: The name that the worker's node has for itself, and its executors with it.
NODE: Final = "node-without-mounts"

_SPARK: Final = Path(pyspark.__file__).parent
_ELSEWHERE: Final = ("unshare", "--mount", "--uts", "--", "sh", "-ec")
#: Mounts an empty file system on each folder of the node, and goes on as the command.
_NODE: Final = 'hostname "$1"; shift; until [ "$1" = -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
_START_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master with one worker, of one core."""

    url: str

    @property
    def options(self) -> tuple[str, ...]:
        """What spark-submit needs to know; nobody else on the network is told of the driver."""
        on_loopback = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
        return ("--master", self.url, *on_loopback)


@contextlib.contextmanager
def cluster(folder: Path, covered: Sequence[Path]) -> Iterator[Cluster]:
    """Start a cluster, on free ports. Skips the test where this user may make no node of its own.

    Args:
        folder: for what the cluster writes.
        covered: folders that are empty on the worker's node; here they are as they were.
    """
    _skip_without_nodes(folder)
    logs, temporary, configuration = folder / "logs", folder / "tmp", folder / "conf"
    for made in (logs, temporary, configuration):
        made.mkdir()
    environment = {
        **clean_environment(),
        "SPARK_HOME": str(_SPARK),
        "SPARK_CONF_DIR": str(configuration),  # empty: with Spark's own settings it says where it listens
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(temporary),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false -Djava.io.tmpdir={temporary}",
    }
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    node = (*_ELSEWHERE, _NODE, "sh", NODE, *map(str, covered), "--")
    spark_class, package = str(_SPARK / "bin" / "spark-class"), "org.apache.spark.deploy"
    master = (spark_class, f"{package}.master.Master", *ports)
    worker = (spark_class, f"{package}.worker.Worker", *ports, "--cores", "1", "--memory", "1g")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_daemon(master, environment, logs / "master", r"spark://127\.0\.0\.1:\d+"))
        command = (*node, *worker, "--work-dir", str(folder / "work"), url)
        stack.enter_context(_daemon(command, environment, logs / "worker", "Successfully registered with master"))
        yield Cluster(url)


@contextlib.contextmanager
def _daemon(command: Sequence[str], environment: dict[str, str], log: Path, ready: str) -> Iterator[str]:
    """Start a process and wait until it says that it is ready: what it said. It does not outlive the context."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True, env=environment
        )

    def found() -> str | None:
        match = re.search(ready, log.read_text())
        return match[0] if match else None

    try:
        yield while_it_runs(process, found, _START_SECONDS)
    except TooLateError as error:
        raise AssertionError(log.read_text()) from error
    finally:
        end_gently(process)


def _skip_without_nodes(folder: Path) -> None:
    if shutil.which(_ELSEWHERE[0]) is None:
        pytest.skip("needs Linux' unshare")
    tried = subprocess.run(
        [*_ELSEWHERE, _NODE, "sh", NODE, folder, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if tried.returncode != 0:
        pytest.skip(f"needs root and the right to make name spaces and mounts: {tried.stderr.strip()}")
