"""Audits by the job: what kidx verify says, recorded in the catalog, and what a build repairs by that."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.common.audit.accepted import AcceptedFindings
from jobs.common.audit.driver import exit_code
from kidxlib.audit.finding import Verdict
from kidxlib.audit.summary import AuditSummary
from kidxlib.build.plan import Plan
from kidxlib.cli.main import kidx
from kidxlib.format import checkpoint_files, segment_files
from tests.docs.log_dirs import put
from tests.docs.test_catalog_tables import operations
from tests.faults.processes import kill_session
from tests.jobs.archive import Archive, assert_refused
from tests.support.logs import golden
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended, accept_here, build_here, rows, run_here, start, verify_here

_PARTITION = "txn-mixed-0"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The sample with its index and auxiliary files in an index directory, built with an interval of its own; who
    changes it takes a copy.
    """
    archive = Archive(tmp_path_factory.mktemp("audited"))
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    ended = archive.build("--interval-bytes", "512", "--snapshots", "--epochs")
    assert ended.code == 0
    return archive


@pytest.fixture
def archive(built: Archive, tmp_path: Path) -> Iterator[Archive]:
    """It, with an index directory that is put back afterwards: the catalog holds its path."""
    shutil.copytree(built.index_dir, tmp_path / "index")
    yield built
    shutil.rmtree(built.index_dir)
    shutil.move(tmp_path / "index", built.index_dir)


def _verify(archive: Archive, *arguments: str | Path, code: int = 0) -> Ended:
    places = ("--source", f"it={archive.log_dir}", "--index-dir", archive.index_dir)
    ended = verify_here(*places, *arguments)
    assert ended.code == code, ended.err
    return ended


def _spoil(directory: Path) -> list[str]:
    """Break two indexes, a snapshot and the epochs of a partition, and leave one index sparser; names of the first."""
    broken = [
        segment_files.segment_file(84, segment_files.TIME_INDEX_SUFFIX),
        segment_files.segment_file(84, segment_files.TRANSACTION_INDEX_SUFFIX),
        segment_files.segment_file(5891, segment_files.SNAPSHOT_SUFFIX),
        checkpoint_files.LEADER_EPOCH_CHECKPOINT,
    ]
    for name in broken[:3]:
        os.truncate(directory / name, (directory / name).stat().st_size - 12)
    (directory / broken[3]).write_text("0\n1\n0 5\n")
    os.truncate(directory / segment_files.segment_file(84, segment_files.OFFSET_INDEX_SUFFIX), 80)
    return broken


def test_the_job_says_what_the_command_says(tmp_path: Path) -> None:
    """Goal: the same files, starts and gate, on executors and in processes; and nothing beside the source changes.

    Method: a broker's log dir with sound, spoilt, damaged and empty partitions; both print all that they found.
    """
    log_dir = tmp_path / "kafka-logs"
    shutil.copytree(golden.SAMPLES, log_dir)
    sound = run_here(kidx, "build", log_dir, "--in-place", "--snapshots", "--epochs")
    assert sound.code == 0, sound.err
    _spoil(log_dir / _PARTITION)
    shutil.copytree(golden.DATA / "logs" / "flip-v2-codecs-0", log_dir / "flipped-0")
    put(log_dir / "overflow-0", 0, [Batch(), Batch(offset_step=2**31)])
    shutil.copytree(golden.DATA / "logs" / "cut-v1-gzip-0", log_dir / "torn-0")
    (log_dir / "broken-0" / segment_files.segment_file(0, segment_files.LOG_SUFFIX)).mkdir(parents=True)
    (log_dir / "empty-0").mkdir()
    (log_dir / "append-time-0" / f"{segment_files.segment_file(7, segment_files.OFFSET_INDEX_SUFFIX)}").touch()
    (log_dir / checkpoint_files.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nplain-zstd 0 13697\n")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in log_dir.rglob("*")}
    options = ("--deep-iteration", "--require-tiering", "--json")
    job = verify_here("--source", log_dir, *options)
    command = run_here(kidx, "verify", log_dir, *options)
    assert job.code == command.code == 3, job.err + command.err
    theirs, ours = command.json, job.json
    assert {name: ours[name] for name in theirs} == theirs
    assert ours.keys() - theirs.keys() == {"audit_id", "catalog", "accepted"}
    assert {each["verdict"] for each in ours["files"]} == {"identical", "whole", "safe", "torn", "broken"}
    assert {each["action"] for each in ours["startup"]} >= {"load", "rebuild", "truncate", "split"}
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in log_dir.rglob("*")} == before


def test_what_was_built_is_identical_by_the_catalogs_interval(archive: Archive) -> None:
    """The interval is the catalog's of each segment, unless an option says one, with which indexes are safe; and index
    files are where the catalog says they are.

    One commit an audit; one that is run again with the same time replaces itself.
    """
    now = ("--now", "2026-11-21T00:00:00Z")
    catalog = ("--source", f"it={archive.log_dir}", "--catalog", archive.catalog, "--json")
    ended = verify_here(*catalog, "--fail-on", "safe", *now)
    assert ended.code == 0, ended.err
    found = ended.json
    assert {each["verdict"] for each in found["files"]} == {"identical", "whole"}
    explicit = ("--interval-bytes", "4096", "--catalog", archive.catalog, "--json")
    assert {each["verdict"] for each in _verify(archive, *explicit).json["files"]} == {"identical", "whole", "safe"}
    again = verify_here(*catalog, *now).json
    assert again["audit_id"] == found["audit_id"]
    kept = rows(archive.catalog, f"SELECT * FROM findings WHERE audit_id = '{found['audit_id']}'")
    columns = (
        *("source", "topic", "partition", "base_offset", "file", "verdict", "path"),
        *("action", "kept_bytes", "lost_bytes", "lost_batches", "lost_records"),
    )
    assert sorted([str(row[name]) for name in columns] for row in kept) == sorted(
        [str(each[name]) for name in columns] for each in found["files"]
    )
    assert operations(archive.catalog / "findings")[-3:] == ["WRITE"] * 3


def test_a_repair_goes_by_the_last_audit(archive: Archive, tmp_path: Path) -> None:
    """What it found broken is as before, to the byte; all else keeps its bytes and times, and the catalog its rows."""
    directory = archive.index_dir / _PARTITION
    places = ("--source", f"it={archive.log_dir}", "--catalog", archive.catalog, "--repair")
    sound = {path: path.read_bytes() for path in archive.index_dir.rglob("*") if path.is_file()}
    broken = [directory / name for name in _spoil(directory)]
    shown = _verify(archive, "--catalog", archive.catalog, code=3).out.splitlines()
    command = run_here(kidx, "verify", archive.log_dir, "--index-dir", archive.index_dir, "--interval-bytes", "512")
    assert shown[1:-2] == command.out.splitlines()[1:], "but for the title, what was audited, and where it is recorded"
    assert shown[-2] == f"source:  it ({archive.log_dir})"
    safe = directory / segment_files.segment_file(84, segment_files.OFFSET_INDEX_SUFFIX)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sound if path not in broken}
    looked_at = ("--source", "it", "--segment", f"{_PARTITION}/84", "--reason", "for now", "--apply")
    assert accept_here("--catalog", archive.catalog, *looked_at).code == 0
    metrics = tmp_path / "audit.prom"
    partly = _verify(archive, "--catalog", archive.catalog, "--metrics-file", metrics, code=3).out
    assert f"accepted: {len([path for path in broken if '84.' in path.name])} of these findings" in partly
    assert 'kidx_catalog_files{job="verify_index",source="it",verdict="accepted"} 2.0' in metrics.read_text()
    assert 'kidx_catalog_files{job="verify_index",source="it",verdict="broken"} 2.0' in metrics.read_text()
    assert_refused(build_here(*places, "--index-dir", tmp_path / "other"), "give both the same --index-dir")
    assert_refused(build_here("--source", f"new={archive.log_dir}", *places[2:]), "no audit of source new")
    segments = rows(archive.catalog, "SELECT * FROM segments ORDER BY topic, base_offset")
    ended = build_here(*places, "--index-dir", archive.index_dir, "--json")
    assert ended.code == 0, ended.err
    assert {path: path.read_bytes() for path in broken} == {path: sound[path] for path in broken}
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert {path for path in archive.index_dir.rglob("*") if path.is_file()} == sound.keys()
    now = rows(archive.catalog, "SELECT * FROM segments ORDER BY topic, base_offset")
    differ = [(a, b) for a, b in zip(segments, now, strict=True) if a != b]
    assert [(a["topic"], a["base_offset"], b["offset_index_bytes"]) for a, b in differ] == [("txn-mixed", 84, 80)]
    found = _verify(archive, "--catalog", archive.catalog, "--json").json["files"]
    assert [each["path"] for each in found if each["verdict"] not in ("identical", "whole")] == [str(safe)]
    nothing = build_here(*places, "--index-dir", archive.index_dir)
    assert (nothing.code, nothing.out.splitlines()[0]) == (
        0,
        "repair:      nothing, the last audit found nothing broken",
    )


def test_an_audit_that_was_killed_is_simply_run_again(archive: Archive, exhaustive: bool) -> None:
    """kill -9 of driver, JVM and workers while results are staged; the same command again records one audit."""
    if not exhaustive:
        pytest.skip("takes a minute: --exhaustive")
    places: tuple[str | Path, ...] = ("--source", f"it={archive.log_dir}", "--index-dir", archive.index_dir)
    places += ("--catalog", archive.catalog, "--now", "2026-11-20T00:00:00Z", "--json")
    staging = archive.catalog / "_staging"
    with start(*places, job="verify_index") as job:
        while job.poll() is None and not (staging.is_dir() and any(staging.iterdir())):
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(0.01)
        kill_session(job)
    assert any(staging.iterdir()), "too late: it had ended"
    recorded = "SELECT count(*) AS files FROM findings WHERE audited_at = TIMESTAMP '2026-11-20 00:00:00 UTC'"
    assert rows(archive.catalog, recorded) == [{"files": 0}]
    ended = verify_here(*places)
    assert ended.code == 0, ended.err
    assert rows(archive.catalog, recorded) == [{"files": len(ended.json["files"])}]


def test_partitions_that_have_vanished_are_named_by_audits_and_builds(tmp_path: Path) -> None:
    """Goal: of a directory that is gone both say so, as a topic may have been deleted; a last log that is gone is a
    loss.

    Method: an audit by the catalog before a build has marked what is gone, the build, and another run of both.
    """
    archive = Archive(tmp_path)
    for topic in ("orders", "payments"):
        for base_offset in (0, 3):
            put(archive.log_dir / f"{topic}-0", base_offset, [Batch(), Batch(), Batch()])
    places = ("--source", f"it={archive.log_dir}", "--catalog", archive.catalog, "--json")
    assert archive.build().code == 0
    shutil.rmtree(archive.log_dir / "orders-0")
    (archive.log_dir / "payments-0" / segment_files.segment_file(3, segment_files.LOG_SUFFIX)).unlink()

    found = verify_here(*places)
    assert f"warning: {archive.log_dir}/orders-0: it has 2 segments in the catalog, and no directory: " in found.err
    assert (found.code, found.json["partitions_gone"]) == (3, 1)
    reported = [(row["topic"], row["base_offset"], row["verdict"], row["reason"]) for row in found.json["files"]]
    assert ("payments", 3, "broken", "missing") in reported, "its index is in the directory that the catalog names"

    built = archive.build()
    assert f"warning: missing: {archive.log_dir}/orders-0: all its 2 segments are missing: the topic was" in built.err
    assert f"warning: lost: {archive.log_dir}/payments-0: its last segment is missing, from offset 3 on," in built.err
    assert (built.code, built.json["partitions_gone"], built.json["partitions_cut_off"]) == (3, 1, 1)
    again = archive.build("--dry-run")
    assert (again.code, again.err.count("warning: "), again.json["partitions_gone"]) == (0, 0, 0)


def test_options_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    """Before Spark is started."""
    assert_refused(verify_here("--source", tmp_path / "no"), "No such file or directory; expected a Kafka log dir")
    assert_refused(verify_here("--catalog", "a", "--database", "b"), "--catalog and --database: give one of them")
    assert_refused(
        verify_here("--sample", "--index-dir", tmp_path / "no"),
        "no such directory; expected an index directory that a build has",
    )
    within = golden.SAMPLES / "catalog"
    assert_refused(verify_here("--source", golden.SAMPLES, "--catalog", within), "one is inside the other")


def test_the_exit_code_counts_what_is_not_accepted(tmp_path: Path) -> None:
    """Of files, and of what a broker would drop in their partitions. Where nothing was looked at, that is a problem."""
    summary = AuditSummary()
    summary.files |= {(".log", "broken"): 2, (".index", "broken"): 1, (".index", "identical"): 5}
    summary.add_action("delete", 3, 0, 0, 0, 0)
    some = AcceptedFindings({(".log", "broken"): 1}, {})
    assert exit_code(Plan(), some.taken_from(summary), Verdict.BROKEN) == 3
    every = AcceptedFindings({(".log", "broken"): 2, (".index", "broken"): 1}, {"delete": 3})
    assert exit_code(Plan(), every.taken_from(summary), Verdict.BROKEN) == 0
    assert exit_code(Plan(empty={"b": tmp_path}), every.taken_from(summary), Verdict.BROKEN) == 3
    assert exit_code(Plan(unlistable={("a", "t", 0)}), every.taken_from(summary), Verdict.BROKEN) == 3
