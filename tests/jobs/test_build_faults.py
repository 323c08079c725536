"""The build job is killed, or run twice at the same time: run again, it ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.kidxlib import golden
from tests.support.build_job import build, rows, start
from tests.support.opened_files import OpenedFiles

COPIES = 3


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's partitions several times over, so that a build has many segments in several waves."""
    folder = tmp_path_factory.mktemp("faults") / "kafka-logs"
    for partition in golden.SAMPLES.iterdir():
        for copy in range(COPIES):
            name = f"{partition.name.rpartition('-')[0]}-{copy}"
            shutil.copytree(partition, folder / name, copy_function=os.link)
    return folder


@pytest.fixture(scope="module")
def settings(log_dir: Path) -> Path:
    """About four waves."""
    size = sum(log.stat().st_size for log in log_dir.glob("*/*.log"))
    path = log_dir.with_name("settings.toml")
    path.write_text(f"[build]\nwave_bytes = {size // 3}\n")
    return path


class Place:
    """Where one run builds to, and the state that it leaves there."""

    def __init__(self, folder: Path, log_dir: Path, settings: Path) -> None:
        self.index_dir, self.catalog = folder / "index", folder / "catalog"
        self.arguments = (
            *("--source", f"broker={log_dir}", "--settings", settings),
            *("--index-dir", self.index_dir, "--catalog", self.catalog, "--json"),
        )

    def state(self) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
        """Every index file, and every row without what is different in each run."""
        found = rows(self.catalog, "SELECT * FROM segments ORDER BY topic, partition, base_offset")
        for row in found:
            row["index_folder"] = str(Path(row["index_folder"]).relative_to(self.index_dir))
            del row["build_id"]
        files = {
            str(path.relative_to(self.index_dir)): path.read_bytes()
            for path in self.index_dir.rglob("*")
            if path.is_file() and not path.name.startswith(".kidx-")
        }
        return files, found

    def recorded(self) -> set[str]:
        """The logs that have a row, as the catalog says at this moment; none before there is a table."""
        with contextlib.suppress(Exception):  # the table is being made
            return {row["log_path"] for row in rows(self.catalog, "SELECT log_path FROM segments")}
        return set()


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, log_dir: Path, settings: Path
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """What a build leaves when nothing happens to it."""
    place = Place(tmp_path_factory.mktemp("undisturbed"), log_dir, settings)
    ended = build(*place.arguments)
    assert ended.code == 0, ended.err
    assert ended.json["waves"] >= 3
    return place.state()


def processes_of(job: subprocess.Popen[str]) -> Iterator[tuple[int, int, str]]:
    """Process id, parent and command line of everything that a job has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == job.pid:  # the session that start() gave it
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(folder.name), int(fields[1]), command


def driver(job: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, _, command in processes_of(job) if "-m jobs.build_index" in command]


def jvm(job: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, _, command in processes_of(job) if "org.apache.spark.deploy.SparkSubmit" in command]


def worker(job: subprocess.Popen[str]) -> list[int]:
    """Python workers are forks of pyspark's daemon."""
    daemons = {pid: parent for pid, parent, command in processes_of(job) if "pyspark.daemon" in command}
    return [pid for pid, parent in daemons.items() if parent in daemons]


def kill_one(job: subprocess.Popen[str], find: Callable[[subprocess.Popen[str]], list[int]]) -> bool:
    """Kill the first such process as soon as there is one; False where the job ends without."""
    while job.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            for pid in find(job):
                os.kill(pid, signal.SIGKILL)
                return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.01)
    return False


@pytest.mark.parametrize("victim", [driver, jvm, worker], ids=lambda victim: str(victim.__name__))
def test_a_build_killed_after_some_waves_is_finished_by_the_next_one(
    victim: Callable[[subprocess.Popen[str]], list[int]],
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]],
    pytestconfig: pytest.Config,
) -> None:
    """Kill -9 once a wave is recorded: what is under a final name is whole, finished waves are not read again."""
    if victim is jvm and not pytestconfig.getoption("exhaustive"):
        pytest.skip("with --exhaustive: takes as long as the other two")
    files, expected_rows = undisturbed
    place = Place(tmp_path, log_dir, settings)
    job = start(*place.arguments)
    segments = place.catalog / "segments"
    while job.poll() is None and not (DeltaTable.is_deltatable(str(segments)) and DeltaTable(segments).version() >= 1):
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.01)
    assert kill_one(job, victim), job.communicate()
    _, messages = job.communicate()
    # A lost worker costs one attempt of one task; a lost driver or JVM is the end of this run.
    assert (job.returncode == 0) == (victim is worker), messages

    found = {str(path.relative_to(place.index_dir)): path for path in place.index_dir.rglob("*.*index")}
    assert {name: path.read_bytes() for name, path in found.items() if not path.name.startswith(".")} == {
        name: files[name] for name, path in found.items() if not path.name.startswith(".")
    }
    recorded = place.recorded()
    with OpenedFiles(log_dir.iterdir()) as opened:
        again = build(*place.arguments)
    assert again.code == 0, again.err
    assert recorded and not recorded & {str(path) for path in opened.logs()}
    assert place.state() == (files, expected_rows)


def test_two_builds_at_once_on_one_catalog_lose_and_double_nothing(
    tmp_path: Path,
    log_dir: Path,
    settings: Path,
    undisturbed: tuple[dict[str, bytes], list[dict[str, Any]]],
    pytestconfig: pytest.Config,
) -> None:
    """The same build twice at the same time, into one mirror and one new catalog; ten times with --exhaustive."""
    for number in range(10 if pytestconfig.getoption("exhaustive") else 1):
        place = Place(tmp_path / str(number), log_dir, settings)
        jobs = [start(*place.arguments) for _ in range(2)]
        ended = [(*job.communicate(), job.returncode) for job in jobs]
        assert [code for _, _, code in ended] == [0, 0], ended
        assert place.state() == undisturbed
