"""The build job on a real cluster: a master, a worker and executors of their own, the modules sent along."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kidxlib.command import ExitCode
from tests.faults.trees import indexes, kafkas_indexes, link_samples
from tests.support.build_job import Ended, build, rows
from tests.support.cluster import NODE, Cluster, cluster


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log dirs: one that the worker's node sees, one that is not there, one whose mount is missing there, and one of
    which a part is missing.
    """
    folder = tmp_path_factory.mktemp("cluster")
    first = link_samples(folder / "seen" / "kafka-logs", 1)
    for name in ("absent", "empty", "other"):
        shutil.copytree(first, folder / name / "kafka-logs")
    return folder


@pytest.fixture(scope="module")
def spark_cluster(root: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    if not pytestconfig.getoption("exhaustive"):
        pytest.skip("with --exhaustive: takes minutes")
    with cluster(
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


@pytest.mark.parametrize(("how", "why"), [("absent", "No such file or directory"), ("empty", "an empty folder")])
def test_an_executor_that_does_not_see_a_source_is_named(
    how: str, why: str, root: Path, spark_cluster: Cluster, tmp_path: Path
) -> None:
    """The driver sees the folder, the executor's node does not: one line with the node and the folder, nothing done."""
    source = root / how / "kafka-logs"
    ended = build_on(spark_cluster, source, tmp_path)
    assert (ended.code, ended.out) == (ExitCode.USAGE, ""), ended
    (line,) = [line for line in ended.err.splitlines() if "segments, " not in line and line.strip()]
    assert line.startswith(f"error: executor {NODE} does not see the source {source} ({why}); mount it"), ended
    assert indexes(tmp_path) == {} and rows(tmp_path / "catalog", "SELECT * FROM segments") == []


def test_an_executor_that_has_another_folder_at_the_sources_path_is_noticed(
    root: Path, spark_cluster: Cluster, tmp_path: Path
) -> None:
    """Logs that the driver sees and the executor does not were not deleted meanwhile: one line, and no row."""
    folder = root / "other" / "kafka-logs" / "txn-mixed-0"
    ended = build_on(spark_cluster, folder.parent, tmp_path)
    assert (ended.code, ended.out) == (ExitCode.USAGE, ""), ended
    (line,) = [line for line in ended.err.splitlines() if "segments, " not in line and line.strip()]
    assert line.startswith(f"error: an executor does not find {folder}/"), ended
    assert rows(tmp_path / "catalog", "SELECT * FROM segments") == []
