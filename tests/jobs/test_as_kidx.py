"""Jobs say, record and do what the commands of kidx do, with Spark and without."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.common.spark import session
from kidxlib.catalog.findings import REMOTE_SEGMENTS
from kidxlib.catalog.retention_plans import RETENTION_PLANS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import TABLES
from kidxlib.cli.main import kidx
from kidxlib.commands.repair_tiered import repair_tiered
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from kidxlib.tables.delta_tables import DeltaTables
from tests.docs.log_dirs import put
from tests.jobs.archive import Archive, Copies, assert_refused
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.logs.batches import Batch
from tests.support.remote_rows import catalog_at, remote_rows, without_run
from tests.support.report_fleet import NOW_MS, Fleet, build_fleet
from tests.support.spark.histories import assert_same_histories
from tests.support.spark.jobs import (
    RunHere,
    accept_here,
    fleet_here,
    forget_here,
    kidx_build_here,
    kidx_report_here,
    kidx_retention_here,
    recover_here,
    repair_tiered_here,
    report_here,
    retention_here,
    rows,
    run_here,
    through_a_metastore,
    verify_tiered_here,
)
from tests.support.tiered_sites import SAMPLE


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        shutil.copytree(golden.SAMPLES / "txn-mixed-0", tmp_path / name / "txn-mixed-0")
    sources = ("--source", f"a={tmp_path}/a", "--source", f"b={tmp_path}/b")
    ended = kidx_build_here(*sources, "--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog")
    assert ended.code == 0, ended.err
    return tmp_path / "catalog"


@pytest.mark.parametrize("fleet", [fleet_here, through_a_metastore(fleet_here)])
def test_the_job_says_what_kidx_says(catalog: Path, fleet: RunHere) -> None:
    options = ("--catalog", catalog, "--json")
    by_job, by_kidx = fleet(*options), run_here(kidx, "fleet", *options)
    assert by_job.code == by_kidx.code == 0, (by_job.err, by_kidx.err)
    assert by_job.json == by_kidx.json
    assert [each["source"] for each in by_job.json["sources"]] == ["a", "b"]


def test_the_old_spelling_says_what_to_type(catalog: Path) -> None:
    options = ("--catalog", catalog, "--dry-run", "--json")
    new = run_here(kidx, "fleet", "--catalog", catalog, "--json")
    for old, now in (
        (recover_here(*options), "./spark-submit.sh fleet"),
        (run_here(kidx, "recover", *options), "kidx fleet --catalog DIR"),
    ):
        assert (old.code, old.json) == (new.code, new.json) and f"is now {now};" in old.err, old


_NOW: Final = ("--now", "2026-11-24T10:00:00Z")
_REASON: Final = ("--reason", "known", "--by", "ann", "--apply")


_kidx_accept_here: Final[RunHere] = partial(run_here, kidx, "accept")
_kidx_forget_here: Final[RunHere] = partial(run_here, kidx, "forget-source")


def _built(directory: Path) -> Path:
    """A catalog of two sources, each with a log that is cut off."""
    for source in ("a", "b"):
        put(directory / source / "orders-0", 0, [Batch(), Batch()])
        log = directory / source / "orders-0" / segment_file(0, LOG_SUFFIX)
        log.write_bytes(log.read_bytes()[:-10])
    sources = ("--source", f"a={directory}/a", "--source", f"b={directory}/b")
    ended = kidx_build_here(*sources, "--index-dir", directory / "index", "--catalog", directory / "catalog")
    assert ended.code == 3, ended.err
    return directory / "catalog"


def _lived(catalog: Path, accept: RunHere, forget: RunHere) -> list[Any]:
    """What is said and recorded as damage is accepted, accepted again, taken back in part, and a source goes."""
    of_catalog = ("--catalog", catalog, "--json")
    told: list[Any] = []
    for ended in (
        accept(*of_catalog, *_NOW),
        accept(*of_catalog, *_NOW, "--topics", "orders", *_REASON),
        accept(*of_catalog, *_NOW, "--topics", "orders", *_REASON),
        accept(*of_catalog, *_NOW, "--source", "b", "--withdraw", "--apply"),
    ):
        assert ended.code == 0, ended.err
        told += [ended.json, rows(catalog, "SELECT * FROM accepted ORDER BY source")]
    for apply in ((), ("--apply",)):
        ended = forget("a", *of_catalog, *apply)
        assert ended.code == 0, ended.err
        told.append(ended.json)
    told += [rows(catalog, f"SELECT count(*) AS rows FROM {table.name}") for table in TABLES]
    return told


def test_the_jobs_do_what_kidx_does_and_start_no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", refused)
    assert _told(tmp_path / "job", accept_here, forget_here) == _told(tmp_path / "kidx")


@pytest.mark.exhaustive("Spark commits a dozen times, two seconds each; tests/jobs/build has builds that it commits")
def test_spark_commits_the_same(tmp_path: Path) -> None:
    accept, forget = through_a_metastore(accept_here), through_a_metastore(forget_here)
    assert _told(tmp_path / "spark", accept, forget) == _told(tmp_path / "kidx")


def _told(directory: Path, accept: RunHere = _kidx_accept_here, forget: RunHere = _kidx_forget_here) -> list[Any]:
    """It, for a catalog of its own; without what its files are called and when they were written."""
    told = _lived(_built(directory), accept, forget)
    return [_plain(each, str(directory)) for each in told]


def _plain(value: Any, directory: str) -> Any:
    if isinstance(value, list):
        return [_plain(each, directory) for each in value]
    if isinstance(value, dict):
        own = ("file_mtime_ns", "file_inode")
        return {name: _plain(each, directory) for name, each in value.items() if name not in own}
    return value.replace(directory, "…") if isinstance(value, str) else value


#: All that a report says but when and with which version it was made.
_PAGES: Final = ("overview", "health", "retention", "shape", "growth", "replicas", "builds", "timeline", "timelines")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return build_fleet(tmp_path_factory.mktemp("fleet"), random.Random(30))


def test_each_engine_says_what_the_other_does(fleet: Fleet, tmp_path: Path) -> None:
    at = ("--catalog", fleet.catalog, "--now", str(NOW_MS), "--json")
    by_kidx = kidx_report_here(*at)
    by_spark = through_a_metastore(report_here)(*at, "--output", tmp_path / "report.html")
    assert _numbers(by_spark.json) == _numbers(by_kidx.json), "Spark's answers are DataFusion's"
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    session = SparkSession.getActiveSession()
    assert session is not None and session.sql("SHOW VIEWS").collect() == [], "those of a notebook stay its own"


def _numbers(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in (*_PAGES, "retention_partitions", "attention", "sql")}


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


@pytest.mark.parametrize("level", ["listing", "full"])
def test_the_job_says_what_the_command_says(tmp_path: Path, level: str) -> None:
    site = SAMPLE.copy(tmp_path)
    segment = next(each for each in site.segments("payments") if TRANSACTION_INDEX_SUFFIX in each.objects())
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    segment.object(OFFSET_INDEX_SUFFIX).write_bytes(b"")
    options = (site.bucket, "--tiered-metadata", site.log_dir, "--level", level, "--json")
    job, command = verify_tiered_here(*options), run_here(kidx, "verify-tiered", *options)
    assert job.code == command.code == 3, job.err + command.err
    assert job.json == command.json
    assert {each["reason"] for each in job.json["findings"]} >= {"missing"}


@pytest.mark.parametrize("level", ["listing", "full"])
def test_both_record_the_same(tmp_path: Path, level: str) -> None:
    """With the same id, so that the second replaces what the first has recorded by what is the same."""
    site, catalog = SAMPLE.copy(tmp_path), catalog_at(tmp_path / "catalog")
    site.segments("payments")[0].object(OFFSET_INDEX_SUFFIX).unlink()
    where = (f"it={site.bucket}", "--tiered-metadata", site.log_dir, "--level", level, "--catalog", catalog)
    options = (*where, "--now", "2026-11-26T00:00Z", "--json")
    job = verify_tiered_here(*options)
    rows, version = remote_rows(catalog), DeltaTables(str(catalog)).version(REMOTE_SEGMENTS)
    command = run_here(kidx, "verify-tiered", *options)
    assert job.code == command.code == 3, job.err + command.err
    assert job.json == command.json
    assert rows == remote_rows(catalog) != []
    assert DeltaTables(str(catalog)).version(REMOTE_SEGMENTS) == version, "nothing is to be committed"
    assert {row["audit_id"] for row in rows} == {job.json["audit_id"]}
    assert [row["start_offset"] for row in rows if row["findings"]] == [0]


def test_options_of_other_audits_are_refused() -> None:
    where = (SAMPLE.bucket, "--tiered-metadata", SAMPLE.log_dir)
    assert_refused(verify_tiered_here(*where, "--settings", "x"), "--settings: only with --catalog")


_on_this_machine: Final[RunHere] = partial(run_here, repair_tiered)


def _repaired(build: RunHere, directory: Path, *options: object) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What is said, but for paths, and what is in the bucket then."""
    site = SAMPLE.copy(directory)
    segment = next(each for each in site.segments("payments") if TRANSACTION_INDEX_SUFFIX in each.objects())
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    segment.object(OFFSET_INDEX_SUFFIX).unlink()
    where = (f"it={site.bucket}", "--tiered-metadata", site.log_dir, "--index-dir", directory / "mirror")
    run = build(*where, "--apply", "--json", *options)
    assert run.code == 0, run.err
    found = [{key: value for key, value in each.items() if key != "object"} for each in run.json["objects"]]
    return {"objects": found, "made": run.json["made"], "left": run.json["left"]}, tree(site.bucket, "*.*")


def test_the_job_does_what_the_command_does(tmp_path: Path) -> None:
    job = _repaired(repair_tiered_here, tmp_path / "job")
    assert job == _repaired(_on_this_machine, tmp_path / "command")
    assert {each["outcome"] for each in job[0]["objects"]} == {"put"}


def test_what_was_put_is_recorded_by_both_alike(tmp_path: Path) -> None:
    """How the bucket stands after it: what is mended is no finding, and the objects are there."""
    found = {}
    for name, build in (("job", repair_tiered_here), ("command", _on_this_machine)):
        directory = tmp_path / name
        catalog = catalog_at(directory / "catalog")
        _repaired(build, directory, "--catalog", catalog)
        rows = remote_rows(catalog)
        found[name] = [without_run(row) for row in rows]
        assert {row["source"] for row in rows} == {"it"}
        [mended] = [row for row in rows if row["repairs"]]
        assert {each["suffix"]: (each["reason"], each["outcome"]) for each in mended["repairs"]} == {
            OFFSET_INDEX_SUFFIX: ("missing", "put"),
            TRANSACTION_INDEX_SUFFIX: ("missing", "put"),
        }
        sizes = {path.name: path.stat().st_size for path in (directory / "bucket").rglob("*-*.*")}
        listed = {each["name"]: each["bytes"] for row in rows for each in row["objects"]}
        assert listed == sizes
        assert not any(row["findings"] for row in rows)
    assert found["job"] == found["command"]
