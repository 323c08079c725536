"""Who lists is decided by what there is, and by what the catalog knows before anything is listed."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kidxlib.operations.build.from_options import BuildOptions, build_request
from kidxlib.operations.build.planning.listed_plan import listed_plan
from kidxlib.operations.build.request import BuildRequest
from kidxlib.run.known_topics import MetadataOptions
from kidxlib.run.project import SETTINGS_FILE
from tests.support.logs.random_logs import write_random_log
from tests.support.spark.jobs import kidx_build_here


@pytest.fixture
def request_of_two(tmp_path: Path, rng: random.Random) -> BuildRequest:
    """Two partitions that a catalog knows."""
    (tmp_path / "disk").mkdir()
    for name in ("a-0", "b-0"):
        write_random_log(tmp_path / "disk" / name, rng)
    source, index_dir, catalog = f"disk={tmp_path / 'disk'}", str(tmp_path / "index"), str(tmp_path / "catalog")
    ended = kidx_build_here("--source", source, "--index-dir", index_dir, "--catalog", catalog)
    assert ended.code in (0, 3), ended.err
    none: dict[str, Any] = dict.fromkeys(
        ("database", "topics", "interval_bytes", "max_index_bytes", "verify_crc", "snapshots", "epochs", "fill_facts")
    )
    no: dict[str, Any] = dict.fromkeys(
        ("sample", "in_place", "accept_truncated", "rebuild", "plan_on_executors", "repair"), False
    )
    options = BuildOptions(
        sources=(source,),
        index_dir=index_dir,
        catalog=catalog,
        metadata=MetadataOptions(),
        settings_file=SETTINGS_FILE,
        now=None,
        **none,
        **no,
    )
    return build_request(options)


def _at_most(request: BuildRequest, segments: int) -> BuildRequest:
    return replace(request, limits=replace(request.limits, driver_listing_max=segments))


def test_it_is_the_command_up_to_a_number_of_segments(request_of_two: BuildRequest) -> None:
    count = listed_plan(request_of_two).segments.num_rows
    assert listed_plan(_at_most(request_of_two, count)).is_listed
    plan = listed_plan(_at_most(request_of_two, count - 1))
    assert not plan.is_listed and [partition.key[1] for partition in plan.partitions] == ["a", "b"]


def test_it_is_workers_where_the_catalog_knows_more(request_of_two: BuildRequest, tmp_path: Path) -> None:
    """Then nothing is listed to find that out; and of another source it knows nothing."""
    count = listed_plan(request_of_two).segments.num_rows
    shutil.rmtree(tmp_path / "disk" / "b-0")
    assert listed_plan(_at_most(request_of_two, count)).is_listed
    left = len(list((tmp_path / "disk" / "a-0").glob("*.log")))
    assert not listed_plan(_at_most(request_of_two, max(left, count - 1))).is_listed
    [source] = request_of_two.sources
    of_another = replace(request_of_two, sources=(replace(source, name="other"),))
    assert listed_plan(_at_most(of_another, left)).is_listed
