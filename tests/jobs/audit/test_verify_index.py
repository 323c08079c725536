"""Audits on Spark: what kidx verify says and records, and what becomes of one that is killed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from kidxlib.catalog.findings import FINDINGS
from kidxlib.cli.main import kidx
from kidxlib.format import checkpoint_files, segment_files
from tests.docs.log_dirs import put
from tests.faults.processes import kill_session, wait_for_end
from tests.jobs.archive import Archive, assert_refused
from tests.support.audits import spoil
from tests.support.logs import golden
from tests.support.logs.batches import Batch
from tests.support.spark.histories import assert_same_histories
from tests.support.spark.jobs import Ended, RunHere, kidx_build_here, rows, run_here, start, verify_here

_kidx_verify_here: Final[RunHere] = partial(run_here, kidx, "verify")


def _nothing(log_dir: Path, index_dir: Path) -> None:
    """The sample, as it is."""


def _harm(log_dir: Path, index_dir: Path) -> None:
    """Index files and logs are damaged, a log is torn, a partition has no segment, and another's directory is gone."""
    spoil(index_dir / "txn-mixed-0")
    shutil.copytree(golden.DATA / "logs" / "flip-v2-codecs-0", log_dir / "flipped-0")
    shutil.copytree(golden.DATA / "logs" / "cut-v1-gzip-0", log_dir / "torn-0")
    (log_dir / "empty-0").mkdir()
    (log_dir / checkpoint_files.RECOVERY_POINT_CHECKPOINT).write_text("0\n2\nplain-zstd 0 13697\nnowhere 0 7\n")
    shutil.rmtree(log_dir / "append-time-0")


def _mend(log_dir: Path, index_dir: Path) -> None:
    """Of the logs all is as it was, but for what is there besides."""
    shutil.copytree(golden.SAMPLES, log_dir, dirs_exist_ok=True)


_STEPS: Final = (_nothing, _harm, _mend)


def test_the_job_says_what_the_command_says(tmp_path: Path) -> None:
    """A broker's log dir with sound, spoilt, damaged and empty partitions; both print all that they found."""
    log_dir = tmp_path / "kafka-logs"
    shutil.copytree(golden.SAMPLES, log_dir)
    sound = run_here(kidx, "build", log_dir, "--in-place", "--snapshots", "--epochs")
    assert sound.code == 0, sound.err
    spoil(log_dir / "txn-mixed-0")
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
    assert ours.keys() - theirs.keys() == {"audit_id", "catalog", "accepted", "accepted_findings"}
    assert {each["verdict"] for each in ours["files"]} == {"identical", "whole", "safe", "torn", "broken"}
    assert {each["action"] for each in ours["startup"]} >= {"load", "rebuild", "truncate", "split"}
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in log_dir.rglob("*")} == before


def test_each_engine_continues_the_others_findings(tmp_path: Path, exhaustive: bool) -> None:
    """After every step of a history, the table is the one that kidx alone wrote, by row and value; and each says the
    same. Each step is audited twice for one time, so the second run replaces the first one's rows.
    """
    log_dir, index_dir = tmp_path / "kafka-logs", tmp_path / "index"
    shutil.copytree(golden.SAMPLES, log_dir)
    writers: dict[str, Sequence[RunHere]] = {
        "kidx": (_kidx_verify_here, _kidx_verify_here),
        "spark-kidx": (verify_here, _kidx_verify_here),
    }
    if exhaustive:
        writers |= {"spark": (verify_here, verify_here), "kidx-spark": (_kidx_verify_here, verify_here)}
    source = ("--source", f"broker={log_dir}")
    for name in writers:
        places = (*source, "--index-dir", index_dir, "--catalog", tmp_path / name)
        built = kidx_build_here(*places, "--snapshots", "--epochs", "--interval-bytes", "512")
        assert built.code == 0, built.err
    histories: dict[str, list[DeltaTable]] = {name: [] for name in writers}
    for number, step in enumerate(_STEPS):
        step(log_dir, index_dir)
        asked = (*source, "--now", f"2026-11-2{number}T10:00:00Z", "--json")
        said = {
            name: [_said(verify(*asked, "--catalog", tmp_path / name)) for verify in turns]
            for name, turns in writers.items()
        }
        for name in writers:
            assert said[name] == said["kidx"], (name, step.__doc__)
            histories[name].append(DeltaTable(tmp_path / name / FINDINGS.name))
            assert histories[name][-1].to_pyarrow_table(columns=["source"]).num_rows > 0, step.__doc__
    assert_same_histories(FINDINGS, histories.pop("kidx"), histories, ())


def _said(ended: Ended) -> tuple[int, dict[str, Any]]:
    assert ended.code in (0, 3), ended.err
    return ended.code, {name: value for name, value in ended.json.items() if name != "catalog"}


@pytest.mark.exhaustive("takes a minute")
def test_an_audit_that_was_killed_is_simply_run_again(tmp_path: Path) -> None:
    """kill -9 of driver, JVM and workers while results are staged; the same command again records one audit."""
    archive = Archive(tmp_path)
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    assert archive.build().code == 0
    places: tuple[str | Path, ...] = ("--source", f"it={archive.log_dir}", "--index-dir", archive.index_dir)
    places += ("--catalog", archive.catalog, "--now", "2026-11-20T00:00:00Z", "--json")
    staging = archive.catalog / "_staging"
    with start(*places, job="verify_index") as job:
        while job.poll() is None and not (staging.is_dir() and any(staging.iterdir())):
            wait_for_end(job.pid, 0.01)
        kill_session(job)
    assert any(staging.iterdir()), "too late: it had ended"
    recorded = "SELECT count(*) AS files FROM findings WHERE audited_at = TIMESTAMP '2026-11-20 00:00:00 UTC'"
    assert rows(archive.catalog, recorded) == [{"files": 0}]
    ended = verify_here(*places)
    assert ended.code == 0, ended.err
    assert rows(archive.catalog, recorded) == [{"files": len(ended.json["files"])}]


def test_options_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    """Before Spark is started."""
    assert_refused(verify_here("--source", tmp_path / "no"), "No such file or directory; expected a Kafka log dir")
    assert_refused(verify_here("--catalog", "a", "--database", "b"), "--catalog and --database: give one of them")
    assert_refused(verify_here("--sample", "--catalog", tmp_path), f"--catalog {tmp_path}: no catalog there")
