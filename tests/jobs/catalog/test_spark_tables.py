"""Tables through Spark give the groups of rows that Python makes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.common.catalog.spark_tables import SparkTables
from jobs.common.spark.session import session
from kidxlib.catalog.segments import SEGMENTS
from tests.support.grouped import Segments, assert_grouped, rows_of
from tests.support.spark.sessions import use_shared_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    use_shared_session()
    with session("test") as spark:
        yield spark


def test_groups_of_rows(spark: SparkSession, tmp_path: Path, rng: random.Random) -> None:
    tables = SparkTables(spark, f"file:{tmp_path}/catalog")
    assert_grouped(tables, rows_of({}))
    keys = [(topic, partition, base_offset) for topic in "ab" for partition in range(3) for base_offset in range(6)]
    found: Segments = {
        key: (rng.choice([None, 1, 2]), rng.choice(["ok", "torn"])) for key in rng.sample(keys, len(keys) // 2)
    }
    tables.append(SEGMENTS, rows_of(found))
    assert_grouped(tables, rows_of(found))
