"""The job says of a fleet what `kidx fleet` says, with Spark and without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kidxlib.cli.main import kidx
from tests.support.logs import golden
from tests.support.spark.jobs import RunHere, fleet_here, kidx_build_here, recover_here, run_here, through_a_metastore


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
