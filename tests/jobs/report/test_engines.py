"""Spark and kidx report alike: the same numbers of one catalog, also where Spark answers each question."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from tests.support.report_fleet import NOW_MS, Fleet, build_fleet
from tests.support.spark.jobs import kidx_report_here, report_here, through_a_metastore

#: All that a report says but when and with which version it was made.
_PAGES: Final = ("overview", "health", "retention", "shape", "growth", "replicas", "builds", "timeline", "timelines")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return build_fleet(tmp_path_factory.mktemp("fleet"), random.Random(30))


def test_each_engine_says_what_the_other_does(fleet: Fleet, tmp_path: Path) -> None:
    at = ("--catalog", fleet.catalog, "--now", str(NOW_MS), "--json")
    by_kidx = kidx_report_here(*at)
    by_spark = through_a_metastore(report_here)(*at, "--output", tmp_path / "report.html")
    assert _numbers(by_spark.json) == _numbers(by_kidx.json), "Spark's answers are DataFusion's"
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    session = SparkSession.getActiveSession()
    assert session is not None and session.sql("SHOW VIEWS").collect() == [], "those of a notebook stay its own"


def _numbers(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in (*_PAGES, "retention_partitions", "attention", "sql")}
