"""Repairs of tiered storage on Spark: what `kidx repair-tiered` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from kidxlib.commands.repair_tiered import repair_tiered
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from tests.docs.pages import PROJECT
from tests.support.remote_rows import catalog_at, remote_rows, without_run
from tests.support.spark.jobs import BuildHere, Ended, repair_tiered_here, run_here
from tests.support.tiered_sites import Site

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")


def _on_this_machine(*arguments: str | Path) -> Ended:
    return run_here(repair_tiered, *arguments)


def _repaired(build: BuildHere, directory: Path, *options: object) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What is said, but for paths, and what is in the bucket then."""
    site = _SAMPLE.copy(directory)
    segment = next(each for each in site.segments("payments") if TRANSACTION_INDEX_SUFFIX in each.objects())
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    segment.object(OFFSET_INDEX_SUFFIX).unlink()
    where = (f"it={site.bucket}", "--tiered-metadata", site.log_dir, "--index-dir", directory / "mirror")
    run = build(*where, "--apply", "--json", *options)
    assert run.code == 0, run.err
    found = [{key: value for key, value in each.items() if key != "object"} for each in run.json["objects"]]
    contents = {str(path.relative_to(site.bucket)): path.read_bytes() for path in site.bucket.rglob("*.*")}
    return {"objects": found, "made": run.json["made"], "left": run.json["left"]}, contents


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
