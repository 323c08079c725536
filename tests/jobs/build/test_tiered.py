"""Repairs of tiered storage on Spark: what `kidx build --tiered` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.local_layout import STORAGE_DIRECTORY
from tests.docs.pages import PROJECT
from tests.jobs.archive import assert_refused
from tests.support.spark.jobs import BuildHere, build_here, kidx_build_here
from tests.support.tiered_sites import Site

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")


def _repaired(build: BuildHere, directory: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What is said, but for paths, and what is in the bucket then."""
    site = _SAMPLE.copy(directory)
    segment = next(each for each in site.segments("payments") if TRANSACTION_INDEX_SUFFIX in each.objects())
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    segment.object(OFFSET_INDEX_SUFFIX).unlink()
    where = ("--tiered", site.bucket, "--tiered-metadata", site.log_dir, "--index-dir", directory / "mirror")
    run = build(*where, "--apply", "--json")
    assert run.code == 0, run.err
    found = [{key: value for key, value in each.items() if key != "object"} for each in run.json["objects"]]
    contents = {str(path.relative_to(site.bucket)): path.read_bytes() for path in site.bucket.rglob("*.*")}
    return {"objects": found, "made": run.json["made"], "left": run.json["left"]}, contents


def test_the_job_does_what_the_command_does(tmp_path: Path) -> None:
    job = _repaired(build_here, tmp_path / "job")
    assert job == _repaired(kidx_build_here, tmp_path / "command")
    assert {each["outcome"] for each in job[0]["objects"]} == {"put"}


def test_it_keeps_no_catalog(tmp_path: Path) -> None:
    where = ("--tiered", _SAMPLE.bucket, "--tiered-metadata", _SAMPLE.log_dir, "--index-dir", tmp_path / "mirror")
    assert_refused(build_here(*where, "--database", "x"), "leave out --database")
