"""Audits that are recorded in a catalog: where files are and how they were built, and what a build repairs by that."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kidxlib.audit.finding import Verdict
from kidxlib.audit.summary import ActionCounts, AuditSummary
from kidxlib.format import checkpoint_files, segment_files
from kidxlib.indexing.listing import UnlistableDirectory
from kidxlib.indexing.plan import Plan
from kidxlib.operations.audit.audit import audit_exit_code
from kidxlib.operations.audit.audit_summary import AcceptedAuditFindings
from tests.conftest import Say
from tests.docs.log_dirs import put
from tests.docs.test_catalog_tables import operations
from tests.faults import processes
from tests.jobs.archive import Archive, assert_refused
from tests.support.audits import spoil
from tests.support.files import flip
from tests.support.logs import golden
from tests.support.logs.batches import Batch
from tests.support.spark.jobs import Ended, kidx_build_here, kidx_here, rows

_PARTITION = "txn-mixed-0"
_KILLS, _KILLS_EXHAUSTIVE = 2, 20


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


def _verify_here(*arguments: str | Path) -> Ended:
    return kidx_here("verify", *arguments)


def _verify(archive: Archive, *arguments: str | Path, code: int = 0) -> Ended:
    places = ("--source", f"it={archive.log_dir}", "--index-dir", archive.index_dir)
    ended = _verify_here(*places, *arguments)
    assert ended.code == code, ended.err
    return ended


def test_what_was_built_is_identical_by_the_catalogs_interval(archive: Archive) -> None:
    """The interval is the catalog's of each segment, unless an option says one, with which indexes are safe; and index
    files are where the catalog says they are.

    One commit an audit. One that is run again for the same time replaces itself.
    """
    now = ("--now", "2026-11-21T00:00:00Z")
    catalog = ("--source", f"it={archive.log_dir}", "--catalog", archive.catalog, "--json")
    ended = _verify_here(*catalog, "--fail-on", "safe", *now)
    assert ended.code == 0, ended.err
    found = ended.json
    assert {each["verdict"] for each in found["files"]} == {"identical", "whole"}
    explicit = ("--interval-bytes", "4096", "--catalog", archive.catalog, "--json")
    assert {each["verdict"] for each in _verify(archive, *explicit).json["files"]} == {"identical", "whole", "safe"}
    again = _verify_here(*catalog, *now).json
    assert again["audit_id"] == found["audit_id"]
    kept = rows(archive.catalog, f"SELECT * FROM findings WHERE audit_id = '{found['audit_id']}'")
    columns = (
        *("source", "topic", "partition", "base_offset", "file", "verdict", "path"),
        *("action", "kept_bytes", "lost_bytes", "lost_batches", "lost_records"),
    )
    assert sorted([str(row[name]) for name in columns] for row in kept) == sorted(
        [str(each[name]) for name in columns] for each in found["files"]
    )
    assert operations(archive.catalog / "findings")[-2:] == ["WRITE", "WRITE"], "the same again is no commit"


def test_an_audit_that_was_killed_is_simply_run_again(
    archive: Archive, rng: random.Random, exhaustive: bool, say: Say
) -> None:
    """Kill -9 of the command and its processes at any moment: all of its findings are recorded, or none; the same
    command again records one audit.
    """
    source = ("--source", f"it={archive.log_dir}")
    asked = (*source, "--catalog", archive.catalog, "--processes", "2", "--now", "2026-11-20T00:00:00Z", "--json")
    count = "SELECT count(*) AS files FROM findings WHERE audited_at = TIMESTAMP '2026-11-20T00:00:00Z'"
    begin = time.monotonic()
    undisturbed = processes.kidx("verify", *source, "--catalog", archive.catalog, "--json")
    expected, seconds = len(undisturbed.json["files"]), time.monotonic() - begin
    left: Counter[str] = Counter()
    for _ in range(_KILLS_EXHAUSTIVE if exhaustive else _KILLS):
        process = processes.start_kidx("verify", *asked)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(seconds / 2, 1.2 * seconds))
        processes.kill_session(process)
        process.communicate()
        [found] = rows(archive.catalog, count)
        assert found["files"] in (0, expected)
        left[f"{'killed' if process.returncode else 'ended'}, {found['files']} findings"] += 1
    ended = _verify_here(*asked)
    assert ended.code == 0, ended.err
    assert rows(archive.catalog, count) == [{"files": expected}]
    say("; ".join(f"{what}: {times}" for what, times in left.most_common()))


def test_a_repair_goes_by_the_last_audit(archive: Archive, tmp_path: Path) -> None:
    """What it found broken is as before, to the byte; all else keeps its bytes and times, and the catalog its rows."""
    directory = archive.index_dir / _PARTITION
    places = ("--source", f"it={archive.log_dir}", "--catalog", archive.catalog, "--repair")
    sound = {path: path.read_bytes() for path in archive.index_dir.rglob("*") if path.is_file()}
    broken = [directory / name for name in spoil(directory)]
    shown = _verify(archive, "--catalog", archive.catalog, code=3).out.splitlines()
    command = kidx_here("verify", archive.log_dir, "--index-dir", archive.index_dir, "--interval-bytes", "512")
    said = [line for line in shown[1:-2] if not line.startswith("read: ")]
    assert said == command.out.splitlines()[1:], "but for the title, what was audited, and where it is recorded"
    assert shown[-2] == f"source:  it ({archive.log_dir})"
    safe = directory / segment_files.segment_file(84, segment_files.OFFSET_INDEX_SUFFIX)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in sound if path not in broken}
    looked_at = ("--source", "it", "--segment", f"{_PARTITION}/84", "--reason", "for now", "--apply")
    assert kidx_here("accept", "--catalog", archive.catalog, *looked_at).code == 0
    metrics = tmp_path / "audit.prom"
    partly = _verify(archive, "--catalog", archive.catalog, "--metrics-file", metrics, code=3).out
    accepted = [path for path in broken if "84." in path.name]
    assert f"accepted: {len(accepted)} findings, not counted above;" in partly
    assert [f"  it: {_PARTITION}/84 {path.suffix}: broken: " in partly for path in accepted] == [True] * len(accepted)
    assert 'kidx_catalog_files{job="verify_index",source="it",verdict="accepted"} 2.0' in metrics.read_text()
    assert 'kidx_catalog_files{job="verify_index",source="it",verdict="broken"} 2.0' in metrics.read_text()
    assert_refused(kidx_build_here(*places, "--index-dir", tmp_path / "other"), "give both the same --index-dir")
    assert_refused(kidx_build_here("--source", f"new={archive.log_dir}", *places[2:]), "no audit of source new")
    segments = rows(archive.catalog, "SELECT * FROM segments ORDER BY topic, base_offset")
    ended = kidx_build_here(*places, "--index-dir", archive.index_dir, "--json")
    assert ended.code == 0, ended.err
    assert {path: path.read_bytes() for path in broken} == {path: sound[path] for path in broken}
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert {path for path in archive.index_dir.rglob("*") if path.is_file()} == sound.keys()
    now = rows(archive.catalog, "SELECT * FROM segments ORDER BY topic, base_offset")
    differ = [(a, b) for a, b in zip(segments, now, strict=True) if a != b]
    assert [(a["topic"], a["base_offset"], b["offset_index_bytes"]) for a, b in differ] == [("txn-mixed", 84, 80)]
    found = _verify(archive, "--catalog", archive.catalog, "--json").json["files"]
    assert [each["path"] for each in found if each["verdict"] not in ("identical", "whole")] == [str(safe)]
    nothing = kidx_build_here(*places, "--index-dir", archive.index_dir)
    assert nothing.code == 0
    assert nothing.out.splitlines()[0] == "repair:      nothing, the last audit found nothing broken"


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

    found = _verify_here(*places)
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


def test_an_audit_that_is_run_again_replaces_its_own_findings(archive: Archive) -> None:
    """In one commit: what was found before and is not found now goes, and what is another is as now."""
    source = ("--source", f"it={archive.log_dir}", "--catalog", archive.catalog)
    asked = (*source, "--now", "2026-11-22T00:00:00Z", "--json")
    sound = _verify_here(*asked).json
    spoil(archive.index_dir / _PARTITION)
    for directory in (archive.index_dir, archive.log_dir):  # a broker's own is looked at, too
        (directory / "plain-zstd-0" / checkpoint_files.LEADER_EPOCH_CHECKPOINT).unlink()
    found = _verify_here(*asked).json
    assert found["audit_id"] == sound["audit_id"] and found["files"] != sound["files"]
    kept = rows(archive.catalog, f"SELECT * FROM findings WHERE audit_id = '{found['audit_id']}'")
    assert sorted((row["path"], row["verdict"]) for row in kept) == sorted(
        (each["path"], each["verdict"]) for each in found["files"]
    )
    said = DeltaTable(archive.catalog / "findings").history(1)[0]
    assert said["kidx.operation"] == "merge" and said["operationMetrics"]["num_target_rows_deleted"] > 0


def test_options_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    """Before anything is listed."""
    catalog = ("--catalog", tmp_path / "catalog")
    assert_refused(_verify_here(), "no DIR: name the log dir, or one partition's directory, to audit")
    assert_refused(_verify_here("--source", tmp_path), "--source: only for an audit with a catalog; name it with --cat")
    assert_refused(_verify_here("--now", "0", tmp_path), "--now: only for an audit with a catalog")
    assert_refused(_verify_here(tmp_path, "--source", "x", *catalog), f"DIR {tmp_path} and --source: give one of them")
    assert_refused(_verify_here(golden.SAMPLES, *catalog), f"--catalog {tmp_path / 'catalog'}: no catalog there")
    (tmp_path / "inside" / "segments" / "_delta_log").mkdir(parents=True)
    assert_refused(_verify_here(tmp_path, "--catalog", tmp_path / "inside"), "one is inside the other")
    assert_refused(
        _verify_here(golden.SAMPLES, "--index-dir", tmp_path / "no"),
        "no such directory; expected an index directory that a build has",
    )


def test_what_is_accepted_changes_no_start(tmp_path: Path) -> None:
    """What a broker would do as it starts is shown as before: the log is as damaged as it was."""
    shutil.copytree(golden.SAMPLES / _PARTITION, tmp_path / "logs" / _PARTITION)
    log = tmp_path / "logs" / _PARTITION / segment_files.segment_file(84, segment_files.LOG_SUFFIX)
    flip(log, log.stat().st_size // 2)
    catalog = ("--catalog", tmp_path / "catalog")
    audited = ("--source", f"it={tmp_path / 'logs'}", *catalog)
    kidx_build_here(*audited, "--index-dir", tmp_path / "index")

    def start() -> list[str]:
        lines = _verify_here(*audited).out.splitlines()
        [begin] = [number for number, line in enumerate(lines) if line.startswith("a broker's next start")]
        return lines[begin : begin + 8]

    before = start()
    accepted = ("--source", "it", "--segment", f"{_PARTITION}/84", "--reason", "seen", "--apply")
    assert kidx_here("accept", *catalog, *accepted).code == 0
    assert start() == before and any("truncate" in line for line in before), before


def test_the_exit_code_counts_what_is_not_accepted(tmp_path: Path) -> None:
    """Of files, and of what a broker would drop in their partitions. Where nothing was looked at, that is a problem."""
    summary = AuditSummary()
    summary.files |= {(".log", "broken"): 2, (".index", "broken"): 1, (".index", "identical"): 5}
    summary.actions["delete"] = ActionCounts(3)
    some = AcceptedAuditFindings({(".log", "broken"): 1}, {})
    assert audit_exit_code(Plan(), some.taken_from(summary), Verdict.BROKEN) == 3
    every = AcceptedAuditFindings({(".log", "broken"): 2, (".index", "broken"): 1}, {"delete": 3})
    assert audit_exit_code(Plan(), every.taken_from(summary), Verdict.BROKEN) == 0
    assert audit_exit_code(Plan(empty={"b": tmp_path}), every.taken_from(summary), Verdict.BROKEN) == 3
    away = {("a", "t", 0): UnlistableDirectory("/a/t-0", "Input/output error")}
    assert audit_exit_code(Plan(unlistable=away), every.taken_from(summary), Verdict.BROKEN) == 3
