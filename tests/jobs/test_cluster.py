"""The build job on real clusters: a master, workers and executors of their own, modules and packages sent along."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pyspark
import pytest

from kidxlib.format.segment_files import segment_file
from kidxlib.terminal.exit_codes import ExitCode
from tests.conftest import Say
from tests.faults.processes import (
    Running,
    TooLateError,
    again_if_too_late,
    end_gently,
    kidx,
    stands_still,
    wait_for_end,
    while_it_runs,
)
from tests.faults.trees import (
    age,
    in_memory,
    indexes,
    kafkas_indexes,
    link_samples,
    slow_log,
    small_log,
    staging_files,
    write_log,
)
from tests.faults.watching import Did, Watch
from tests.support.logs.golden import SAMPLES
from tests.support.spark.cluster import HOSTS, NODE, Cluster, cluster, cluster_elsewhere
from tests.support.spark.jobs import Ended, Place, build, clean_environment, printed, rows, run_submit
from tests.support.spark.releases import spark_submit, unpacked_release

pytestmark = pytest.mark.exhaustive("takes minutes; docs/clusters.md makes the package, tests/jobs/spark has executors")
#: Checking a log of this size takes some tenths of a second, and so time enough to do something meanwhile.
SLOW: Final = 1 << 30
SECOND_OFFSET: Final = 1 << 21
#: Each in a wave of its own.
SLOW_PARTITIONS: Final = ("slow-0", "slow-1", "slow-2")
#: So many builds.
_DISTURBED: Final = 10
#: No step of a job on Spark takes as long; what does, hangs.
DEADLINE_SECONDS: Final = 300.0
#: Tables that a build writes, and what is different in each run, or says when and where it was.
TABLES: Final = ("segments", "partitions", "producer_events", "aborted_transactions")
OF_A_RUN: Final = frozenset(["build_id", "index_directory"])
#: The session of a job wants no task to run twice; one that is there already stays as it is.
IN_A_SESSION: Final = """
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate()
from jobs.build_index import build_index
from kidxlib.terminal.run_command import run
run(build_index, "build_index")
"""
#: A second copy of any task that takes longer than others, and long.
TWICE: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "5s",
}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("two-workers")) as started:
        yield started


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's partitions, and three with a slow segment each, and one after it: an active one is not mapped."""
    directory = link_samples(tmp_path_factory.mktemp("logs") / "kafka-logs", 1)
    for name in SLOW_PARTITIONS:
        slow_log(directory / name, 0, SLOW, small_log(100))
        write_log(directory / name, SECOND_OFFSET, small_log(base_offset=SECOND_OFFSET))
    return directory


@pytest.fixture(scope="module")
def settings(log_dir: Path) -> Path:
    """A wave for each slow segment, with small ones beside it."""
    path = log_dir.with_name("settings.toml")
    path.write_text(f"[build]\nwave_bytes = {SLOW + (SLOW >> 1)}\n")
    return path


def recorded(place: Place) -> dict[str, list[dict[str, Any]]]:
    """All that the catalog says, but what is of the run."""
    found = {}
    for table in TABLES:
        kept = [
            {name: value for name, value in row.items() if name not in OF_A_RUN}
            for row in rows(place.catalog, f"SELECT * FROM {table}")
        ]
        found[table] = sorted(kept, key=repr)
    return found


class Packed:
    """A build with all that `./spark-submit.sh package` has made, and what it left on the nodes."""

    def __init__(self, directory: Path, place: Place, on: Cluster) -> None:
        self.place = place
        package = ("package", "--directory", directory)
        self.said = run_submit(*package, cwd=directory)
        assert self.said.code == ExitCode.OK, self.said
        self.made = {path.name: path.stat() for path in directory.iterdir()}
        self.said_again = run_submit(*package, cwd=directory)
        options = next(line for line in self.said.out.splitlines() if line.startswith("  --archives")).split()
        options[1] = f"{directory}/{options[1]}"
        with tarfile.open(directory / "environment.tar.gz") as archive:
            self.names = archive.getnames()
        self.ended = build(*place.arguments, "--", *on.options, *options)
        self.environments = [path for host in HOSTS for path in on.work(host).glob("app-*/*/environment")]
        self.compiled = [
            {str(path.relative_to(environment)) for path in environment.glob("kidx-compiled/*/*")}
            for environment in self.environments
        ]
        self.after = {path.name: path.stat() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def packed(
    tmp_path_factory: pytest.TempPathFactory, two_workers: Cluster, log_dir: Path, settings: Path
) -> Iterator[Packed]:
    directory = tmp_path_factory.mktemp("packed")
    yield Packed(directory, Place(tmp_path_factory.mktemp("undisturbed"), log_dir, settings), two_workers)
    shutil.rmtree(directory)


def test_executors_of_two_workers_bring_nothing_but_spark(packed: Packed, log_dir: Path) -> None:
    """Modules and packages are sent along, pyspark is Spark's own: Kafka's bytes, and nothing compiled again."""
    assert packed.ended.code == ExitCode.OK, packed.ended
    assert packed.ended.json["waves"] == len(SLOW_PARTITIONS)
    assert indexes(packed.place.index_dir).items() >= kafkas_indexes(log_dir).items()
    assert not [name for name in packed.names if "site-packages/pyspark/" in name]
    assert len(packed.environments) == len(HOSTS)
    sent = {name for name in packed.names if name.startswith("kidx-compiled/") and not name.endswith("/")}
    assert packed.compiled == [{name for name in sent if name.count("/") == 2}] * len(HOSTS)


def test_a_package_that_is_up_to_date_stays_as_it_is(packed: Packed) -> None:
    assert packed.said_again == Ended(ExitCode.OK, packed.said.out, "")
    unchanged = ("environment.tar.gz", "environment.stamp")
    assert set(packed.after) == {*unchanged, "kidx.zip"}
    for name in unchanged:
        assert (packed.made[name].st_ino, packed.made[name].st_mtime_ns) == (
            packed.after[name].st_ino,
            packed.after[name].st_mtime_ns,
        )


def test_a_release_needs_no_checkout(packed: Packed, tmp_path: Path) -> None:
    """Spark's own spark-submit, a release's modules, settings and jobs, and the packed environment as Python: what
    Kafka builds, and nothing compiled again.
    """
    release = unpacked_release(tmp_path)
    places = ("--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog")
    job = (release / "jobs" / "build_index.py", "--source", f"sample={SAMPLES}", "--topics", "txn-mixed", *places)
    environment, compiled = packed.environments[0], packed.compiled[0]
    ended = subprocess.run(
        [*spark_submit(release), *map(str, job)],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME", "TMPDIR")},
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_PYTHON": str(environment / "bin" / "python"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    [written] = (tmp_path / "index").rglob("txn-mixed-0")
    kafkas = {name: content for name, content in kafkas_indexes(SAMPLES).items() if name.startswith("txn-mixed-0/")}
    assert indexes(written.parent) == kafkas != {}
    assert (tmp_path / "catalog" / "segments" / "_delta_log").is_dir()
    assert {str(path.relative_to(environment)) for path in environment.glob("kidx-compiled/*/*")} == compiled


@contextlib.contextmanager
def running(command: str, on: Cluster) -> Iterator[Running]:
    """A driver to be disturbed; it does not outlive the context."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=clean_environment(),
    ) as process:
        try:
            yield Running(process, lambda _: list(on.python_workers()), DEADLINE_SECONDS)
        finally:
            end_gently(process)


class Disturbed:
    """A build on a cluster, and what can happen to it while it reads a slow segment."""

    def __init__(self, on: Cluster, driver: Running, index_dir: Path, watch: Watch) -> None:
        self._cluster, self._driver, self._index_dir = on, driver, index_dir
        self._ended = os.pidfd_open(driver.process.pid)
        self._events = watch.events(self._ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ended)

    def runs_twice(self, log: Path) -> None:
        """Two attempts read at the same time, both publish, and the one that came too late has the last word."""
        first = self._driver.mapping(log)
        os.kill(first, signal.SIGSTOP)
        hosts = self._cluster.python_workers
        others = Running(self._driver.process, lambda _: [pid for pid in hosts() if pid != first], DEADLINE_SECONDS)
        second = others.reading(log)
        os.kill(second, signal.SIGSTOP)
        assert hosts()[first] != hosts()[second]
        os.kill(first, signal.SIGCONT)
        self._stop_when_staged(first, log)
        os.kill(second, signal.SIGCONT)
        self._wait_for(log, Did.RENAME_HERE, f"{log.stem}.index")  # the last one
        os.kill(first, signal.SIGCONT)
        self._wait_for(log, Did.RENAME_HERE, f"{log.stem}.")

    def loses_executor(self, log: Path) -> None:
        """All processes of an executor are killed while files are staged and not yet in place."""
        victim = self._driver.mapping(log)
        executor = self._cluster.executor(victim)
        self._stop_when_staged(victim, log)
        for pid in executor:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def loses_worker(self, log: Path) -> None:
        """A worker is killed, and nothing else; its executor then ends itself."""
        victim = self._driver.mapping(log)
        os.kill(victim, signal.SIGSTOP)
        host = self._cluster.python_workers()[victim]
        executor, *_ = self._cluster.executor(victim)
        self._cluster.kill_worker(host)
        assert wait_for_end(executor, DEADLINE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
        assert wait_for_end(victim, DEADLINE_SECONDS)

    def _stop_when_staged(self, python_worker: int, log: Path) -> None:
        self._wait_for(log, Did.CREATE, f"-{log.stem}.")
        os.kill(python_worker, signal.SIGSTOP)
        # What the kernel is at before it stops may be the very rename.
        while_it_runs(self._driver.process, lambda: stands_still(python_worker) or None)
        if (self._index_dir / log.parent.name / f"{log.stem}.index").exists():
            raise TooLateError

    def _wait_for(self, log: Path, did: Did, part_of_name: str) -> None:
        for event in self._events:
            if event.directory.name == log.parent.name and event.did & did and part_of_name in event.name:
                return
        raise TooLateError


@again_if_too_late
def disturb(on: Cluster, directory: Path, log_dir: Path, settings: Path, packed: Packed) -> None:
    place = Place(Path(tempfile.mkdtemp(dir=directory)), log_dir, settings)
    logs = [log_dir / name / segment_file(0, ".log") for name in SLOW_PARTITIONS]
    watched = [place.index_dir / log.parent.name for log in logs]
    for made in watched:
        made.mkdir(parents=True)
    twice = [word for name, value in TWICE.items() for word in ("--conf", f"{name}={value}")]
    command = printed("build_index", *place.arguments, "--", *on.options, *twice)
    command = command.replace("-m jobs.build_index", f"-c {shlex.quote(IN_A_SESSION)}")
    try:
        with in_memory(*logs), Watch(watched) as watch, running(command, on) as driver:
            with Disturbed(on, driver, place.index_dir, watch) as disturbed:
                disturbed.runs_twice(logs[0])
                disturbed.loses_executor(logs[1])
                disturbed.loses_worker(logs[2])
            out, messages = driver.process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        on.mend()

    assert driver.process.returncode == ExitCode.OK and "Traceback" not in messages, messages
    assert set(json.loads(out)["by_status"]) == {"ok"}
    assert indexes(place.index_dir) == indexes(packed.place.index_dir)
    assert recorded(place) == recorded(packed.place)
    left = staging_files(place.index_dir)
    assert {path.parent for path in left} == {watched[1]}, left
    age(left)
    assert kidx("build", log_dir, "--index-dir", place.index_dir).code == ExitCode.OK
    assert staging_files(place.index_dir) == []
    assert indexes(place.index_dir) == indexes(packed.place.index_dir)


def test_a_task_that_runs_twice_a_lost_executor_and_a_lost_worker_change_nothing(
    two_workers: Cluster, tmp_path: Path, log_dir: Path, settings: Path, packed: Packed, say: Say
) -> None:
    """All three happen to one build, wave after wave: the same bytes, the same rows, and what a killed executor had
    staged is swept by a later run.
    """
    for _ in range(_DISTURBED):
        disturb(two_workers, tmp_path, log_dir, settings, packed)
    say(f"{_DISTURBED} builds disturbed three times each")


@again_if_too_late
def disturb_planning(on: Cluster, directory: Path, log_dir: Path, settings: Path, packed: Packed) -> None:
    """All processes of an executor are killed once one of its workers lists a partition."""
    place = Place(Path(tempfile.mkdtemp(dir=directory)), log_dir, settings)
    command = printed("build_index", *place.arguments, "--plan-on-executors", "--", *on.options)
    partitions = [path for path in log_dir.iterdir() if path.is_dir()]
    try:
        with Watch(partitions, Did.OPEN) as watch, running(command, on) as driver:
            ended = os.pidfd_open(driver.process.pid)
            next(iter(watch.events(ended)))
            workers = on.python_workers()
            if not workers or indexes(place.index_dir):
                raise TooLateError
            for pid in on.executor(next(iter(workers))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.close(ended)
            out, messages = driver.process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        on.mend()
    assert driver.process.returncode == ExitCode.OK and "Traceback" not in messages, messages
    assert set(json.loads(out)["by_status"]) == {"ok"}
    assert indexes(place.index_dir) == indexes(packed.place.index_dir)
    assert recorded(place) == recorded(packed.place)


def test_an_executor_that_is_lost_while_it_plans_changes_nothing(
    two_workers: Cluster, tmp_path: Path, log_dir: Path, settings: Path, packed: Packed
) -> None:
    disturb_planning(two_workers, tmp_path, log_dir, settings, packed)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log dirs: one that the worker's node sees, one that is not there, one whose mount is missing there, and one of
    which a part is missing.
    """
    directory = tmp_path_factory.mktemp("cluster")
    first = link_samples(directory / "seen" / "kafka-logs", 1)
    for name in ("absent", "empty", "other"):
        shutil.copytree(first, directory / name / "kafka-logs")
    return directory


@pytest.fixture(scope="module")
def spark_cluster(root: Path) -> Iterator[Cluster]:
    with cluster_elsewhere(
        root, [root / "absent", root / "empty" / "kafka-logs", root / "other" / "kafka-logs" / "txn-mixed-0"]
    ) as started:
        yield started


def build_on(spark_cluster: Cluster, source: Path, place: Path) -> Ended:
    arguments = ("--source", source, "--index-dir", place / "index", "--catalog", place / "catalog")
    return build(*arguments, "--", *spark_cluster.options)


def test_executors_elsewhere_write_kafkas_bytes(root: Path, spark_cluster: Cluster, tmp_path: Path) -> None:
    """As docs/operations.md says it: nothing is set up on the node, and the result is that of a local run."""
    source = root / "seen" / "kafka-logs"
    ended = build_on(spark_cluster, source, tmp_path)
    assert ended.code == ExitCode.OK, ended
    assert indexes(tmp_path / "index") == kafkas_indexes(source)
    found = rows(tmp_path / "catalog", "SELECT status FROM segments")
    assert [row["status"] for row in found] == ["ok"] * 12


@pytest.mark.parametrize(("how", "why"), [("absent", "No such file or directory"), ("empty", "an empty directory")])
def test_an_executor_that_does_not_see_a_source_is_named(
    how: str, why: str, root: Path, spark_cluster: Cluster, tmp_path: Path
) -> None:
    """The driver sees the directory, the executor's node does not: one line with the node and the directory, nothing
    done.
    """
    source = root / how / "kafka-logs"
    ended = build_on(spark_cluster, source, tmp_path)
    assert (ended.code, ended.out) == (ExitCode.USAGE, ""), ended
    (line,) = [line for line in ended.err.splitlines() if "segments, " not in line and line.strip()]
    assert line.startswith(f"error: executor {NODE} does not see the source {source} ({why}); mount it"), ended
    assert indexes(tmp_path) == {} and rows(tmp_path / "catalog", "SELECT * FROM segments") == []


def test_an_executor_that_has_another_directory_at_the_sources_path_is_noticed(
    root: Path, spark_cluster: Cluster, tmp_path: Path
) -> None:
    """Logs that the driver sees and the executor does not were not deleted meanwhile: one line, and no row."""
    directory = root / "other" / "kafka-logs" / "txn-mixed-0"
    ended = build_on(spark_cluster, directory.parent, tmp_path)
    assert (ended.code, ended.out) == (ExitCode.USAGE, ""), ended
    (line,) = [line for line in ended.err.splitlines() if "segments, " not in line and line.strip()]
    assert line.startswith(f"error: an executor does not find {directory}/"), ended
    assert rows(tmp_path / "catalog", "SELECT * FROM segments") == []
