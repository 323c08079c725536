"""Audits of tiered storage on Spark: what `kidx verify --tiered` says."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from kidxlib.cli.main import kidx
from kidxlib.format.segment_files import OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kidxlib.log.remote.local_layout import STORAGE_DIRECTORY
from tests.docs.pages import PROJECT
from tests.jobs.archive import assert_refused
from tests.support.spark.jobs import run_here, verify_here
from tests.support.tiered_sites import Site

_SAMPLE: Final = Site(PROJECT / "samples" / "tiered" / STORAGE_DIRECTORY, PROJECT / "samples" / "tiered" / "log-dir")


@pytest.mark.parametrize("level", ["listing", "full"])
def test_the_job_says_what_the_command_says(tmp_path: Path, level: str) -> None:
    site = _SAMPLE.copy(tmp_path)
    segment = next(each for each in site.segments("payments") if TRANSACTION_INDEX_SUFFIX in each.objects())
    segment.object(TRANSACTION_INDEX_SUFFIX).unlink()
    segment.object(OFFSET_INDEX_SUFFIX).write_bytes(b"")
    options = ("--tiered", site.bucket, "--tiered-metadata", site.log_dir, "--level", level, "--json")
    job, command = verify_here(*options), run_here(kidx, "verify", *options)
    assert job.code == command.code == 3, job.err + command.err
    assert job.json == command.json
    assert {each["reason"] for each in job.json["findings"]} >= {"missing"}


def test_options_of_other_audits_are_refused() -> None:
    where = ("--tiered", _SAMPLE.bucket, "--tiered-metadata", _SAMPLE.log_dir)
    assert_refused(verify_here(*where, "--database", "x"), "leave out --database")
