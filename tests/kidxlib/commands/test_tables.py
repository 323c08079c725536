"""`kidx tables`: what it says of tables, what it does with them, and what it refuses."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from kidxlib.catalog.findings import FINDINGS
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.catalog.tables import BUILDS
from kidxlib.terminal.options import SETTINGS_FILE
from tests.jobs.archive import assert_refused
from tests.support.catalog import append_rows
from tests.support.spark.jobs import kidx_tables_here

_OLD: Final = datetime.now(UTC) - timedelta(days=60)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Tables with a file more than they need each, an audit of long ago, and a file that nobody needs."""
    for number in range(2):
        append_rows(tmp_path / "catalog", SEGMENTS, {"topic": "t", "base_offset": number, "build_id": "x"})
        append_rows(tmp_path / "catalog", BUILDS, {"build_id": f"{number}", "started_at": _OLD})
        append_rows(tmp_path / "catalog", FINDINGS, {"audit_id": f"{number}", "audited_at": _OLD, "file": ".log"})
    left = tmp_path / "catalog" / "segments" / "left.parquet"
    left.write_bytes(b"never committed")
    os.utime(left, (time.time() - 8 * 24 * 3600,) * 2)
    return tmp_path / "catalog"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text("[tables]\nfindings.older.than = '30d'\n")
    return path


def _run(catalog: Path, *arguments: str | Path) -> dict[str, dict[str, Any]]:
    ended = kidx_tables_here("--catalog", catalog, "--json", *arguments)
    assert ended.code == 0, ended
    return {table["table"]: table for table in ended.json["tables"]}


def _files(catalog: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in catalog.rglob("*") if path.is_file()}


def test_without_apply_it_says_how_tables_are_and_changes_nothing(catalog: Path, policy: Path) -> None:
    before = _files(catalog)
    found = _run(catalog, "--policy", policy)
    assert _files(catalog) == before
    for name in ("segments", "builds", "findings"):
        state = found[name]["before"]
        assert (state["files"], state["rows"], state["needs_rewrite"]) == (2, 2, True)
        assert found[name]["after"] is None
    assert (found["findings"]["expired_rows"], found["segments"]["vacuumed_files"]) == (2, 1)
    shown = kidx_tables_here("--catalog", catalog)
    assert shown.code == 0 and "tables; nothing was written: --apply does it" in shown.out


def test_each_word_is_done_alone(catalog: Path, policy: Path) -> None:
    left = catalog / "segments" / "left.parquet"
    done = _run(catalog, "expire", "--policy", policy, "--apply")
    assert [done[name]["after"]["rows"] for name in ("findings", "builds", "segments")] == [0, 2, 2]
    assert done["segments"]["after"]["files"] == 2 and left.exists()

    done = _run(catalog, "optimize", "--apply")
    assert [done[name]["after"]["files"] for name in ("builds", "segments")] == [1, 1] and left.exists()
    assert not any(table["after"]["needs_rewrite"] for table in done.values())

    done = _run(catalog, "vacuum", "--apply")
    assert done["segments"]["vacuumed_files"] == 1 and not left.exists()
    before = _files(catalog)
    again = _run(catalog, "--policy", policy, "--apply")
    assert _files(catalog) == before
    assert all(table["before"] == table["after"] for table in again.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("expire",), "expire: give a --policy with [tables]"),
        (("optimize", "--policy", "POLICY"), "--policy: only expire uses it"),
        (("--policy", "nowhere.toml"), "nowhere.toml: cannot read the policies"),
        (("--catalog", "/nowhere/at/all"), "--catalog /nowhere/at/all: no catalog there"),
        (("--catalog", "hdfs://nowhere/at/all"), "kidx keeps catalogs in directories and at s3:// URLs"),
        (("--settings", "SETTINGS"), "vacuum: VACUUM removes files that a run of more than 168 hours still reads"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: tuple[str, ...], message: str, catalog: Path, policy: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "kidx.toml"
    settings.write_text(SETTINGS_FILE.read_text().replace("longest_run_hours = 24", "longest_run_hours = 169"))
    places = {"POLICY": str(policy), "SETTINGS": str(settings)}
    asked = [places.get(argument, argument) for argument in arguments]
    place = () if "--catalog" in asked else ("--catalog", catalog)
    assert_refused(kidx_tables_here(*place, *asked), message)
