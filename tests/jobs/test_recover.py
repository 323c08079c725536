"""The job says of a fleet what `kidx recover --catalog` says, with Spark and without; and recovers nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kidxlib.cli.main import kidx
from kidxlib.terminal.exit_codes import ExitCode
from tests.support.logs import golden
from tests.support.spark.jobs import RunHere, kidx_build_here, recover_here, run_here, through_a_metastore


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        shutil.copytree(golden.SAMPLES / "txn-mixed-0", tmp_path / name / "txn-mixed-0")
    sources = ("--source", f"a={tmp_path}/a", "--source", f"b={tmp_path}/b")
    ended = kidx_build_here(*sources, "--index-dir", tmp_path / "index", "--catalog", tmp_path / "catalog")
    assert ended.code == 0, ended.err
    return tmp_path / "catalog"


@pytest.mark.parametrize("recover", [recover_here, through_a_metastore(recover_here)])
def test_the_job_says_what_kidx_says(catalog: Path, recover: RunHere) -> None:
    options = ("--catalog", catalog, "--dry-run", "--json")
    by_job, by_kidx = recover(*options), run_here(kidx, "recover", *options)
    assert by_job.code == by_kidx.code == 0, (by_job.err, by_kidx.err)
    assert by_job.json == by_kidx.json
    assert [each["source"] for each in by_job.json["sources"]] == ["a", "b"]


def test_it_recovers_nothing(catalog: Path) -> None:
    ended = recover_here("--catalog", catalog)
    assert ended.code == ExitCode.USAGE and "--catalog: only with --dry-run" in ended.err, ended
