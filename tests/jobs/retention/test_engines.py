"""Spark and kidx plan and apply alike: the same rows in the catalog, the same files left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable

from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.segments import SEGMENTS
from tests.jobs.archive import Archive, Copies
from tests.support.logs import golden
from tests.support.spark.histories import assert_same_histories
from tests.support.spark.jobs import RunHere, kidx_retention_here, retention_here, through_a_metastore

#: What is another in each run.
_OF_THE_RUN: Final = ("plan_id", "planned_at", "deleted_at")
#: Of the sample, what is older than this goes: nothing of it is of the three days around.
_OLDEST: Final = datetime(2026, 11, 19, tzinfo=UTC)
_POLICIES: Final = """\
[policy.hours]
retention.ms = 10000
[policy.small]
retention.bytes = 200000
[[policy.small.topic]]
match = "compacted"
cleanup.policy = "delete"
"""
_POLICY: Final = """\
cleanup.policy = "delete"
retention.ms = {retention_ms}
retention.bytes = -1
remote.storage.enable = false
"""


def test_each_engine_plans_and_applies_as_the_other(tmp_path: Path, exhaustive: bool) -> None:
    """Policies compared, time indexes that say something else, a plan for Kafka's tools, one that is applied, and one
    after it; executors plan what the driver does not, as it opens each time index. With `--exhaustive` Spark commits,
    too: commits of a build by Spark are compared at each run (tests/jobs/build/test_engines.py).
    """
    archive = Archive(tmp_path / "archive")
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    archive.build()
    os.truncate(archive.index_dir / "compacted-0" / f"{16431:020}.timeindex", 0)
    (tmp_path / "policies.toml").write_text(_POLICIES)
    age = datetime.now(UTC) - _OLDEST
    (tmp_path / "policy.toml").write_text(_POLICY.format(retention_ms=age // timedelta(milliseconds=1)))
    copies = Copies(archive)
    runs: dict[str, RunHere] = {"kidx": kidx_retention_here, "spark": retention_here}
    if exhaustive:
        runs["spark-commits"] = through_a_metastore(retention_here)
    said = {}
    for name, run in runs.items():
        copies.restore()
        said[name] = _history(archive, run, tmp_path)
        shutil.copytree(archive.catalog, tmp_path / name)
        said[name]["files"] = sorted(str(path.relative_to(archive.directory)) for path in _files(archive))
    assert [name for name in runs if said[name] != said["kidx"]] == []
    assert said["kidx"]["applied"]["by_outcome"] == {"deleted": 2, "last": 1}
    for table in (RETENTION_PLANS, SEGMENTS):
        by_kidx, *by_spark = (DeltaTable(tmp_path / name / table.name) for name in runs)
        assert by_kidx.to_pyarrow_table(columns=["topic"]).num_rows
        found = {name: [each] for name, each in zip([*runs][1:], by_spark, strict=True)}
        assert_same_histories(table, [by_kidx], found, _OF_THE_RUN)


def _history(archive: Archive, run: RunHere, directory: Path) -> dict[str, Any]:
    """What each run says, but for its id and its time."""
    catalog = ("--catalog", archive.catalog)
    policy = ("--policy", directory / "policy.toml")
    now = ("--now", "2026-11-21T01:32:19Z")
    asked: dict[str, Callable[[], Any]] = {
        "compared": lambda: run(*catalog, "--policy", directory / "policies.toml", "--from-files", *now, "--json"),
        "planned": lambda: run(*catalog, *policy, "--delete-records-json", directory / "delete.json", "--json"),
    }
    said: dict[str, Any] = {name: _ended(ask) for name, ask in asked.items()}
    said["delete_records"] = (directory / "delete.json").read_text()
    plan_id = run(*catalog, *policy, "--json").json["plan_id"]
    said["applied"] = _ended(lambda: run(*catalog, "--apply", "--plan", plan_id, "--delete-delay", "0s", "--json"))
    said["after"] = _ended(lambda: run(*catalog, "--what-if", *now, "--include-internal", "--json"))
    return said


def _ended(ask: Callable[[], Any]) -> dict[str, Any]:
    ended = ask()
    said: dict[str, Any] = {**ended.json, "code": ended.code}
    return {name: value for name, value in said.items() if name not in _OF_THE_RUN}


def _files(archive: Archive) -> list[Path]:
    roots = (archive.log_dir, archive.index_dir)
    return [path for root in roots for path in root.rglob("*") if path.is_file()]
