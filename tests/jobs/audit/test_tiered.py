"""Audits of tiered storage on Spark: what `kidx verify-tiered` says."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kidxlib.catalog.findings import REMOTE_SEGMENTS
from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.layout import STORAGE_DIRECTORY
from kidxlib.tables.delta_tables import DeltaTables
from tests.docs.pages import PROJECT
from tests.jobs.archive import assert_refused
from tests.support.remote_rows import catalog_at, remote_rows
from tests.support.spark.jobs import run_here, verify_tiered_here
from tests.support.tiered_sites import Site

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")


@pytest.mark.parametrize("level", ["listing", "full"])
def test_the_job_says_what_the_command_says(tmp_path: Path, level: str) -> None:
    site = _SAMPLE.copy(tmp_path)
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
    site, catalog = _SAMPLE.copy(tmp_path), catalog_at(tmp_path / "catalog")
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
    where = (_SAMPLE.bucket, "--tiered-metadata", _SAMPLE.log_dir)
    assert_refused(verify_tiered_here(*where, "--settings", "x"), "--settings: only with --catalog")
