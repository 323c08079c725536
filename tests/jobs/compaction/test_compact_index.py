"""Compaction on Spark: what it does is what `kidx compact` does, and a kill is no harm."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from kidxlib.catalog.tables import TABLES
from kidxlib.format.segment_files import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, segment_file
from tests.faults.processes import kill_session, while_it_runs
from tests.jobs.archive import Archive, Copies
from tests.support.files import tree
from tests.support.logs import golden
from tests.support.spark.histories import assert_same_histories
from tests.support.spark.jobs import RunHere, compact_here, kidx_compact_here, rows, start, through_a_metastore

DEADLINE_SECONDS: Final = 300.0
_SPARSE: Final = 65536
_NOW: Final = "2026-11-22T00:00Z"
#: What is another in each run.
_OF_THE_RUN: Final = ("build_id", "seconds", "scan_seconds", "log_mtime_ns", "log_mtime", "log_inode", "log_versions")

Tree = dict[str, bytes]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    """The sample with an index directory; who compacts it takes a copy."""
    archive = Archive(tmp_path_factory.mktemp("compact") / "archive", compact=compact_here)
    shutil.copytree(golden.SAMPLES, archive.log_dir)
    archive.build("--now", _NOW)
    return Copies(archive)


def test_each_engine_does_the_same(copies: Copies, tmp_path: Path, exhaustive: bool) -> None:
    """Sparser, trimmed and without what is left; then by rules, once a segment has come and another is gone, and the
    tables; then denser again: after each step all files, tables and JSON objects are equal. With `--exhaustive` Spark
    commits, too: commits of a build by Spark are compared at each run (tests/jobs/build/test_engines.py).
    """
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "[[rule]]\nmatch = 'plain-.*|txn-.*'\nindex.interval.bytes = 1048576\n"
        "[tables]\ngone.segments.older.than = '1ms'\nbuilds.older.than = '1ms'\n"
    )
    steps: tuple[tuple[str | Path, ...], ...] = (
        ("--interval-bytes", str(_SPARSE), "--trim", "--orphans"),
        ("--policy", policy, "--orphans", "--tables"),
        ("--interval-bytes", "4096"),
    )
    engines: dict[str, RunHere] = {"kidx": kidx_compact_here, "spark": compact_here}
    if exhaustive:
        engines["spark-commits"] = through_a_metastore(compact_here)
    found = {
        name: _history(Archive(copies.archive.directory, compact=run), copies, steps, tmp_path / name)
        for name, run in engines.items()
    }
    assert [name for name in engines if found[name] != found["kidx"]] == []
    for table in TABLES:
        histories = {
            name: [DeltaTable(tmp_path / name / str(step) / table.name) for step in range(len(steps))]
            for name in engines
        }
        assert_same_histories(table, histories.pop("kidx"), histories, _OF_THE_RUN)


def _history(
    archive: Archive, copies: Copies, steps: tuple[tuple[str | Path, ...], ...], kept: Path
) -> list[tuple[Tree, dict[str, Any]]]:
    """Files and what was printed after each step, of which it keeps the catalog."""
    copies.restore()
    padded = archive.index_dir / "compacted-0" / segment_file(0, OFFSET_INDEX_SUFFIX)
    content = padded.read_bytes()
    padded.unlink()
    padded.write_bytes(content + bytes(8000))
    (archive.index_dir / "compacted-0" / segment_file(3, OFFSET_INDEX_SUFFIX)).write_bytes(b"left")
    found: list[tuple[Tree, dict[str, Any]]] = []
    for number, asked in enumerate(steps):
        if number == 1:
            (archive.log_dir / "txn-mixed-0" / segment_file(10**6, LOG_SUFFIX)).touch()
            shutil.rmtree(archive.log_dir / "append-time-0")
            archive.build("--now", _NOW)
        if number == 0:
            found.append(({}, archive.compact(*asked, "--now", _NOW)))
        done = archive.compact(*asked, "--now", _NOW, "--apply")
        shown = {name: value for name, value in done.items() if name != "tables"}
        shown["tables"] = [(each["table"], each["expired_rows"], each["after"]["rows"]) for each in done["tables"]]
        found.append((tree(archive.index_dir), shown))
        shutil.copytree(archive.catalog, kept / str(number))
    changed = [len(each[1].get("changes", ())) for each in found]
    assert min(changed) > 0 and found[-2][1]["tables"][0] == ("segments", 1, 12), changed
    return found


def _segments(archive: Archive) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["topic"], row["base_offset"]): row for row in rows(archive.catalog, "SELECT * FROM segments")}


@pytest.mark.exhaustive("takes drivers of its own; tests/faults kills kidx amid a compaction")
def test_a_job_that_is_killed_is_finished_by_the_next(copies: Copies) -> None:
    copies.restore()
    archive = copies.archive
    asked = ("--catalog", archive.catalog, "--interval-bytes", str(_SPARSE), "--apply", "--json")
    before = tree(archive.index_dir)
    archive.compact(*asked[2:5])
    after, rows_after = tree(archive.index_dir), _segments(archive)
    for replaced in (1, 4, 8):
        copies.restore()
        job = start(*asked, job="compact_index")
        try:
            while_it_runs(job, partial(_replaced, archive, before, replaced), DEADLINE_SECONDS)
        finally:
            kill_session(job)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.communicate(timeout=DEADLINE_SECONDS)
        assert job.returncode == -signal.SIGKILL
        for path, content in tree(archive.index_dir).items():
            assert Path(path).name.startswith(".kidx-") or content in (before[path], after[path])
        archive.compact(*asked[2:5])
        found = {path: content for path, content in tree(archive.index_dir).items() if ".kidx-" not in path}
        assert found == after
        assert _segments(archive) == rows_after


def _replaced(archive: Archive, before: Tree, count: int) -> bool | None:
    changed = 0
    for path, content in before.items():
        with contextlib.suppress(FileNotFoundError):
            changed += (archive.index_dir / path).stat().st_size != len(content)
    return changed >= count or None
