"""The upkeep of tables through Spark, where delta-rs reaches none: what it sees, and what it changes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from jobs.common.catalog.spark_maintenance import SparkMaintenance
from jobs.common.catalog.spark_tables import SparkTables
from jobs.common.spark.session import session
from kidxlib.catalog.segments import SEGMENTS
from kidxlib.operations.maintenance import table_state
from kidxlib.tables.delta_maintenance import DeltaMaintenance
from kidxlib.tables.delta_tables import DeltaTables
from tests.support.catalog import append_rows
from tests.support.spark.sessions import use_shared_session

_MONTH: Final = 30 * 24 * 3600


def test_it_sees_and_changes_what_delta_rs_does(tmp_path: Path) -> None:
    for number in range(4):
        append_rows(
            tmp_path, SEGMENTS, *({"topic": f"t{number}", "partition": each, "base_offset": 9} for each in range(3))
        )
    driver = DeltaTables(str(tmp_path))
    old, young = (tmp_path / "segments" / f"of-a-killed-commit-{age}.parquet" for age in ("old", "young"))
    for stray in (old, young):
        stray.write_bytes(b"never committed")
    os.utime(old, (time.time() - _MONTH,) * 2)
    use_shared_session()
    with session("test") as spark:
        tables = SparkTables(spark, str(tmp_path))
        by_spark, by_driver = SparkMaintenance(tables), DeltaMaintenance(driver)
        found, expected = (each.files(SEGMENTS).sort_by("path") for each in (by_spark, by_driver))
        assert found.to_pylist() == expected.to_pylist() and found.num_rows == 4
        assert table_state(by_spark, SEGMENTS).needs_rewrite
        by_spark.expire(SEGMENTS, lambda: driver.read(SEGMENTS, ["topic"]).slice(0, 1))
        assert len(set(driver.read(SEGMENTS, ["topic"])["topic"].to_pylist())) == 3
        assert driver.read(SEGMENTS).num_rows == 9
        rows = sorted(map(str, driver.read(SEGMENTS).to_pylist()))
        by_spark.rewrite(SEGMENTS)
        assert by_spark.files(SEGMENTS).num_rows == 1
        assert not table_state(by_spark, SEGMENTS).needs_rewrite
        assert sorted(map(str, driver.read(SEGMENTS).to_pylist())) == rows
        assert [by_spark.vacuum(SEGMENTS, apply=apply) for apply in (False, True)] == [1, 1]
        assert (old.exists(), young.exists()) == (False, True)
        assert by_spark.vacuum(SEGMENTS, apply=False) == 0
        _put_together(tmp_path, by_spark)


def _put_together(catalog: Path, by_spark: SparkMaintenance) -> None:
    """As after a build: all of them in order, or small files alone as Spark takes them, where some are meant."""
    driver = DeltaTables(str(catalog))
    for number in range(4):
        append_rows(catalog, SEGMENTS, {"topic": f"t{number}", "partition": 100, "base_offset": 9})
    rows = sorted(map(str, driver.read(SEGMENTS).to_pylist()))
    paths = by_spark.files(SEGMENTS)["path"].to_pylist()
    for are_all in (False, True):
        meant = paths if are_all else paths[1:]
        version = driver.version(SEGMENTS)
        assert by_spark.compact(SEGMENTS, list(map(str, meant)))
        assert by_spark.files(SEGMENTS).num_rows == 1 and driver.version(SEGMENTS) != version
        assert sorted(map(str, driver.read(SEGMENTS).to_pylist())) == rows
        append_rows(catalog, SEGMENTS, {"topic": "one more", "partition": int(are_all), "base_offset": 9})
        rows = sorted(map(str, driver.read(SEGMENTS).to_pylist()))
        paths = by_spark.files(SEGMENTS)["path"].to_pylist()
